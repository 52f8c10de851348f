"""Predicts once what each job of a lab asks of its GPUs, and slows it down where its log shows a lower pace.

What the record of a job states holds at once. The rest needs Slurm, the job's script and the cost model, which takes
seconds: a thread asks, one job at a time, while the devices advance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.job_key import JobKey
from opsk.lab.machine.gpu_load import load_file, write_load
from opsk.lab.machine.machine import MachineFolder
from opsk.lab.machine.planned_need import PlannedNeed, compute_load, compute_pace, find_planned_need, read_recorded_need
from opsk.lab.machine.work import NodeJob, Work
from opsk.telemetry.jobs.job_files import resolve_log_paths
from opsk.telemetry.progress.follow import LogWatch
from opsk.workload.advice_record import AdviceRecord

Predict = Callable[[str, AdviceRecord], PlannedNeed | None]
_MAX_PREDICTED = 256
"""Number of records whose need is cached: jobs are often submitted again."""
_PACE_STEP = 0.02
"""A pace is written with this resolution: noise of single steps is none of the load's."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One job: its record, its need as far as known, its log, and whether the model was requested."""

    job_id: str
    record: AdviceRecord
    need: PlannedNeed
    watch: LogWatch
    is_requested: bool = False
    pace: float = 1.0


def run_in_background(task: Callable[[], None]) -> threading.Thread:
    """Run a task in a daemon thread."""
    thread = threading.Thread(target=task, name="prediction", daemon=True)
    thread.start()
    return thread


@dataclass(slots=True, kw_only=True)
class JobLoads:
    """Stores what each job needs, and writes its load on each node.

    Parameters
    ----------
    predict
        Queries Slurm and the cost model about a job; ``None`` where it has no plan that can be read.
    """

    predict: Predict = find_planned_need
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _predicted: dict[str, PlannedNeed] = field(default_factory=dict)
    _written: set[Path] = field(default_factory=set)
    _predicting: threading.Thread | None = None

    def write_loads(
        self, folders: Iterable[MachineFolder], work: Mapping[str, Work], now_unix_s: float
    ) -> Mapping[str, Work]:
        """Write the loads of all jobs that have changed; return the work with them."""
        folders = tuple(folders)
        self._remove_stale(folders, work)
        for gone in self._jobs.keys() - {job_id for each in work.values() for job_id in each.jobs}:
            self._jobs.pop(gone).watch.close()
        for folder in folders:
            for job in work[folder.name].jobs.values():
                self._register(folder, job)
        for known in self._jobs.values():
            pace = compute_pace(known.watch.look(), known.need.step_s, now_unix_s)
            known.pace = round(round(pace / _PACE_STEP) * _PACE_STEP, 6)
        loaded = {folder.name: self._apply_loads(folder, work[folder.name]) for folder in folders}
        self._predict_next()
        return loaded

    def _remove_stale(self, folders: Iterable[MachineFolder], work: Mapping[str, Work]) -> None:
        """Remove loads of jobs that have left a node: an epilog does not see files written while it runs."""
        running = {
            load_file(folder.jobs, job.file.key)
            for folder in folders
            for job in work[folder.name].jobs.values()
            if job.file is not None
        }
        for path in self._written - running:
            path.unlink(missing_ok=True)
        self._written &= running

    def _register(self, folder: MachineFolder, job: NodeJob) -> None:
        """Add a job that is new and has a prediction."""
        if job.file is None or job.file.job_id in self._jobs:
            return
        record = _read_record(folder, job.file.key)
        need = None if record is None else read_recorded_need(record)
        if record is None or need is None:
            return
        watch = LogWatch(resolve_log_paths(job.file, job.file.job_id), job.file.uid)
        self._jobs[job.file.job_id] = _Job(job_id=job.file.job_id, record=record, need=need, watch=watch)

    def _predict_next(self) -> None:
        """Start a thread that predicts the next job of which only the record is known."""
        if self._predicting is not None and self._predicting.is_alive():
            return
        job = next((job for job in self._jobs.values() if not job.is_requested), None)
        if job is not None:
            job.is_requested = True
            self._predicting = run_in_background(lambda: self._predict_job(job))

    def _predict_job(self, job: _Job) -> None:
        """Replace the need in the record of a job by the model's prediction."""
        line = job.record.render()
        need = self._predicted.get(line) or self.predict(job.job_id, job.record)
        if need is None:
            return
        job.need = need
        if not need.nodes and len(self._predicted) < _MAX_PREDICTED:
            self._predicted[line] = need

    def _apply_loads(self, folder: MachineFolder, work: Work) -> Work:
        """Return the work of a node with the loads of now, which are written where they are others than before."""
        jobs = {}
        for job_id, job in work.jobs.items():
            known = self._jobs.get(job_id)
            load = (
                job.load if known is None else compute_load(known.need, job_id, folder.name, job.gpus, pace=known.pace)
            )
            if job.file is not None and load is not None and load != job.load:
                write_load(folder.jobs, job.file.key, load)
                self._written.add(load_file(folder.jobs, job.file.key))
            jobs[job_id] = replace(job, load=load)
        return Work(jobs=jobs)


def _read_record(folder: MachineFolder, job: JobKey) -> AdviceRecord | None:
    """Return the prediction of a job when it was submitted, which the lab's prolog put next to the job's file."""
    try:
        return AdviceRecord.parse(
            (folder.jobs / f"{job.file_name}.advice").read_text(encoding="utf-8", errors="replace")
        )
    except OSError:
        return None
