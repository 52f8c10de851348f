"""Reads the resource use of Slurm jobs from their control groups on this node.

Slurm creates the groups of jobs in these layouts, which can coexist on a node in transition:

- version 1: ``<controller>/slurm/uid_<uid>/job_<id>/step_<s>/task_<t>``, ``slurm_<node>`` with several slurmd;
- version 2: ``<slice>/slurmstepd.scope/job_<id>/step_<s>/user/task_<t>``, ``<node>_slurmstepd.scope`` likewise; the
  slice is ``CgroupSlice`` (``system.slice``);
- version 2 from 26.05 on: the job's folder is its SLUID, unless ``CgroupJobIdPaths`` brings ``job_<id>`` back.

A job that ends while it is read is left out, or keeps what was read of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsk.telemetry.host import cgroup_files as files

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
        for name, folder in files.folders(scope):
            number, is_sluid = _JOB.fullmatch(name), SLUID.fullmatch(name) is not None
            if (number or is_sluid) and (job := _v2_job(name, folder, node, number[1] if number else None)) is not None:
                yield job


def _scopes(folder: str, depth: int) -> Iterator[tuple[str, str | None]]:
    """Yield the folders of slurmstepd, looking into slices only, with the node's name where it is part of theirs."""
    for name, path in files.folders(folder):
        if found := _SCOPE.fullmatch(name):
            yield path, found[1]
        elif depth and name.endswith(".slice"):
            yield from _scopes(path, depth - 1)


def _v2_job(name: str, folder: str, node: str | None, job_id: str | None) -> JobCgroup | None:
    """Read a job of version 2; ``None`` when it has gone."""
    pids: set[int] = set()
    extern: frozenset[int] = frozenset()
    steps = []
    for step_name, step in files.folders(folder):
        match = _STEP.fullmatch(step_name)
        if match:
            steps.append(match[1])
            step_pids = _v2_pids(step)
            pids |= step_pids
            extern = step_pids if match[1] == "extern" else extern
    cpu, memory, events = (files.keyed(f"{folder}/{what}") for what in ("cpu.stat", "memory.stat", "memory.events"))
    if not (steps or cpu or memory or files.is_folder(folder)):
        return None
    moved = files.io_bytes(f"{folder}/io.stat")
    stalled = {what: files.stalled_s(f"{folder}/{what}.pressure") for what in _PRESSURES}
    return JobCgroup(
        name=name,
        job_id=job_id,
        sluid=None if job_id else name,
        version=2,
        node=node,
        steps=tuple(steps),
        pids=frozenset(pids),
        extern_pids=extern,
        threads=files.number(f"{folder}/pids.current"),
        cpus=files.cpu_count(f"{folder}/cpuset.cpus.effective"),
        cpu_s=files.seconds(cpu.get("usage_usec"), files.MICROSECONDS),
        cpu_user_s=files.seconds(cpu.get("user_usec"), files.MICROSECONDS),
        cpu_system_s=files.seconds(cpu.get("system_usec"), files.MICROSECONDS),
        throttled_s=files.seconds(cpu.get("throttled_usec"), files.MICROSECONDS),
        memory_bytes=files.number(f"{folder}/memory.current"),
        memory_peak_bytes=files.number(f"{folder}/memory.peak"),
        memory_limit_bytes=files.limit(f"{folder}/memory.max"),
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
    inner = dict(files.folders(step))
    direct = [step] if "user" not in inner else []
    tops = [inner["user"]] if "user" in inner else [path for name, path in inner.items() if name != "slurm"]
    groups = (*direct, *(group for top in tops for group in files.walk(top)))
    return frozenset().union(*(files.numbers(f"{group}/cgroup.procs") for group in groups))


def _v1_jobs(root: str) -> Iterator[JobCgroup]:
    """Yield jobs of version 1, from whichever controllers know them."""
    places: dict[tuple[str | None, int, str], dict[str, str]] = {}
    for mount, mount_path in files.folders(root):
        for node, uid, job_id, folder in _v1_places(mount_path):
            places.setdefault((node, uid, job_id), {}).update(dict.fromkeys(mount.split(","), folder))
    for (node, owner, job_id), folders in places.items():
        if (read := _v1_job(node, owner, job_id, folders)) is not None:
            yield read


def _v1_places(mount: str) -> Iterator[tuple[str | None, int, str, str]]:
    """Yield node, owner, number and folder of each job that a controller knows."""
    for top, top_path in files.folders(mount):
        if not (slurm := _V1_TOP.fullmatch(top)):
            continue
        for user, user_path in files.folders(top_path):
            if not (uid := _V1_USER.fullmatch(user)):
                continue
            for name, folder in files.folders(user_path):
                if job := _JOB.fullmatch(name):
                    yield slurm[1], int(uid[1]), job[1], folder


def _v1_job(node: str | None, uid: int, job_id: str, folders: Mapping[str, str]) -> JobCgroup | None:
    """Read a job of version 1 from its folders by controller; ``None`` when all have gone."""
    nowhere = "/nonexistent"
    accounting, memory = folders.get("cpuacct", nowhere), folders.get("memory", nowhere)
    used, status = files.keyed(f"{accounting}/cpuacct.stat"), files.keyed(f"{memory}/memory.stat")
    pids, extern, steps = _v1_pids(folders)
    if not (steps or used or status or any(files.is_folder(folder) for folder in folders.values())):
        return None
    moved = files.blkio_bytes(f"{folders.get('blkio', nowhere)}/blkio.throttle.io_service_bytes_recursive")
    return JobCgroup(
        name=f"job_{job_id}",
        job_id=job_id,
        version=1,
        node=node,
        uid=uid,
        steps=steps,
        pids=pids,
        extern_pids=extern,
        threads=files.number(f"{folders.get('pids', nowhere)}/pids.current"),
        cpus=files.cpu_count(f"{folders.get('cpuset', nowhere)}/cpuset.cpus"),
        cpu_s=files.seconds(files.number(f"{accounting}/cpuacct.usage"), files.NANOSECONDS),
        cpu_user_s=files.ticks_s(used.get("user")),
        cpu_system_s=files.ticks_s(used.get("system")),
        throttled_s=files.seconds(
            files.keyed(f"{folders.get('cpu', accounting)}/cpu.stat").get("throttled_time"), files.NANOSECONDS
        ),
        memory_bytes=files.number(f"{memory}/memory.usage_in_bytes"),
        memory_peak_bytes=files.number(f"{memory}/memory.max_usage_in_bytes"),
        memory_limit_bytes=files.limit(f"{memory}/memory.limit_in_bytes"),
        anonymous_bytes=status.get("total_rss", status.get("rss")),
        cache_bytes=status.get("total_cache", status.get("cache")),
        # Version 1 counts a kill in the group of the process alone, not in those above it.
        oom_kills=files.total(files.keyed(f"{at}/memory.oom_control").get("oom_kill") for at in files.walk(memory)),
        limit_hits=files.number(f"{memory}/memory.failcnt"),
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
        for name, step in files.folders(folders[controller]):
            if found := _STEP.fullmatch(name):
                tasks = files.folders(step)
                inner = [group for _, task in tasks for group in files.walk(task)] if tasks else [step]
                by_step[found[1]] = frozenset().union(*(files.numbers(f"{at}/cgroup.procs") for at in inner))
        seen = tuple(by_step) or seen
        pids = frozenset().union(*by_step.values())
        if pids:
            return pids, by_step.get("extern", frozenset()), seen
    return frozenset(), frozenset(), seen
