"""Reads the resource use of Slurm jobs from their control groups on this node.

Slurm creates the groups of jobs in these layouts, which can coexist on a node in transition:

- version 1: ``<controller>/slurm/uid_<uid>/job_<id>/step_<s>/task_<t>``, ``slurm_<node>`` with several slurmd;
- version 2: ``<slice>/slurmstepd.scope/job_<id>/step_<s>/user/task_<t>``, ``<node>_slurmstepd.scope`` likewise; the
  slice is ``CgroupSlice`` (``system.slice``);
- version 2 from 26.05 on: the job's folder is its SLUID, unless ``CgroupJobIdPaths`` brings ``job_<id>`` back.

A group can disappear at any moment: what cannot be read is ``None`` or empty, never an error. USER_HZ, microseconds and
nanoseconds become seconds here, and "max" and version 1's largest number "no limit".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000
_USER_HZ = 100
"""Ticks of ``cpuacct.stat``: 100 a second on every Linux, whatever the kernel's own clock."""
_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page, version 2 as ``max``."""
_PAGE_BYTES, _MAX_READS = 1 << 16, 1024
_LEAF_LINKS = 2
_MAX_DIGITS = 20
"""The kernel's numbers have 64 bits; what is longer is none of them, and might not fit a float."""
AnyPath = str | os.PathLike[str]
Folder = tuple[str, str]
"""Name and path: paths are text here, since making objects of them costs more than reading the files."""
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
_V1_TOP = re.compile(r"slurm(?:_(.+))?")
_V1_USER = re.compile(r"uid_(\d+)")
_SCOPE = re.compile(r"(?:(.+)_)?slurmstepd\.scope")
_JOB = re.compile(r"job_(\d+)")
SLUID = re.compile(r"s[0-9A-Za-z]{13}")
"""Slurm's id of one run of a job: 64 bits in Crockford's base 32, which ignores the case of letters."""
_STEP = re.compile(r"step_(.+)")
_V1_PIDS = ("freezer", "memory", "cpuacct", "cpu", "cpuset", "devices", "pids")
"""Where to look for a job's processes, in this order: not every site has every controller."""
_SLICE_DEPTH = 4
_PRESSURES = ("cpu", "memory", "io")


def read_kernel_file(path: AnyPath) -> str | None:
    """Return a file of the kernel as text; ``None`` when it is missing or not readable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    parts: list[bytes] = []
    try:
        # The kernel returns long lists a page at a time.
        while len(parts) < _MAX_READS and (part := os.read(handle, _PAGE_BYTES)):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(handle)
    return b"".join(parts).decode("ascii", "replace")


def _is_number(text: str) -> bool:
    """Return whether a word is a number in the kernel's format."""
    return text.isdecimal() and len(text) <= _MAX_DIGITS


def read_number(path: AnyPath) -> int | None:
    """Read a file that holds one number; ``None`` for ``max`` and for anything else."""
    text = (read_kernel_file(path) or "").strip()
    return int(text) if _is_number(text) else None


def read_limit_bytes(path: AnyPath) -> int | None:
    """Read a limit [bytes]; ``None`` where there is none."""
    value = read_number(path)
    return None if value is None or value >= _UNLIMITED_BYTES else value


def read_keyed(path: AnyPath) -> dict[str, int]:
    """Read lines of ``name number``; others are left out."""
    values: dict[str, int] = {}
    for line in (read_kernel_file(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if _is_number(value.strip()):
            values[name] = int(value)
    return values


def read_pids(path: AnyPath) -> frozenset[int]:
    """Read one process or thread id a line; 0 is a process of another pid namespace."""
    return frozenset(int(word) for word in (read_kernel_file(path) or "").split() if _is_number(word) and word != "0")


def count_cpus(path: AnyPath) -> int | None:
    """Count the CPUs of a list such as ``0-3,8``; ``None`` when it is empty or no list."""
    total = 0
    for part in (read_kernel_file(path) or "").strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        total += int(match[2] or match[1]) - int(match[1]) + 1
    return total or None


def ticks_to_s(count: int | None) -> float | None:
    """Turn ticks of ``cpuacct.stat`` into seconds."""
    return None if count is None else count / _USER_HZ


def counts_to_s(value: int | None, per_second: int) -> float | None:
    """Turn a count of microseconds (a million per second) or nanoseconds into seconds."""
    return None if value is None else value / per_second


def read_stalled_s(path: AnyPath) -> float | None:
    """Read from a pressure file how long some task waited [s]."""
    for line in (read_kernel_file(path) or "").splitlines():
        words = line.split()
        if words[:1] == ["some"] and words[-1].startswith("total=") and _is_number(words[-1][6:]):
            return int(words[-1][6:]) / MICROSECONDS
    return None


def read_io_bytes(path: AnyPath) -> tuple[int, int] | None:
    """Sum bytes read and written over the devices of version 2's ``io.stat``; ``None`` without the file."""
    text = read_kernel_file(path)
    if text is None:
        return None
    totals = {"rbytes": 0, "wbytes": 0}
    for line in text.splitlines():
        for word in line.split()[1:]:
            name, _, value = word.partition("=")
            if name in totals and _is_number(value):
                totals[name] += int(value)
    return totals["rbytes"], totals["wbytes"]


def read_blkio_bytes(path: AnyPath) -> tuple[int, int] | None:
    """Sum bytes read and written over the devices of version 1's ``*io_service_bytes*``; ``None`` without the file."""
    text = read_kernel_file(path)
    if text is None:
        return None
    totals = {"Read": 0, "Write": 0}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in totals and _is_number(words[2]):
            totals[words[1]] += int(words[2])
    return totals["Read"], totals["Write"]


def list_folders(path: AnyPath) -> tuple[Folder, ...]:
    """Return the folders in a folder by name, links left out; none when it cannot be read.

    A folder without folders has two links, which spares the kernel from listing its sixty files.
    """
    try:
        if os.stat(path).st_nlink == _LEAF_LINKS:  # noqa: PTH116 - called some hundred times a scrape
            return ()
        with os.scandir(path) as entries:
            return tuple(sorted((entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)))
    except OSError:
        return ()


def is_folder(path: AnyPath) -> bool:
    """Return whether a folder exists."""
    return Path(path).is_dir()


def walk_folders(path: str, depth: int = 8) -> Iterator[str]:
    """Yield a folder and all below it."""
    yield path
    if depth:
        for _, folder in list_folders(path):
            yield from walk_folders(folder, depth - 1)


def add_known(values: Iterable[int | None]) -> int | None:
    """Add up what is known; ``None`` when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCgroup:
    """The values of one job's control groups at one moment; ``None`` is "not counted here".

    Parameters
    ----------
    name
        Name of the job's folder: ``job_<id>`` or the SLUID.
    job_id, sluid
        One of the two, from the name.
    version
        1 or 2.
    node
        Slurm's name of the node where several slurmd share the host.
    uid
        Owner, where the path has it (version 1).
    steps
        Steps that are there now: ``batch``, ``extern``, ``0``, ...
    pids, extern_pids
        Processes of the job, slurmstepd left out; those of step ``extern`` among them, one of which is Slurm's own
        ``sleep``.
    threads
        Tasks of the kernel; slurmstepd's too where only the sum is reported.
    cpus
        CPUs that the job may run on, where they are constrained.
    cpu_s, cpu_user_s, cpu_system_s, throttled_s
        CPU time of all processes, those that ended too, and time that a quota held them back [s].
    memory_bytes, memory_peak_bytes, memory_limit_bytes
        Memory that counts against the limit (with file caches), its peak, and the limit [bytes].
    anonymous_bytes, cache_bytes
        Anonymous memory, and cached files [bytes].
    oom_kills
        Processes that the OOM killer killed.
    limit_hits
        How often the limit was reached.
    read_bytes, written_bytes
        Of block devices [bytes]; network file systems are not in it.
    stalled_s
        Time in which some task waited for ``cpu``, ``memory`` or ``io`` [s].
    """

    name: str
    job_id: str | None = None
    sluid: str | None = None
    version: int
    node: str | None = None
    uid: int | None = None
    steps: tuple[str, ...] = ()
    pids: frozenset[int] = frozenset()
    extern_pids: frozenset[int] = frozenset()
    threads: int | None = None
    cpus: int | None = None
    cpu_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    anonymous_bytes: int | None = None
    cache_bytes: int | None = None
    oom_kills: int | None = None
    limit_hits: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    stalled_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        """How many processes the job has, without Slurm's ``sleep`` in step ``extern``."""
        return len(self.pids) - min(1, len(self.extern_pids))


class CgroupSource(Protocol):
    """A source of the control groups of jobs."""

    def jobs(self) -> tuple[JobCgroup, ...]:
        """Return the jobs that have control groups now; none is no fault."""
        ...


class CgroupReader:
    """Reads the control groups below a mount of cgroups, whatever the version.

    Parameters
    ----------
    root
        Where cgroups are mounted.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root

    def jobs(self) -> tuple[JobCgroup, ...]:
        """Return the jobs; one with groups of both versions has the numbers of version 1, where its limits are."""
        jobs: dict[tuple[str | None, str], JobCgroup] = {}
        for job in (*_v2_jobs(str(self._root)), *_v1_jobs(str(self._root))):
            jobs[job.node, job.name] = job
        return tuple(jobs.values())


def _v2_jobs(root: str) -> Iterator[JobCgroup]:
    """Yield jobs of version 2; ``unified`` is where a hybrid system mounts it."""
    for scope, node in (*_scopes(root, _SLICE_DEPTH), *_scopes(f"{root}/unified", _SLICE_DEPTH)):
        for name, folder in list_folders(scope):
            number, is_sluid = _JOB.fullmatch(name), SLUID.fullmatch(name) is not None
            if (number or is_sluid) and (job := _v2_job(name, folder, node, number[1] if number else None)) is not None:
                yield job


def _scopes(folder: str, depth: int) -> Iterator[tuple[str, str | None]]:
    """Yield the folders of slurmstepd, looking into slices only, with the node's name where it is part of theirs."""
    for name, path in list_folders(folder):
        if match := _SCOPE.fullmatch(name):
            yield path, match[1]
        elif depth and name.endswith(".slice"):
            yield from _scopes(path, depth - 1)


def _v2_job(name: str, folder: str, node: str | None, job_id: str | None) -> JobCgroup | None:
    """Read a job of version 2; ``None`` when it has gone."""
    pids: set[int] = set()
    extern: frozenset[int] = frozenset()
    steps = []
    for step_name, step in list_folders(folder):
        match = _STEP.fullmatch(step_name)
        if match:
            steps.append(match[1])
            step_pids = _v2_pids(step)
            pids |= step_pids
            extern = step_pids if match[1] == "extern" else extern
    cpu, memory, events = (read_keyed(f"{folder}/{what}") for what in ("cpu.stat", "memory.stat", "memory.events"))
    if not (steps or cpu or memory or is_folder(folder)):
        return None
    moved = read_io_bytes(f"{folder}/io.stat")
    stalled = {what: read_stalled_s(f"{folder}/{what}.pressure") for what in _PRESSURES}
    return JobCgroup(
        name=name,
        job_id=job_id,
        sluid=None if job_id else name,
        version=2,
        node=node,
        steps=tuple(steps),
        pids=frozenset(pids),
        extern_pids=extern,
        threads=read_number(f"{folder}/pids.current"),
        cpus=count_cpus(f"{folder}/cpuset.cpus.effective"),
        cpu_s=counts_to_s(cpu.get("usage_usec"), MICROSECONDS),
        cpu_user_s=counts_to_s(cpu.get("user_usec"), MICROSECONDS),
        cpu_system_s=counts_to_s(cpu.get("system_usec"), MICROSECONDS),
        throttled_s=counts_to_s(cpu.get("throttled_usec"), MICROSECONDS),
        memory_bytes=read_number(f"{folder}/memory.current"),
        memory_peak_bytes=read_number(f"{folder}/memory.peak"),
        memory_limit_bytes=read_limit_bytes(f"{folder}/memory.max"),
        anonymous_bytes=memory.get("anon"),
        cache_bytes=memory.get("file"),
        oom_kills=events.get("oom_kill"),
        limit_hits=events.get("max"),
        read_bytes=moved[0] if moved else None,
        written_bytes=moved[1] if moved else None,
        stalled_s={what: time_s for what, time_s in stalled.items() if time_s is not None},
    )


def _v2_pids(step: str) -> frozenset[int]:
    """Return the processes of a step: those below ``user``, or all but slurmstepd's where there is no such folder."""
    inner = dict(list_folders(step))
    direct = [step] if "user" not in inner else []
    tops = [inner["user"]] if "user" in inner else [path for name, path in inner.items() if name != "slurm"]
    groups = (*direct, *(group for top in tops for group in walk_folders(top)))
    return frozenset().union(*(read_pids(f"{group}/cgroup.procs") for group in groups))


def _v1_jobs(root: str) -> Iterator[JobCgroup]:
    """Yield jobs of version 1, from whichever controllers know them."""
    places: dict[tuple[str | None, int, str], dict[str, str]] = {}
    for mount, mount_path in list_folders(root):
        for node, uid, job_id, folder in _v1_places(mount_path):
            places.setdefault((node, uid, job_id), {}).update(dict.fromkeys(mount.split(","), folder))
    for (node, owner, job_id), folders in places.items():
        if (read := _v1_job(node, owner, job_id, folders)) is not None:
            yield read


def _v1_places(mount: str) -> Iterator[tuple[str | None, int, str, str]]:
    """Yield node, owner, number and folder of each job that a controller knows."""
    for top, top_path in list_folders(mount):
        if not (slurm := _V1_TOP.fullmatch(top)):
            continue
        for user, user_path in list_folders(top_path):
            if not (uid := _V1_USER.fullmatch(user)):
                continue
            for name, folder in list_folders(user_path):
                if job := _JOB.fullmatch(name):
                    yield slurm[1], int(uid[1]), job[1], folder


def _v1_job(node: str | None, uid: int, job_id: str, folders: Mapping[str, str]) -> JobCgroup | None:
    """Read a job of version 1 from its folders by controller; ``None`` when all have gone."""
    nowhere = "/nonexistent"
    accounting, memory = folders.get("cpuacct", nowhere), folders.get("memory", nowhere)
    used, status = read_keyed(f"{accounting}/cpuacct.stat"), read_keyed(f"{memory}/memory.stat")
    pids, extern, steps = _v1_pids(folders)
    if not (steps or used or status or any(is_folder(folder) for folder in folders.values())):
        return None
    moved = read_blkio_bytes(f"{folders.get('blkio', nowhere)}/blkio.throttle.io_service_bytes_recursive")
    return JobCgroup(
        name=f"job_{job_id}",
        job_id=job_id,
        version=1,
        node=node,
        uid=uid,
        steps=steps,
        pids=pids,
        extern_pids=extern,
        threads=read_number(f"{folders.get('pids', nowhere)}/pids.current"),
        cpus=count_cpus(f"{folders.get('cpuset', nowhere)}/cpuset.cpus"),
        cpu_s=counts_to_s(read_number(f"{accounting}/cpuacct.usage"), NANOSECONDS),
        cpu_user_s=ticks_to_s(used.get("user")),
        cpu_system_s=ticks_to_s(used.get("system")),
        throttled_s=counts_to_s(
            read_keyed(f"{folders.get('cpu', accounting)}/cpu.stat").get("throttled_time"), NANOSECONDS
        ),
        memory_bytes=read_number(f"{memory}/memory.usage_in_bytes"),
        memory_peak_bytes=read_number(f"{memory}/memory.max_usage_in_bytes"),
        memory_limit_bytes=read_limit_bytes(f"{memory}/memory.limit_in_bytes"),
        anonymous_bytes=status.get("total_rss", status.get("rss")),
        cache_bytes=status.get("total_cache", status.get("cache")),
        # Version 1 counts a kill in the group of the process alone, not in those above it.
        oom_kills=add_known(read_keyed(f"{at}/memory.oom_control").get("oom_kill") for at in walk_folders(memory)),
        limit_hits=read_number(f"{memory}/memory.failcnt"),
        read_bytes=moved[0] if moved else None,
        written_bytes=moved[1] if moved else None,
    )


def _v1_pids(folders: Mapping[str, str]) -> tuple[frozenset[int], frozenset[int], tuple[str, ...]]:
    """Return processes, those of step ``extern`` among them, and steps: of the first controller that has processes.

    Where a step has folders of tasks, processes outside of them are slurmstepd.
    """
    seen: tuple[str, ...] = ()
    for controller in _V1_PIDS:
        if controller not in folders:
            continue
        by_step: dict[str, frozenset[int]] = {}
        for name, step in list_folders(folders[controller]):
            if match := _STEP.fullmatch(name):
                tasks = list_folders(step)
                inner = [group for _, task in tasks for group in walk_folders(task)] if tasks else [step]
                by_step[match[1]] = frozenset().union(*(read_pids(f"{at}/cgroup.procs") for at in inner))
        seen = tuple(by_step) or seen
        pids = frozenset().union(*by_step.values())
        if pids:
            return pids, by_step.get("extern", frozenset()), seen
    return frozenset(), frozenset(), seen
