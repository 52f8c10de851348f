"""Exports the jobs of a node: what they were allocated, what they use, and what they leave idle.

Series are keyed by ``job``, as Slurm shows it; its owner and other facts are in ``opsk_job_info``, and ``opsk_job_gpu``
joins it to the series of its GPUs. A job that has ended keeps its counters for some scrapes, so that ``increase()``
includes its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client import Metric

from opsk.errors import TelemetryError
from opsk.metrics import names as metric_names
from opsk.telemetry.gpu.samples import GpuReading, GpuSource
from opsk.telemetry.host.cgroups import CgroupReader, JobCgroup
from opsk.telemetry.jobs.job_map import JobMap, JobMapper, JobRun
from opsk.text import escape
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.jobs.accounts import JobAccount, JobAccounts, find_state_file, load_state, read_boot_id, save_state

MAX_JOBS = 256
"""More jobs on one node would be a fault or an attack on the time series database; those beyond are counted."""
_LINGER_S, _LINGER_LOOKS = 120.0, 3
_SAVE_EVERY_S = 10.0
_COUNTERS = (
    ("user", "opsk_job_cpu_seconds_total", "CPU time of the job's processes, by its control group.", {"mode": "user"}),
    (
        "system",
        "opsk_job_cpu_seconds_total",
        "CPU time of the job's processes, by its control group.",
        {"mode": "system"},
    ),
    ("throttled", "opsk_job_cpu_throttled_seconds_total", "Time for which a CPU quota throttled the job.", {}),
    ("oom_kills", "opsk_job_oom_kills_total", "Processes of the job that the kernel killed for lack of memory.", {}),
    ("limit_hits", "opsk_job_memory_limit_hits_total", "Times that the job met its memory limit.", {}),
    ("read", "opsk_job_read_bytes_total", "Bytes read from block devices; network file systems are not in it.", {}),
    ("written", "opsk_job_written_bytes_total", "Bytes written to block devices; network file systems are not.", {}),
    *(
        (
            f"stalled_{resource}",
            "opsk_job_stalled_seconds_total",
            "Time in which some task of the job waited for CPU, memory or I/O (the kernel's pressure counters).",
            {"resource": resource},
        )
        for resource in ("cpu", "memory", "io")
    ),
)


class JobsCollector:
    """Jobs of the node.

    Parameters
    ----------
    mapper
        Maps jobs to GPUs.
    gpus
        The source of the GPUs; ``None`` on nodes without.
    processors
        Returns the energy of all processors so far [J]; ``None`` where it cannot be read.
    state
        File in which counters outlive a restart; ``None`` for none.
    boot
        Name of this boot: state of another is not used.
    clock, wall
        Monotonic seconds, and seconds since 1970.
    """

    name = "jobs"

    def __init__(
        self,
        mapper: JobMapper,
        gpus: GpuSource | None = None,
        processors: Callable[[], float | None] | None = None,
        state: Path | None = None,
        boot: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._mapper = mapper
        self._gpus = gpus
        self._processors = processors
        self._state = state
        self._boot = boot
        self._clock = clock
        self._wall = wall
        self._accounts = JobAccounts()
        self._saved_s: float | None = None
        self._state_ok: bool | None = None
        self._restore()

    def collect(self) -> Iterable[Metric]:
        """Read all jobs once.

        Raises
        ------
        NoDataError
            The node has neither the prolog's folder nor control groups of jobs, and never had a job.
        """
        reading = self._read_gpus()
        jobs = self._mapper.read(reading)
        if not jobs.present and not self._accounts.accounts:
            raise NoDataError("no folder of opsk-prolog, and no control groups of Slurm's jobs")
        now_s = self._clock()
        shown = tuple(sorted(jobs.jobs, key=lambda run: run.start_unix_s or 0.0, reverse=True)[:MAX_JOBS])
        self._accounts.update(
            shown,
            reading,
            now_s=now_s,
            now_unix_s=self._wall(),
            processors_j=self._processors() if self._processors else None,
            cpus=os.cpu_count() or 0,
        )
        self._accounts.drop_ended(now_s=now_s, after_s=_LINGER_S, after_looks=_LINGER_LOOKS)
        # Those that ended have series too: short jobs in a row may not make more of them than jobs that stay.
        without = self._accounts.drop_beyond(MAX_JOBS) | {run.run for run in jobs.jobs}
        self._save(now_s)
        families = Families()
        self._add_node(families, jobs, len(without - {run.run for run in shown}))
        for account in self._accounts.accounts.values():
            _add_job(families, account)
        return families.all()

    def _read_gpus(self) -> GpuReading | None:
        """Return the GPUs; ``None`` when they cannot be read, which the collector of GPUs reports."""
        try:
            return self._gpus.gpus() if self._gpus else None
        except TelemetryError:
            return None

    def _add_node(self, families: Families, jobs: JobMap, omitted: int) -> None:
        """Add the metrics of the node as a whole."""
        families.gauge("opsk_jobs", "Jobs that are on this node now.", len(jobs.jobs))
        families.gauge(
            "opsk_jobs_omitted", "Jobs without series, because a node has series for so many only.",
            omitted,
        )  # fmt: skip
        for kind, count in (
            ("stale", jobs.stale_files),
            ("torn", jobs.torn_files),
            ("unreadable", jobs.unreadable_files),
        ):
            families.gauge(
                metric_names.JOB_BAD_FILES,
                "Files of the prolog that are not used: stale (the job is gone, its epilog did not run), torn (the "
                "prolog was killed), unreadable.",
                count,
                kind=kind,
            )
        families.gauge(
            "opsk_job_state_writable",
            "1 when the counters of running jobs would outlive a restart of the exporter, 0 when they cannot be saved.",
            None if self._state_ok is None else float(self._state_ok),
        )
        for uuid, processes in jobs.strangers.items():
            families.gauge(
                "opsk_job_stranger_processes",
                "Processes on the GPU that belong to no job of this node; absent where jobs have no control groups.",
                processes,
                gpu=uuid,
            )

    def _restore(self) -> None:
        """Restore the state of an earlier exporter."""
        document = load_state(self._state, self._boot) if self._state else None
        if document is None:
            return
        try:
            self._accounts.restore(document["accounts"], self._clock())
            self._mapper.restore_resolved(
                {str(run): tuple(map(str, uuids)) for run, uuids in document["settled"].items()}
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            self._accounts = JobAccounts()

    def _save(self, now_s: float) -> None:
        """Save the counters now and then."""
        if self._state is None or (self._saved_s is not None and now_s - self._saved_s < _SAVE_EVERY_S):
            return
        self._saved_s = now_s
        settled = {run: list(uuids) for run, uuids in self._mapper.export_resolved().items()}
        self._state_ok = save_state(self._state, self._boot, self._accounts.export(), settled)


def _add_job(families: Families, account: JobAccount) -> None:
    """Add one job: all of it while it is there, its counters after it has ended."""
    run, job = account.run, account.job
    if run is None:
        return
    _add_info(families, run)
    if account.ended_looks == 0:
        _add_now(families, run)
    for name, metric, help_text, labels in _COUNTERS:
        families.counter(metric, help_text, account.grown.get(name), job=job, **labels)
    families.counter(
        "opsk_job_energy_joules_total",
        "Energy of the job: its GPUs' as they count it, and of the processors' by the CPUs that it has; since the "
        "exporter first saw it.",
        account.energy_j,
        job=job,
    )
    for uuid, gpu in account.gpus.items():
        labels = {"job": job, "gpu": uuid}
        families.counter(
            "opsk_job_gpu_allocated_seconds_total",
            "Time since the GPU was given to the job.",
            gpu.allocated_s,
            **labels,
        )
        families.counter(
            "opsk_job_gpu_busy_seconds_total",
            "Time that the GPU was busy while the job had it: utilisation, summed over the time between scrapes.",
            gpu.busy_s,
            **labels,
        )
        families.counter(
            "opsk_job_gpu_energy_joules_total",
            "Energy that the GPU counted while the job had it, since the exporter first saw it; jobs that share a GPU "
            "have equal parts, MIG instances by multiprocessors.",
            gpu.energy_j,
            **labels,
        )
        for kind, seconds in gpu.idle_s.items():
            families.counter(
                "opsk_job_gpu_idle_seconds_total",
                "Time that the job had the GPU and no process was on it (no_process), or processes were and did "
                "nothing (no_work).",
                seconds,
                **labels,
                reason=kind,
            )


def _add_info(families: Families, run: JobRun) -> None:
    """Add the identity of the job."""
    facts: Mapping[str, str | None] = {
        "sluid": run.sluid,
        "job_id": run.job_id,
        "user": run.user or (None if run.uid is None else str(run.uid)),
        "account": run.account,
        "partition": run.partition,
        "qos": run.qos,
        "name": run.name,
        "gpus_from": run.gpus_from,
    }
    families.info(
        metric_names.JOB_INFO,
        "Job on this node: SLUID of this run, Slurm's number, user, account, partition, QOS, name, and the source of "
        "its GPUs (prolog, environment of a process, processes on GPUs); empty where it is unknown.",
        job=run.job,
        **{name: escape(value) if value else None for name, value in facts.items()},
    )


def _add_now(families: Families, run: JobRun) -> None:
    """Add the current allocation and use of a job."""
    job, group = run.job, run.cgroup
    families.gauge(
        "opsk_job_start_time_seconds", "When the job began on this node, in seconds since 1970.", run.start_unix_s,
        job=job,
    )  # fmt: skip
    families.gauge(
        "opsk_job_gpus", "GPUs of this node that Slurm allocated to the job; absent when unknown.",
        run.gpus_allocated, job=job,
    )  # fmt: skip
    for gpu in run.gpus:
        if gpu.allocated:
            families.gauge(
                metric_names.JOB_GPU, "1 for a GPU, or MIG instance, that the job has.", 1.0, job=job, gpu=gpu.uuid
            )
        families.gauge(
            "opsk_job_gpu_processes",
            "Processes of the job on a GPU that it has, 0 too, or that it uses without having it.",
            gpu.processes,
            job=job,
            gpu=gpu.uuid,
        )
    if group is not None:
        _add_group(families, job, group)


def _add_group(families: Families, job: str, group: JobCgroup) -> None:
    """Add the current values of a job's control group."""
    for what, help_text, value in (
        ("processes", "Processes of the job.", group.processes),
        ("threads", "Threads of the job, with those of slurmstepd.", group.threads),
        ("cpus", "CPUs that the job may run on.", group.cpus),
        ("memory_bytes", "Memory that counts against the job's limit, file caches too.", group.memory_bytes),
        ("memory_peak_bytes", "Highest memory of the job so far, file caches too.", group.memory_peak_bytes),
        ("memory_limit_bytes", "Memory limit of the job; absent without one.", group.memory_limit_bytes),
        ("memory_anonymous_bytes", "Memory of the job that is no cache of files.", group.anonymous_bytes),
        ("memory_cache_bytes", "Cached files that count against the job's limit.", group.cache_bytes),
    ):
        families.gauge(f"opsk_job_{what}", help_text, value, job=job)


def make(
    *,
    cgroups: Path = Path("/sys/fs/cgroup"),
    procfs: Path = Path("/proc"),
    folder: Path = Path("/run/opsk-jobs"),
    gres_conf: Path | None = None,
    gpus: GpuSource | None = None,
    processors: Callable[[], float | None] | None = None,
    state: Path | None = None,
) -> JobsCollector:
    """Return the collector of a node; ``state`` is by default in the exporter's runtime folder of systemd."""
    mapper = JobMapper(CgroupReader(cgroups), folder=folder, procfs=procfs, gres_conf=gres_conf)
    return JobsCollector(
        mapper,
        gpus,
        processors,
        state=state or find_state_file(),
        boot=read_boot_id(procfs),
    )
