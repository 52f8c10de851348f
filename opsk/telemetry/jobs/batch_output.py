"""Where does a batch script write, when Slurm does not tell it? Where output and errors of its processes go.

Old releases hand the prolog no path, and nothing may ask slurmctld for one on every node. What the kernel says of the
processes of step ``batch`` is what they really write to, redirections in the script too. It takes the right to look at
processes of others (CAP_SYS_PTRACE): without it nothing is found, and nothing is wrong.

A process may write anywhere: what counts is a regular file of the job's user that is found at the path that the kernel
gives, seen from here. In a container's or another mount namespace the same path may be another file, and is then none.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from opsk.telemetry.host.cgroup_files import numbers, read

_STEPD = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{13})(?:[.+][\w+]{0,20})?\.batch\]", re.ASCII)


def batch_steps(procfs: Path = Path("/proc")) -> dict[str, list[int]]:
    """Return the slurmstepd of each batch script on this node, by number of the job, or SLUID.

    Where several clusters share a node one number may have several.
    """
    found: dict[str, list[int]] = {}
    try:
        folders = [path for path in procfs.iterdir() if path.name.isdecimal()]
    except OSError:
        return found
    for folder in folders:
        try:
            if (folder / "comm").read_bytes().startswith(b"slurmstepd"):
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if (step := _STEPD.match(title)) is not None:
                    found.setdefault(step[1], []).append(int(folder.name))
        except OSError:
            continue
    return found


MAX_LOGS = 8
"""Different files of one job; a script that starts many programs with a file each is no reason for more."""
_MAX_PROCESSES = 256
_OUTPUTS = ("1", "2")
_BATCH_GROUP = re.compile(r"/step_batch(?:/|$)", re.MULTILINE)


def batch_outputs(procfs: Path, pids: Iterable[int], owner: int, stepd: int | None = None) -> tuple[Path, ...]:
    """Return the files that a batch script and what it has started write to, the script's own first.

    Parameters
    ----------
    procfs
        Where procfs is mounted.
    pids
        The job's processes by its control groups; those of step ``batch`` are looked at.
    owner
        Only files of this user count.
    stepd
        The slurmstepd of the batch script: what it has started is looked at where there are no control groups.
    """
    processes = [pid for pid in sorted(pids) if _BATCH_GROUP.search(read(f"{procfs}/{pid}/cgroup") or "")]
    if not processes and stepd is not None:
        processes = list(_started_by(procfs, stepd))
    found: dict[tuple[int, int], Path] = {}
    for pid in processes[:_MAX_PROCESSES]:
        for output in _OUTPUTS:
            _add(found, f"{procfs}/{pid}/fd/{output}", owner)
            if len(found) == MAX_LOGS:
                return tuple(found.values())
    return tuple(found.values())


def _add(found: dict[tuple[int, int], Path], link: str, owner: int) -> None:
    """Add the file behind a descriptor if it may be read as a log."""
    try:
        status = Path(link).stat()
        file = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or file in found:
            return
        path = Path(link).readlink()
        seen = path.lstat() if path.is_absolute() else None
    except (OSError, ValueError):
        return
    if seen is not None and (seen.st_dev, seen.st_ino) == file:
        found[file] = path


def _started_by(procfs: Path, pid: int) -> Iterator[int]:
    """Yield the processes that one has started, and those that these have, the oldest first."""
    left = [pid]
    for _ in range(_MAX_PROCESSES):
        if not left:
            return
        children = sorted(_children(f"{procfs}/{left[0]}/task"))
        yield from children
        left = [*left[1:], *children]


def _children(tasks: str) -> frozenset[int]:
    """Return what the threads of a process have started: the kernel tells it of each thread."""
    try:
        threads = list(Path(tasks).iterdir())
    except OSError:
        return frozenset()
    return frozenset().union(*(numbers(thread / "children") for thread in threads))
