"""Maps jobs to the GPUs of this node.

There are three sources, in this order of trust:

1. The prolog's file: Slurm's own data, written by root when the GPUs were allocated.
2. The environment of a process of the job, where it can be read: Slurm's data when the process started; the user may
   have changed it since. It also has what the prolog does not get: the job's name, and its task in an array.
3. The processes with a context on a GPU: what the job uses, which may be less or more than its allocation.

A job exists if it has a control group, or else a slurmstepd; a file whose job has neither was left behind by a crash or
by an epilog that was killed. Slurm's GPU numbers are resolved once for a run of a job: a GPU that is lost later shifts
the numbers of the others, but not the job.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.telemetry.gpu import job_gpus
from opsk.telemetry.gpu.job_gpus import JobGpu, count_stranger_processes, find_job_gpus
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.host.cgroups import CgroupSource, JobCgroup, read_kernel_file
from opsk.telemetry.jobs.job_files import JobFile, JobFiles, read_job_files
from opsk.telemetry.jobs.job_processes import JobEnvironment, StepDaemons, read_environment, read_use

_GONE_AFTER_S = 60.0
"""With PrologFlags=Contain a job has step ``extern``, and so a slurmstepd, from the prolog to its end."""
_GONE_AFTER_UNCONTAINED_S = 3600.0
"""Without it a job may hold a node for long with no step there."""
_PAST_LIMIT_S = 600.0
_DENIED_FOR_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job that is on this node now; ``None`` is "unknown".

    Parameters
    ----------
    run
        Key of this run: the SLUID, or number and start; another for the same job after a requeue.
    job
        The job as Slurm shows it: ``123``, ``123_4``, ``123+1``; its SLUID where the number is unknown.
    job_id
        Slurm's number of it.
    gpus
        What it has and what it uses.
    gpus_allocated
        How many it has, those that could not be found among the node's GPUs too; ``None`` when it is unknown.
    gpus_from
        ``prolog``, ``environment`` or ``processes``: the source.
    """

    run: str
    job: str
    job_id: str | None = None
    sluid: str | None = None
    uid: int | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    start_unix_s: float | None = None
    gpus: tuple[JobGpu, ...] = ()
    gpus_allocated: int | None = None
    gpus_from: str | None = None
    cgroup: JobCgroup | None = None
    file: JobFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMap:
    """All jobs of the node at one moment.

    Parameters
    ----------
    present
        Whether the node has anything of the kind: the prolog's folder, or control groups of jobs.
    jobs
        By run, each job once.
    stale_files
        Files of jobs that are gone.
    torn_files, unreadable_files
        Files of a prolog that was killed, and those that cannot be read.
    strangers
        By GPU: processes on it that are of no job. Empty where processes cannot be assigned.
    """

    present: bool
    jobs: tuple[JobRun, ...] = ()
    stale_files: int = 0
    torn_files: int = 0
    unreadable_files: int = 0
    strangers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The control group and the file of one run, at least one of the two."""

    run: str
    cgroup: JobCgroup | None
    file: JobFile | None


class JobMapper:
    """Combines the sources at each reading, and remembers what was resolved.

    Parameters
    ----------
    cgroups
        The source of the control groups of jobs.
    folder
        Where the prolog writes.
    procfs
        Where procfs is mounted.
    gres_conf
        Slurm's gres.conf; ``None`` for the one next to the prolog's slurm.conf, else the first of
        ``places`` that can be read.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        cgroups: CgroupSource,
        folder: Path = Path("/run/opsk-jobs"),
        procfs: Path = Path("/proc"),
        gres_conf: Path | None = None,
        places: Sequence[Path] = job_gpus.PLACES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cgroups = cgroups
        self._folder = folder
        self._procfs = procfs
        self._gres_conf = gres_conf
        self._places = tuple(places)
        self._clock = clock
        self._daemons = StepDaemons(procfs)
        self._seen_alive: dict[str, float] = {}
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._environments: dict[str, JobEnvironment] = {}
        self._denied_until = 0.0
        self._contained = self._grouped = False

    def read(self, gpus: GpuReading | None = None) -> JobMap:
        """Return the jobs of the node now; ``gpus`` is the node's GPUs, where there are any."""
        now = self._clock()
        files = read_job_files(self._folder, now)
        cgroups = self._cgroups.jobs()
        self._grouped = self._grouped or bool(cgroups)
        self._contained = self._contained or any("extern" in job.steps for job in cgroups)
        pairs = _pair_sources(cgroups, files)
        alive = [pair for pair in pairs if self._is_alive(pair, now)]
        reading = gpus or GpuReading(read_at_s=0.0)
        runs = _deduplicate(self._build_run(pair, reading, now) for pair in alive)
        self._forget({pair.run for pair in pairs})
        return JobMap(
            present=files.present or bool(cgroups),
            jobs=runs,
            stale_files=len(pairs) - len(alive),
            torn_files=files.torn,
            unreadable_files=files.unreadable,
            strangers=count_stranger_processes([run.cgroup for run in runs], reading),
        )

    def export_resolved(self) -> Mapping[str, tuple[str, ...]]:
        """Return the resolved GPUs by run, for a later process to start with."""
        return dict(self._resolved)

    def restore_resolved(self, known: Mapping[str, tuple[str, ...]]) -> None:
        """Restore the GPUs that an earlier process had resolved."""
        self._resolved = {**known, **self._resolved}

    def _is_alive(self, pair: _Pair, now: float) -> bool:
        """Return whether the job of a file still runs; an existing control group means that it does."""
        if pair.cgroup is not None:
            self._seen_alive[pair.run] = now
            return True
        file = pair.file
        if file is None or file.written_unix_s < self._boot_unix_s():
            return False
        since = now - max(file.written_unix_s, self._seen_alive.get(pair.run, 0.0))
        if since < _GONE_AFTER_S:
            return True
        daemons = self._daemons.jobs()
        if daemons is not None and (file.job_id in daemons or file.sluid in daemons):
            self._seen_alive[pair.run] = now
            return True
        if file.end_unix_s is not None and now > file.end_unix_s + _PAST_LIMIT_S:
            return False
        if daemons is None and not self._grouped:
            # Neither control groups nor processes can be seen: nothing contradicts the file.
            return True
        return since < (_GONE_AFTER_S if self._contained else _GONE_AFTER_UNCONTAINED_S)

    def _boot_unix_s(self) -> float:
        """Return when the node booted; 0 when it is unknown."""
        for line in (read_kernel_file(self._procfs / "stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "btime" and value.strip().isdecimal():
                return float(value)
        return 0.0

    def _build_run(self, pair: _Pair, reading: GpuReading, now: float) -> JobRun:
        """Combine what is known of one run."""
        cgroup, file = self._complete(pair.cgroup), pair.file
        environment = self._find_environment(pair, now) or JobEnvironment()
        job_id = (cgroup and cgroup.job_id) or (file and file.job_id) or environment.job_id
        sluid = (cgroup and cgroup.sluid) or (file and file.sluid) or environment.sluid
        uuids, count, source = self._resolve_allocated(pair, environment, reading)
        gpus = find_job_gpus(uuids, source, cgroup, reading)
        return JobRun(
            run=pair.run,
            job=_format_job(job_id, file, environment) or sluid or pair.run,
            job_id=job_id,
            sluid=sluid,
            uid=_first(cgroup.uid if cgroup else None, file.uid if file else None),
            user=(file and file.user) or environment.user,
            account=(file and file.account) or environment.account,
            partition=(file and file.partition) or environment.partition,
            qos=(file and file.qos) or environment.qos,
            name=(file and file.name) or environment.name,
            start_unix_s=(file.start_unix_s or file.written_unix_s) if file else None,
            gpus=gpus,
            gpus_allocated=count,
            gpus_from=source or ("processes" if gpus else None),
            cgroup=cgroup,
            file=file,
        )

    def _complete(self, cgroup: JobCgroup | None) -> JobCgroup | None:
        """Fill in what the control groups do not count from the processes: not every site has every controller.

        Time of a process that ended without anybody waiting for it is lost: this is less than a control group counts.
        """
        if cgroup is None or (cgroup.cpu_user_s is not None and cgroup.threads is not None):
            return cgroup
        use = read_use(self._procfs, cgroup.pids)
        if use is None:
            return cgroup
        threads = use.threads if cgroup.threads is None else cgroup.threads
        if cgroup.cpu_user_s is not None:
            return replace(cgroup, threads=threads)
        return replace(cgroup, threads=threads, cpu_user_s=use.cpu_user_s, cpu_system_s=use.cpu_system_s)

    def _find_environment(self, pair: _Pair, now: float) -> JobEnvironment | None:
        """Return the environment of the job, read once; one that contradicts Slurm is ignored."""
        known = self._environments.get(pair.run)
        if known is not None or pair.cgroup is None or now < self._denied_until:
            return known
        try:
            environment = read_environment(self._procfs, pair.cgroup.pids - pair.cgroup.extern_pids)
        except PermissionError:
            self._denied_until = now + _DENIED_FOR_S
            return None
        if environment is None:
            return None
        file_id = pair.file.job_id if pair.file else None
        if environment.job_id != (pair.cgroup.job_id or file_id or environment.job_id):
            return None
        if environment.sluid != (pair.cgroup.sluid or environment.sluid):
            return None
        self._environments[pair.run] = environment
        return environment

    def _resolve_allocated(
        self, pair: _Pair, environment: JobEnvironment, reading: GpuReading
    ) -> tuple[tuple[str, ...], int | None, str | None]:
        """Return the UUIDs of a run's GPUs as far as they are found, how many it has, and the source."""
        file = pair.file
        devices: tuple[str, ...] = file.devices if file else ()
        numbers, source = (file.gpus if file else ()), "prolog" if file else None
        if environment.gpus and not (devices or numbers):
            numbers, source = environment.gpus, "environment"
        if source is None:
            return (), None, None
        count = len(numbers) or len(devices)
        if pair.run in self._resolved:
            return self._resolved[pair.run], count, source
        order = job_gpus.list_uuids_in_slurm_order(self._read_conf(pair.file), reading)
        uuids = job_gpus.resolve_mig_names(job_gpus.resolve(devices, numbers, order), reading)
        resolved = tuple(uuid for uuid in uuids if uuid is not None)
        if len(resolved) == count and (reading.gpus or reading.lost):
            self._resolved[pair.run] = resolved
        return resolved, count, source

    def _read_conf(self, file: JobFile | None) -> job_gpus.GresConf | None:
        """Read gres.conf; ``None`` when there is none to be read."""
        next_to_conf = (Path(file.conf).parent / "gres.conf",) if file and file.conf else ()
        places = (self._gres_conf,) if self._gres_conf else (*next_to_conf, *self._places)
        text = next((text for place in places if (text := read_kernel_file(place)) is not None), None)
        if text is None:
            return None
        mig_minors = read_kernel_file(self._procfs / "driver" / "nvidia-caps" / "mig-minors") or ""
        return job_gpus.parse_gres_conf(text, file.node if file else None, mig_minors)

    def _forget(self, runs: set[str]) -> None:
        """Drop what was remembered of runs that are gone."""
        for cache in (self._seen_alive, self._resolved, self._environments):
            for run in [run for run in cache if run not in runs]:
                del cache[run]


def _pair_sources(cgroups: Iterable[JobCgroup], files: JobFiles) -> list[_Pair]:
    """Pair control groups and files: by SLUID, else by the job's number with its newest file."""
    by_sluid = {file.sluid: file for file in files.files if file.sluid}
    by_job: dict[str, JobFile] = {}
    for file in sorted(files.files, key=lambda file: file.age_rank):
        by_job[file.job_id] = file
    pairs = []
    used_runs = set()
    for cgroup in cgroups:
        file_of_group = by_sluid.get(cgroup.sluid) if cgroup.sluid else by_job.get(cgroup.job_id or "")
        used_runs.add(file_of_group.run if file_of_group else None)
        pairs.append(
            _Pair(
                run=file_of_group.run if file_of_group else cgroup.sluid or cgroup.name,
                cgroup=cgroup,
                file=file_of_group,
            )
        )
    return pairs + [_Pair(run=file.run, cgroup=None, file=file) for file in files.files if file.run not in used_runs]


def _format_job(job_id: str | None, file: JobFile | None, environment: JobEnvironment) -> str | None:
    """Return a job as Slurm shows it; components of a heterogeneous job are numbered in a row."""
    if environment.array_job and environment.array_task:
        return f"{environment.array_job}_{environment.array_task}"
    if job_id and file and file.het_job and int(job_id) >= int(file.het_job):
        return f"{file.het_job}+{int(job_id) - int(file.het_job)}"
    return job_id


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _deduplicate(runs: Iterable[JobRun]) -> tuple[JobRun, ...]:
    """Keep one run of each job: the one with a control group, and of those the newest.

    Two jobs of one name are not the same: a process can claim to be of any array. Both have their number then; where
    they have that in common, for they are of two clusters, they go by their runs.
    """
    chosen = {(_cluster(run), run.job_id or run.job): run for run in sorted(runs, key=_rank)}
    names = Counter(run.job for run in chosen.values())
    numbers = Counter(run.job_id for run in chosen.values())

    def name(run: JobRun) -> str:
        if names[run.job] == 1:
            return run.job
        return run.job_id if run.job_id and numbers[run.job_id] == 1 else run.run

    named = [replace(run, job=name(run)) for run in chosen.values()]
    return tuple(sorted({run.job: run for run in named}.values(), key=lambda run: run.run))


def _cluster(run: JobRun) -> str:
    """Return the cluster of a run; empty where only its control group is known, which does not have it."""
    return (run.file.cluster or "") if run.file is not None else ""


def _rank(run: JobRun) -> tuple[bool, tuple[float, int, float, str], str]:
    """Sort key of the runs of one job: the one that is the job comes last, in whatever order they were found."""
    age = run.file.age_rank if run.file else (0.0, 0, 0.0, run.sluid or "")
    return run.cgroup is not None, age, run.run
