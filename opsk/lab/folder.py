"""Defines the layout of a lab's folder: keys, sockets, configuration, state, logs and database.

Unix socket paths may have 107 bytes, and slurm.conf knows no quoting. When the folder's own path is too long for the
sockets in it, or has characters that slurm.conf would split at, the daemons get a short symbolic link to it instead.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError, LabError

MAX_SOCKET_BYTES = 107
"""``sun_path`` of Linux, without the closing zero (unix(7))."""
_LONGEST_SOCKET = "/spool/n511/n511_4294967295.4294967295"
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")

RECORD = "lab.json"
LOCK = "lock"
_PERSISTENT = ("etc", "log", "fabric.net", "fabric.ibnetdiscover")
"""Entries that stay after ``down``, for people to read."""
_TEMPORARY = ("run", "state", "spool", "mysql", "dev", "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFolder:
    """The folder of one lab: ``path`` is where it is, ``base`` how its daemons reach it (``path`` or a link to it)."""

    path: Path
    base: Path

    @property
    def record(self) -> Path:
        """Who runs here; see `opsk.lab.record`."""
        return self.path / RECORD

    @property
    def etc(self) -> Path:
        """Configuration: slurm.conf and the files next to it, opsk.toml, cluster.toml."""
        return self.base / "etc"

    @property
    def run(self) -> Path:
        """Sockets, pid files, and the working directory of the daemons."""
        return self.base / "run"

    @property
    def log(self) -> Path:
        """One log a daemon."""
        return self.base / "log"

    @property
    def state(self) -> Path:
        """State that slurmctld, munged and opensm need again."""
        return self.base / "state"

    @property
    def spool(self) -> Path:
        """One directory for each slurmd."""
        return self.base / "spool"

    @property
    def mysql(self) -> Path:
        """Data directory of MariaDB."""
        return self.base / "mysql"

    @property
    def dev(self) -> Path:
        """Device files of the GPUs that are not there."""
        return self.base / "dev"

    @property
    def nodes(self) -> Path:
        """One directory for each node with an exporter: the devices that it reads; see `opsk.lab.machine.machine`."""
        return self.run / "nodes"

    @property
    def secret(self) -> Path:
        """The munge key, readable by the owner only."""
        return self.base / "secret"

    @property
    def slurm_conf(self) -> Path:
        """Value of ``SLURM_CONF`` to use this lab."""
        return self.etc / "slurm.conf"

    @property
    def site(self) -> Path:
        """Value of ``OPSK_CONFIG`` to use this lab."""
        return self.etc / "opsk.toml"

    @property
    def munge_socket(self) -> Path:
        """Socket of this lab's munged."""
        return self.run / "munge.sock"

    @property
    def mysql_socket(self) -> Path:
        """Socket of this lab's MariaDB; it listens nowhere else."""
        return self.run / "mysql.sock"

    @property
    def net(self) -> Path:
        """The fabric as ibsim reads it."""
        return self.base / "fabric.net"

    @property
    def dump(self) -> Path:
        """The fabric as ibnetdiscover found it."""
        return self.base / "fabric.ibnetdiscover"


def choose_folder(path: Path, *, lab_id: str) -> LabFolder:
    """Return the folder, with the link that its daemons need when the path is too long or has odd characters.

    The link is not made here: the record must name it first, so that it is removed after a crash as well.
    """
    short = len(os.fsencode(path)) + len(_LONGEST_SOCKET) <= MAX_SOCKET_BYTES
    if short and _PLAIN.fullmatch(str(path)):
        return LabFolder(path=path, base=path)
    return LabFolder(path=path, base=_find_link_home() / f"opsk-lab-{lab_id}")


def claim(path: Path, *, for_all_users: bool) -> None:
    """Create the folder, or make sure that it is an old lab of this user or empty.

    Raises
    ------
    InputError
        When there is something else in it: the lab removes everything in its own folder.
    LabError
        When it cannot be made or belongs to another user.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        check_owner(path)
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", hint="choose another folder with --dir") from error
    if RECORD not in names and names - {LOCK, RECORD + ".new"}:
        raise InputError(
            f"{path} is not empty and is not the folder of a lab", hint="choose an empty or a new folder with --dir"
        )
    path.chmod(0o755 if for_all_users else 0o700)


@contextmanager
def name_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system (no space, no permission) into an error that names the file.

    Raises
    ------
    LabError
        Instead of any OSError.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise LabError(f"{where}: {error.strerror or error}", hint="choose another folder with --dir") from error


def create_layout(folder: LabFolder, *, spools: tuple[str, ...]) -> None:
    """Remove the files of an earlier lab, and make the directories, open to other users only where needed."""
    if folder.base != folder.path:
        folder.base.symlink_to(folder.path, target_is_directory=True)
    _remove(folder, (*_PERSISTENT, *_TEMPORARY))
    for name, mode in (("etc", 0o755), ("run", 0o755), ("log", 0o755), ("dev", 0o755), ("spool", 0o755)):
        (folder.path / name).mkdir(mode=mode)
        (folder.path / name).chmod(mode)
    for name in ("state", "mysql", "secret"):
        (folder.path / name).mkdir(mode=0o700)
    for name in spools:
        (folder.path / "spool" / name).mkdir(mode=0o755)


def check_owner(path: Path) -> None:
    """Refuse another user's lab: files that root writes into a folder of another user could land anywhere.

    Raises
    ------
    LabError
        Names the owner.
    """
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", hint="choose the folder of your lab with --dir") from error
    if owner != os.geteuid():
        raise LabError(
            f"{path} belongs to uid {owner}", hint="run this as that user, or choose another folder with --dir"
        )


def clean(folder: LabFolder) -> None:
    """Remove everything but configuration, logs, the fabric and the record; and the short link."""
    _remove(folder, _TEMPORARY)
    unlink_base(folder)


def unlink_base(folder: LabFolder) -> None:
    """Remove the short link, if there is one and it is this lab's."""
    if folder.base != folder.path and folder.base.is_symlink() and folder.base.readlink() == folder.path:
        folder.base.unlink(missing_ok=True)


def _remove(folder: LabFolder, names: tuple[str, ...]) -> None:
    for name in names:
        entry = folder.path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


def _find_link_home() -> Path:
    """Return a directory with a short name that this user may write: the run-time directory of the login, or /tmp."""
    runtime_folder = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    usable = os.geteuid() != 0 and runtime_folder.is_absolute() and os.access(runtime_folder, os.W_OK | os.X_OK)
    plain = _PLAIN.fullmatch(str(runtime_folder)) and len(str(runtime_folder)) < len("/run/user/4294967295/")
    return runtime_folder if usable and plain else Path("/tmp")
