"""Opens the advisor's listening socket, identifies its peers, and notifies systemd when the advisor is ready."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsk.config import AdvisorConfig
from opsk.errors import ConfigError, UnavailableError

log = logging.getLogger(__name__)
BACKLOG = 512
FIRST_PASSED_FD = 3
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The peer of a connection, as the kernel reports it (``SO_PEERCRED``)."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid, gid=gid)


def submit_uids(config: AdvisorConfig) -> frozenset[int]:
    """Return the uids that may ask on behalf of others: the configured users that exist, and this process's own."""
    uids = {os.geteuid()}
    for name in config.submit_users:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            # a default need not exist; a configured name should
            if "submit_users" in config.model_fields_set:
                log.warning("submit_users: there is no user %r here: nothing that it asks for others is answered", name)
    return frozenset(uids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket; ``path`` and ``inode`` are ``None`` when systemd created and owns it."""

    socket: socket.socket
    path: Path | None = None
    inode: int | None = None

    def release(self) -> None:
        """Close the socket and remove its name, unless another advisor has replaced it."""
        self.socket.close()
        try:
            if self.path is not None and self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except OSError:
            return


def listen(config: AdvisorConfig, environ: Mapping[str, str] = os.environ) -> Listener:
    """Return the socket that systemd passed, else a new one.

    Raises
    ------
    ConfigError
        When the path is no socket, is too long, or its directory is missing or not writable.
    UnavailableError
        When another advisor answers there.
    """
    passed = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") == str(os.getpid()) and passed.isdigit() and int(passed) >= 1:
        ours = socket.socket(fileno=FIRST_PASSED_FD)
        ours.setblocking(False)
        return Listener(socket=ours)
    return _bind(config.socket, config.socket_mode)


def _bind(path: Path, mode: int) -> Listener:
    """Listen on a path.

    The socket is bound under another name, given its mode, and then renamed: nobody can connect to it too early, and
    the process's umask, which threads share, is left alone.
    """
    _remove_stale_socket(path)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        ours.bind(str(draft))
        draft.chmod(mode)
        ours.listen(BACKLOG)
        draft.rename(path)
        return Listener(socket=ours, path=path, inode=path.lstat().st_ino)
    except OSError as error:
        ours.close()
        with suppress(OSError):
            draft.unlink()
        hint = f"the user that opsk advisor runs as must be able to write {path.parent}"
        raise ConfigError(f"{path}: cannot listen: {error.strerror or error}", hint=hint) from error


def _remove_stale_socket(path: Path) -> None:
    """Remove a stale socket: only a socket without a listener is removed."""
    try:
        facts = path.lstat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise ConfigError(f"{path}: {error.strerror}", hint="check the directories above it") from error
    if not stat.S_ISSOCK(facts.st_mode):
        raise ConfigError(f"{path}: there is something else than a socket", hint="name another path or remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror or error}", hint="is another advisor stuck?") from error
    raise UnavailableError(f"{path}: another advisor answers there", hint="stop it first, or name another socket")


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Report the state to systemd (``READY=1``); does nothing where there is no systemd.

    Source: sd_notify(3), protocol of ``NOTIFY_SOCKET``.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(state.encode(), target)
        except OSError:
            return
