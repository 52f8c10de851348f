"""Reads environments, resource use, output files and the slurmstepd of a job's processes from procfs.

The environment of another user's process can only be read by root; without that right nothing is reported, and it is no
error. A process may have changed its environment: values from here fill gaps and never override Slurm's.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opsk.telemetry.host.cgroups import read_kernel_file, read_pids, ticks_to_s
from opsk.telemetry.jobs.job_files import parse_gpu_numbers
from opsk.units import MIB

_BATCH_STEPD = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{13})(?:[.+][\w+]{0,20})?\.batch\]", re.ASCII)
MAX_LOGS = 8
"""Different files of one job; the limit for scripts that start many programs with a file each."""
_MAX_PROCESSES = 256
_OUTPUTS = ("1", "2")
_BATCH_GROUP = re.compile(r"/step_batch(?:/|$)", re.MULTILINE)
_MAX_ENVIRON_BYTES = 4 * MIB
_STEPD = re.compile(r"slurmstepd: \[(\d+)[.+_\]]")
_STEPD_SLUID = re.compile(r"slurmstepd: \[(s[0-9A-Za-z]{13})[.\]]")
_TRIED_PIDS = 3
_USER, _SYSTEM, _THREADS = (11, 13), (12, 14), 17
"""Places in ``stat`` after the name: own and waited-for time, threads (proc(5) counts from 1, name included)."""
_BATCH_STEPS = ("", "-5", "4294967291")
"""How releases name the batch script's own step in its environment; older ones do not."""


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
                if (step := _BATCH_STEPD.match(title)) is not None:
                    steps.setdefault(step[1], []).append(int(folder.name))
        except OSError:
            continue
    return steps


def find_batch_outputs(procfs: Path, pids: Iterable[int], owner: int, stepd: int | None = None) -> tuple[Path, ...]:
    """Return the files that a batch script and what it has started write to, the script's own first.

    Old releases pass no path to the prolog, and slurmctld must not be queried from every node. The descriptors of the
    processes of step ``batch`` are what they really write to, redirections in the script included. Reading them needs
    the right to look at processes of others (CAP_SYS_PTRACE): without it no file is found, and it is no error.

    A process may write anywhere: only a regular file of the job's user counts, and only if the path that the kernel
    reports is that file in this mount namespace. In a container the same path may be another file, which is then
    ignored.

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
    processes = [pid for pid in sorted(pids) if _BATCH_GROUP.search(read_kernel_file(f"{procfs}/{pid}/cgroup") or "")]
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
    return frozenset().union(*(read_pids(thread / "children") for thread in threads))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The environment of a process of a job; ``None`` is "not set".

    ``gpus`` are Slurm's numbers of GPUs on this node, and only where the variables are of this node.
    """

    job_id: str | None = None
    sluid: str | None = None
    array_job: str | None = None
    array_task: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    gpus: tuple[int, ...] = ()


def read_environment(procfs: Path, pids: Iterable[int]) -> JobEnvironment | None:
    """Read the environment of the first process with Slurm's variables; ``None`` when none can be read.

    Raises
    ------
    PermissionError
        Environments of others cannot be read.
    """
    denied: PermissionError | None = None
    for pid in sorted(pids)[:_TRIED_PIDS]:
        try:
            with (procfs / str(pid) / "environ").open("rb", buffering=0) as file:
                variables = _parse_variables(file.read(_MAX_ENVIRON_BYTES))
        except PermissionError as error:
            denied = error
        except OSError:
            continue
        else:
            if _parse_job_id(variables.get("SLURM_JOB_ID")):
                return _parse_environment(variables)
    if denied is not None:
        raise denied
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What some processes used together: CPU time, with that of children that they waited for [s], and threads."""

    cpu_user_s: float
    cpu_system_s: float
    threads: int


def read_use(procfs: Path, pids: Iterable[int]) -> ProcessUse | None:
    """Return what processes used, of those that can be seen; ``None`` when none can."""
    user = system = threads = 0
    for pid in pids:
        # The name in brackets may hold anything: parse what follows the last one.
        words = (read_kernel_file(f"{procfs}/{pid}/stat") or "").rpartition(")")[2].split()
        if len(words) > _THREADS and all(words[index].isdecimal() for index in (*_USER, *_SYSTEM, _THREADS)):
            user += sum(int(words[index]) for index in _USER)
            system += sum(int(words[index]) for index in _SYSTEM)
            threads += int(words[_THREADS])
    if not threads:
        return None
    return ProcessUse(cpu_user_s=ticks_to_s(user) or 0.0, cpu_system_s=ticks_to_s(system) or 0.0, threads=threads)


def _parse_variables(raw: bytes) -> dict[str, str]:
    """Return Slurm's variables."""
    words = (word.partition(b"=") for word in raw.split(b"\0") if word.startswith(b"SLURM_"))
    return {name.decode("ascii", "replace"): value.decode("utf-8", "replace") for name, _, value in words}


def _parse_environment(variables: dict[str, str]) -> JobEnvironment:
    # SLURM_JOB_GPUS is of the node of the batch script: srun passes it on to all other nodes.
    in_batch = variables.get("SLURM_STEP_ID", "") in _BATCH_STEPS
    gpus = variables.get("SLURM_JOB_GPUS" if in_batch else "SLURM_STEP_GPUS", "")
    return JobEnvironment(
        job_id=_parse_job_id(variables.get("SLURM_JOB_ID")),
        sluid=variables.get("SLURM_JOB_SLUID"),
        array_job=_parse_job_id(variables.get("SLURM_ARRAY_JOB_ID")),
        array_task=_parse_job_id(variables.get("SLURM_ARRAY_TASK_ID")),
        user=variables.get("SLURM_JOB_USER"),
        account=variables.get("SLURM_JOB_ACCOUNT"),
        partition=variables.get("SLURM_JOB_PARTITION"),
        qos=variables.get("SLURM_JOB_QOS"),
        name=variables.get("SLURM_JOB_NAME"),
        gpus=parse_gpu_numbers(gpus),
    )


def _parse_job_id(text: str | None) -> str | None:
    return text if text and text.isdecimal() and text.isascii() and len(text) <= 12 else None


class StepDaemons:
    """Finds the jobs with a slurmstepd on this node by the titles of processes; seldom, as it reads them all.

    Parameters
    ----------
    procfs
        Where procfs is mounted.
    every_s
        How old an answer may be [s].
    """

    def __init__(
        self, procfs: Path = Path("/proc"), every_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._procfs = procfs
        self._every_s = every_s
        self._clock = clock
        self._at: float | None = None
        self._jobs: frozenset[str] = frozenset()

    def jobs(self) -> frozenset[str] | None:
        """Return numbers of jobs, and SLUIDs where the titles have those; ``None`` where processes are hidden."""
        if not (self._procfs / "1").is_dir():
            return None
        now = self._clock()
        if self._at is None or now - self._at >= self._every_s:
            self._jobs, self._at = frozenset(self._look()), now
        return self._jobs

    def _look(self) -> Iterable[str]:
        try:
            paths = [path for path in self._procfs.iterdir() if path.name.isdecimal()]
        except OSError:
            return
        for path in paths:
            try:
                if (path / "comm").read_bytes().startswith(b"slurmstepd"):
                    title = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    match = _STEPD.match(title) or _STEPD_SLUID.match(title)
                    if match:
                        yield match[1]
            except OSError:
                continue
