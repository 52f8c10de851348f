"""Finds the processes that belong to a lab, and ends them by pid and start time, never by name.

Everything the lab starts carries ``OPSK_LAB_DAEMON=<folder>`` in its environment, so that it is found even when its pid
was not recorded. What Slurm starts for jobs gets the job's environment instead, and is known by the lab's
``SLURM_CONF`` together with ``SLURMD_NODENAME``, which only slurmd sets. slurmstepd and slurmscriptd write their title
over their environment; they are known by the lab's log that they hold open.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "OPSK_LAB_DAEMON"
_PROC = Path("/proc")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SLURM_HELPERS = frozenset({b"slurmstepd", b"slurmscriptd", b"slurmctld", b"slurmd"})
_DEAD_STATES = frozenset({b"Z", b"X", b"x"})
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process: its pid, and its start time in clock ticks since boot, which no later owner of the pid shares."""

    pid: int
    started_ticks: int


def read_boot_id() -> str:
    """Return the id of this boot: pids and start times of an earlier boot are meaningless."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def identify(pid: int) -> Process | None:
    """Return the living process with this pid; ``None`` when there is none, or only a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in _DEAD_STATES:
        return None
    return Process(pid=pid, started_ticks=int(fields[19]))


def is_running(process: Process) -> bool:
    """Return whether this very process still runs."""
    return identify(process.pid) == process


def read_command_line(process: Process) -> str:
    """Return how the process was called, for messages; empty when it is gone."""
    try:
        return (_PROC / str(process.pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def find_all(folder: Path, *, slurm_confs: Iterable[Path]) -> tuple[Process, ...]:
    """Return every process of the lab in ``folder``: daemons, their helpers, and what runs for its jobs.

    This process and those that it runs under are never among them.
    """
    mark = f"{MARKER}={folder}".encode()
    confs = {f"SLURM_CONF={path}".encode() for path in slurm_confs}
    logs = os.fsencode(folder / "log") + b"/"
    spared = set(_list_ancestors())
    processes = []
    for pid in _list_pids():
        if pid in spared or not _belongs(pid, mark=mark, confs=confs, logs=logs):
            continue
        process = identify(pid)
        if process is not None:
            processes.append(process)
    return tuple(processes)


def send(process: Process, signum: signal.Signals) -> None:
    """Send a signal to this very process; nothing happens when it is gone, even if its pid was given to another."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:
        handle = -1
    try:
        if not is_running(process):
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, signum)
        else:
            os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        if handle >= 0:
            os.close(handle)


def end(processes: Iterable[Process], *, grace_s: float) -> None:
    """Terminate processes, wait ``grace_s``, then kill those that are left; returns when all are gone or killed."""
    requested = tuple(processes)
    for process in requested:
        send(process, signal.SIGTERM)
    left = wait_gone(requested, timeout_s=grace_s)
    for process in left:
        send(process, signal.SIGKILL)
    wait_gone(left, timeout_s=5.0)


def wait_gone(processes: Iterable[Process], *, timeout_s: float) -> tuple[Process, ...]:
    """Wait until the processes are gone, and return those that are not after ``timeout_s``."""
    left = tuple(processes)
    deadline = time.monotonic() + timeout_s
    while True:
        left = tuple(process for process in left if not _reap(process) and is_running(process))
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_S)


def _reap(process: Process) -> bool:
    """Take the exit status of a child of this process; others are not ours to wait for."""
    try:
        return os.waitpid(process.pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _belongs(pid: int, *, mark: bytes, confs: set[bytes], logs: bytes) -> bool:
    environment = _read(pid, "environ").split(b"\0")
    if mark in environment:
        return True
    of_lab = not confs.isdisjoint(environment)
    if of_lab and any(entry.startswith(b"SLURMD_NODENAME=") for entry in environment):
        return True
    return _read(pid, "comm").strip() in _SLURM_HELPERS and (of_lab or _holds_open(pid, logs))


def _holds_open(pid: int, prefix: bytes) -> bool:
    try:
        handles = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for handle in handles:
        try:
            if os.fsencode(handle.readlink()).startswith(prefix):
                return True
        except OSError:
            continue
    return False


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _list_pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _list_ancestors() -> Iterator[int]:
    """Yield this process and those that started it, up to init."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
