"""Finds the output files of a batch script in procfs, for jobs whose paths Slurm does not report.

Old releases pass no path to the prolog, and slurmctld must not be queried from every node. The descriptors of the
processes of step ``batch`` are what they really write to, redirections in the script included. Reading them needs the
right to look at processes of others (CAP_SYS_PTRACE): without it no file is found, and it is no error.

A process may write anywhere: only a regular file of the job's user counts, and only if the path that the kernel reports
is that file in this mount namespace. In a container the same path may be another file, which is then ignored.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from opsk.telemetry.host.cgroup_files import numbers, read

_STEPD = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{13})(?:[.+][\w+]{0,20})?\.batch\]", re.ASCII)


def find_batch_steps(procfs: Path = Path("/proc")) -> dict[str, list[int]]:
    """Return the slurmstepd of each batch script on this node, by number of the job, or SLUID.

    Where several clusters share a node one number may have several.
    """
    steps: dict[str, list[int]] = {}
    try:
        folders = [path for path in procfs.iterdir() if path.name.isdecimal()]
    except OSError:
        return steps
    for folder in folders:
        try:
            if (folder / "comm").read_bytes().startswith(b"slurmstepd"):
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if (step := _STEPD.match(title)) is not None:
                    steps.setdefault(step[1], []).append(int(folder.name))
        except OSError:
            continue
    return steps


MAX_LOGS = 8
"""Different files of one job; the limit for scripts that start many programs with a file each."""
_MAX_PROCESSES = 256
_OUTPUTS = ("1", "2")
_BATCH_GROUP = re.compile(r"/step_batch(?:/|$)", re.MULTILINE)


def find_batch_outputs(procfs: Path, pids: Iterable[int], owner: int, stepd: int | None = None) -> tuple[Path, ...]:
    """Return the files that a batch script and what it has started write to, the script's own first.

    Parameters
    ----------
    procfs
        Where procfs is mounted.
    pids
        The job's processes by its control groups; those of step ``batch`` are read.
    owner
        Only files of this user count.
    stepd
        The slurmstepd of the batch script: its descendants are read where there are no control groups.
    """
    processes = [pid for pid in sorted(pids) if _BATCH_GROUP.search(read(f"{procfs}/{pid}/cgroup") or "")]
    if not processes and stepd is not None:
        processes = list(_iterate_descendants(procfs, stepd))
    logs: dict[tuple[int, int], Path] = {}
    for pid in processes[:_MAX_PROCESSES]:
        for output in _OUTPUTS:
            _add_log(logs, f"{procfs}/{pid}/fd/{output}", owner)
            if len(logs) == MAX_LOGS:
                return tuple(logs.values())
    return tuple(logs.values())


def _add_log(logs: dict[tuple[int, int], Path], link: str, owner: int) -> None:
    """Add the file of a descriptor if it may be read as a log."""
    try:
        status = Path(link).stat()
        file = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or file in logs:
            return
        path = Path(link).readlink()
        at_path = path.lstat() if path.is_absolute() else None
    except (OSError, ValueError):
        return
    if at_path is not None and (at_path.st_dev, at_path.st_ino) == file:
        logs[file] = path


def _iterate_descendants(procfs: Path, pid: int) -> Iterator[int]:
    """Yield the descendants of a process, the oldest first."""
    queue = [pid]
    for _ in range(_MAX_PROCESSES):
        if not queue:
            return
        children = sorted(_read_children(f"{procfs}/{queue[0]}/task"))
        yield from children
        queue = [*queue[1:], *children]


def _read_children(tasks: str) -> frozenset[int]:
    """Read the children of a process: the kernel lists them for each thread."""
    try:
        threads = list(Path(tasks).iterdir())
    except OSError:
        return frozenset()
    return frozenset().union(*(numbers(thread / "children") for thread in threads))
