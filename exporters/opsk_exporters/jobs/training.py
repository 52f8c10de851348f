"""Exports the training progress of the jobs of a node: last step, speed, and the prediction.

The log of a job is read on the node where its batch script runs, since Slurm writes it there. Its path is the user's
choice: only a regular file of that user is opened, never through a link in its last part, a bounded number of bytes a
scrape, and only numbers of progress lines are exported. Where the path does not follow from what Slurm passes to the
prolog, it is the file that the batch script writes to, if the exporter may look at processes of others; else
``opsk_training_logs_unknown`` counts the job.

The prediction is in ``<cluster>.<job>.advice`` in the prolog's folder, where a site puts it there: the fields of the
job's ``opsk:v1`` record (`AdviceRecord`), and ``step_s_low`` and ``step_s_high`` in addition. A file named
``<job>.advice``, as up to opsk 0.1, counts where there is no other. Elsewhere the collector of Slurm exports it, on the
node that queries slurmctld (`slurm_predictions`): no node of a job can see its record.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import Metric

from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.jobs.job_files import JobFile, resolve_log_paths
from opsk.telemetry.jobs.job_map import JobMapper, JobRun
from opsk.telemetry.jobs.job_processes import MAX_LOGS, find_batch_outputs, find_batch_steps
from opsk.telemetry.progress.follow import LogWatch, Progress
from opsk.units import KIB
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families

MAX_JOBS = 32
"""Jobs of one node whose logs are read; those that began last."""
_JOBS_EVERY_S = 15.0
_ADVICE_BYTES = 16 * KIB
_PREDICTED = re.compile(
    r"(?<!\S)step_s(?:_(low|high))?=([0-9]{1,12}(?:\.[0-9]{1,12})?(?:e[+-]?[0-9]{1,2})?)(?!\S)", re.ASCII
)
_RECORD = re.compile(r"(?<!\S)opsk:v1(?!\S)")


class TrainingCollector:
    """Progress of the jobs whose batch scripts run on this node.

    Parameters
    ----------
    mapper
        Finds the jobs of the node.
    folder
        Where the prolog writes, and a site the predictions.
    procfs
        Where procfs is mounted.
    enabled
        Whether the site has enabled the reading of logs.
    clock
        Monotonic seconds.
    """

    name = "training"

    def __init__(
        self,
        mapper: JobMapper,
        folder: Path,
        procfs: Path,
        *,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enabled = enabled
        self._mapper = mapper
        self._folder = folder
        self._procfs = procfs
        self._clock = clock
        self._watches: dict[str, LogWatch] = {}
        self._jobs: dict[str, JobRun] = {}
        self._jobs_at: float | None = None

    def collect(self) -> Iterable[Metric]:
        """Read all logs once.

        Raises
        ------
        NoDataError
            No job has its log here, or logs are not to be read.
        """
        if not self._enabled:
            raise NoDataError("training_logs is false")
        self._find_jobs()
        if not self._jobs:
            raise NoDataError("no job that the prolog knows has its batch script here; it may run on another node")
        families = Families()
        unreadable = 0
        for run, watch in self._watches.items():
            job = self._jobs[run]
            progress = watch.look()
            unreadable += watch.unreadable
            if progress is not None:
                _add_progress(families, job.job, progress)
            for bound, step_s in _find_predictions(job, self._folder).items():
                families.gauge(
                    "opsk_training_predicted_step_seconds",
                    "Time of one step that was predicted for the job: low, expected and high.",
                    step_s,
                    job=job.job,
                    bound=bound,
                )
        families.gauge("opsk_training_jobs", "Jobs on this node whose logs are read.", len(self._watches))
        families.gauge(
            "opsk_training_logs_unknown",
            "Jobs whose batch scripts run on this node and whose logs are unknown to Slurm and to their processes.",
            len(self._jobs) - len(self._watches),
        )
        families.gauge(
            "opsk_training_logs_unreadable",
            "Logs of jobs on this node that cannot be read: not there, not the user's, or no regular files.",
            unreadable,
        )
        return families.all()

    def _find_jobs(self) -> None:
        """Find the jobs with their logs on this node; seldom, since it reads their control groups."""
        now = self._clock()
        if self._jobs_at is not None and now - self._jobs_at < _JOBS_EVERY_S:
            return
        self._jobs_at = now
        runs = [run for run in self._mapper.read().jobs if run.file is not None and run.file.uid is not None]
        steps_known = all(run.cgroup is not None and run.cgroup.steps for run in runs)
        batch = {} if steps_known else find_batch_steps(self._procfs)
        here = [run for run in runs if _is_batch_node(run, batch)]
        here.sort(key=lambda run: run.start_unix_s or 0.0, reverse=True)
        self._jobs = {run.run: run for run in here[:MAX_JOBS]}
        for gone in [run for run in self._watches if run not in self._jobs]:
            self._watches.pop(gone).close()
        for key, run in self._jobs.items():
            if run.file is not None and run.file.uid is not None:
                daemons = batch.get(run.job_id or "") or batch.get(run.sluid or "") or []
                self._watch(key, run, run.file, run.file.uid, daemons)

    def _watch(self, key: str, run: JobRun, file: JobFile, owner: int, daemons: Sequence[int]) -> None:
        """Watch the logs of a job: those from Slurm, else those that its batch script writes to by now."""
        paths = resolve_log_paths(file, run.job, run.name)
        if key in self._watches and paths:
            return
        stepd = daemons[0] if len(daemons) == 1 else None
        paths = paths or find_batch_outputs(self._procfs, run.cgroup.pids if run.cgroup else (), owner, stepd)
        if paths:
            self._watches.setdefault(key, LogWatch((), owner=owner)).add(paths, MAX_LOGS)


def _is_batch_node(run: JobRun, batch: Mapping[str, Sequence[int]]) -> bool:
    """Return whether the batch script of a job runs on this node: only there is the log this node's to read."""
    if run.cgroup is not None and run.cgroup.steps:
        return "batch" in run.cgroup.steps
    return run.job_id in batch or run.sluid in batch


def _find_predictions(job: JobRun, folder: Path) -> dict[str, float]:
    """Return the predictions for a job [s]."""
    name = job.file.key.file_name if job.file is not None else str(job.job_id)
    return read_predictions(folder / f"{name}.advice") or read_predictions(folder / f"{job.job_id}.advice")


def read_predictions(path: Path) -> dict[str, float]:
    """Return the predicted step time by bound [s]; empty where there is no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return {}
        text = os.read(handle, _ADVICE_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    finally:
        os.close(handle)
    mark = _RECORD.search(text)
    if mark is None:
        return {}
    predictions: dict[str, float] = {}
    for match in _PREDICTED.finditer(text, mark.end()):
        if float(match[2]) > 0:
            predictions.setdefault(match[1] or "expected", float(match[2]))
    return predictions


def _add_progress(families: Families, job: str, progress: Progress) -> None:
    """Add the progress of one job."""
    last = progress.last
    families.info(
        "opsk_training_info", "Framework whose progress lines the log of the job has.", job=job,
        framework=progress.framework,
    )  # fmt: skip
    for name, help_text, value in (
        ("iteration", "Last step in the log of the job.", last.iteration),
        ("iterations", "Steps that the job is to train, where its log states it.", last.total_iterations),
        ("step_seconds", "Time of one step: median of the last progress lines of this start.", progress.step_s),
        ("tokens_per_second", "Tokens that the whole job trains: median of the last lines.", progress.tokens_per_s),
        (
            "tflops_per_gpu",
            "TFLOP/s of one GPU as the framework counts them: median of the last lines.",
            progress.tflops_per_gpu,
        ),
        ("loss", "Loss of the last line; NaN when it is none.", last.loss),
        (
            "last_progress_timestamp_seconds",
            "When the log had last been written when its last step was found, in seconds since 1970.",
            progress.at_unix_s,
        ),
    ):
        families.gauge(f"opsk_training_{name}", help_text, value, job=job)
    families.counter(
        "opsk_training_restarts_total",
        "Times that the training began again within the log, since the exporter first read it.",
        progress.restarts,
        job=job,
    )


def make(
    *,
    cgroups: Path = Path("/sys/fs/cgroup"),
    procfs: Path = Path("/proc"),
    folder: Path = Path("/run/opsk-jobs"),
    enabled: bool = True,
) -> TrainingCollector:
    """Return the collector of a node."""
    mapper = JobMapper(CgroupReader(cgroups), folder=folder, procfs=procfs)
    return TrainingCollector(mapper, folder, procfs, enabled=enabled)
