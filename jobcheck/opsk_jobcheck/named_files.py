"""Reads the files that a script names from where they are on this machine, as the user who runs ``opsk check``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opsk.errors import InputError
from opsk.text import escape
from opsk.units import KIB

MAX_NAMED_FILE_BYTES = 256 * KIB
MAX_TAIL_PARTS = 8
"""Last parts of a path that are tried below the user's own folders."""
MAX_FOLDERS = 6
MAX_SEARCHED = 256
"""Folders that a program is looked for in whose own folder is not here."""
SEARCHED_DEPTH = 2
_PACKAGE = "__init__.py"
_OF_TOOLS = frozenset({"node_modules", "site-packages", "venv", "env", "__pycache__", "wandb", "outputs", "tests"})
"""Folders that hold no programs of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """The files that one script names.

    A path that exists on the cluster or in a container only (``/workspace/conf/a.yaml``) is looked for below the
    working directory and the script's folder from its last folders on. Where a program is in neither, it is the only
    one of its name in the folders below the working directory; ``moved`` has where that is, and what is asked for
    beside such a program is looked for there alone.

    Parameters
    ----------
    script
        The script, as it is named.
    moved
        Folders that hold programs by the folders that the script names; ``None`` for one that was found as named.
    """

    script: Path
    moved: dict[str, Path | None] = field(default_factory=dict)

    def read(self, name: str) -> str | None:
        """Return the text of a file that a script names; ``None`` when it cannot be read."""
        folder = self.script.resolve().parent
        parent, base = os.path.split(name)
        is_program = (
            base.endswith(".py") and base != _PACKAGE and not any(_is_related(parent, known) for known in self.moved)
        )
        for path in (Path(name), folder / name, *_list_tails(name, folder)):
            if (text := _read_text(path)) is not None:
                if is_program:
                    self.moved[parent] = None
                return text
        if is_program:
            self.moved[parent] = _find_only(base)
        elsewhere = self.moved.get(parent)
        return _read_text(elsewhere / base) if elsewhere is not None else None


def _is_related(folder: str, other: str) -> bool:
    """Return whether two folders may be those of one program and its modules: of one tree, or both relative."""
    if not (folder.startswith("/") and other.startswith("/")):
        return folder.startswith("/") == other.startswith("/")
    return f"{folder}/".startswith(f"{other}/") or f"{other}/".startswith(f"{folder}/")


def _find_only(base: str) -> Path | None:
    """Return the only folder below the working directory that has a file of a name; ``None`` for none or several."""
    places = [folder for folder in _iterate_folders() if (folder / base).is_file()]
    return places[0] if len(places) == 1 else None


def _iterate_folders() -> Iterator[Path]:
    """Yield the folders below the working directory, the nearest first, where a program may be."""
    level, count = [Path()], 0
    for _ in range(SEARCHED_DEPTH):
        below: list[Path] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError:
                continue
            for name in names:
                if name.startswith(".") or name in _OF_TOOLS:
                    continue
                count += 1
                if count > MAX_SEARCHED:
                    return
                below.append(folder / name)
                yield folder / name
        level = below


def _read_text(path: Path) -> str | None:
    """Return the text of a file; ``None`` where it cannot be read."""
    try:
        return read_regular(path, limit_bytes=MAX_NAMED_FILE_BYTES).decode("utf-8", errors="replace")
    except InputError:
        return None


def _list_tails(name: str, folder: Path) -> list[Path]:
    """Return where a file may lie whose folder is on the cluster or in a container only, longest path first.

    It is looked for below the working directory, the script's, and those above the script within the working directory.
    """
    first = Path(name).parts[:1]
    if first and first[0] not in ("/", "~") and any((base / first[0]).is_dir() for base in (Path(), folder)):
        return []  # its folder is here, and it is not in it: another file of that name is another module
    parts = [part for part in Path(name).parts if part not in ("/", "~", ".", "..")]
    tails = [Path(*parts[index:]) for index in range(max(1, len(parts) - MAX_TAIL_PARTS), len(parts))]
    here = Path.cwd()
    above = [base for base in folder.parents if base != here and base.is_relative_to(here)]
    return [base / tail for tail in tails for base in (Path(), folder, *above[:MAX_FOLDERS])]


def read_regular(path: Path, *, limit_bytes: int) -> bytes:
    """Return the bytes of a regular file; never blocks.

    Raises
    ------
    InputError
        For anything that is no regular file, is too large, or may not be read.
    """
    shown = escape(str(path))
    try:
        # opening alone may have effects: a watchdog starts, a tape rewinds, a blocked writer of a FIFO resumes
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{shown}: not a regular file", hint="name the script that sbatch gets")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as stream:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise InputError(f"{shown}: not a regular file", hint="name the script that sbatch gets")
            # files of /proc have size 0: reading some of them blocks, or consumes messages of other readers
            content = stream.read(limit_bytes + 1) if facts.st_size else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{shown}: {reason}"), hint="check the name and the permissions") from error
    if len(content) > limit_bytes:
        raise InputError(
            f"{shown}: more than the {limit_bytes} bytes that Slurm takes",
            hint="sbatch would refuse it too; see MaxScriptSize in slurm.conf",
        )
    return content
