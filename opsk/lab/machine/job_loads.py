"""Predicts once what each job of a lab needs of its GPUs, and slows it down where its log shows a lower pace.

The record that the submit hook left in Slurm gives the memory of the fullest GPU and the time of a step at once. The
other stages and the power need Slurm, the job's script and the cost model, which takes seconds: a thread predicts them,
one job at a time, while the devices advance. So one prediction drives all that is observed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from opsk.config import load_site
from opsk.costmodel.predict import predict_one
from opsk.errors import OpskError
from opsk.hardware.catalog import parse_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.job_key import JobKey
from opsk.lab.machine.machine import MachineFolder
from opsk.lab.machine.work import GpuLoad, NodeJob, Work, advice_file, load_file, write_load
from opsk.slurm.adapter import slurm_client
from opsk.slurm.commands.job_script import check_job
from opsk.telemetry.jobs.job_files import resolve_log_paths
from opsk.telemetry.progress.follow import LogWatch, Progress
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.completion import complete_answer
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

NOISE = 0.015
"""How far a GPU's memory and power lie from the prediction at most [ratio]: far within its range."""
STILL_STEPS, STILL_S = 5.0, 10.0
"""A job stands still when its log has been silent for this many of its steps, and for this long [s]."""

_PATIENCE_S = 120.0
"""Nothing waits for it, and the machine of a lab is often busy."""
_MAX_PREDICTED = 256
"""Number of records whose need is cached: jobs are often submitted again."""
_PACE_STEP = 0.02
"""A pace is written with this resolution: noise of single steps is none of the load's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNeed:
    """The need of a plan for GPUs.

    Parameters
    ----------
    stage_memory_bytes
        Device memory of a GPU of each pipeline stage.
    capacity_bytes
        Memory of a GPU; ``None`` where it is not known.
    stage_gpus
        GPUs of a stage.
    step_s
        Predicted time of a step; ``None`` where it is not known.
    power_w
        Mean power of a GPU; ``None`` where it is not known.
    nodes
        The job's nodes in the order of their ranks; empty where no stage differs from another.
    """

    stage_memory_bytes: tuple[float, ...]
    capacity_bytes: float | None = None
    stage_gpus: int = 1
    step_s: float | None = None
    power_w: float | None = None
    nodes: tuple[str, ...] = ()

    def memory_bytes(self, rank: int) -> float:
        """Return the memory of a rank's GPU [bytes]; stages are the outermost axis of ranks."""
        last = len(self.stage_memory_bytes) - 1
        return self.stage_memory_bytes[min(rank // self.stage_gpus, last)]


def read_recorded_need(record: AdviceRecord) -> PlannedNeed | None:
    """Return the need in a job's record: every GPU as the fullest; ``None`` without a number."""
    if not record.mem_bytes:
        return None
    return PlannedNeed(
        stage_memory_bytes=(record.mem_bytes,), capacity_bytes=record.capacity_bytes, step_s=record.step_s
    )


def predict_need(model: ModelShape, plan: Plan, cluster: ClusterSpec, record: AdviceRecord) -> PlannedNeed:
    """Return the cost model's prediction of a plan, with the fullest stage scaled to the memory in the record.

    Stages between the second and the last count as the second: the model knows first, second and last.
    """
    prediction = predict_one(model, plan, cluster)
    first, second, last = (float(stage_bytes) for stage_bytes in np.ravel(prediction.memory.by_stage.device))
    stages = (first, *(second,) * (plan.pp - 2), last)[: plan.pp] if plan.pp > 1 else (max(first, last),)
    scale = (record.mem_bytes or max(stages)) / max(stages)
    return PlannedNeed(
        stage_memory_bytes=tuple(scale * stage_bytes for stage_bytes in stages),
        capacity_bytes=float(np.ravel(prediction.memory.capacity_bytes)[0]),
        stage_gpus=max(plan.gpus // plan.pp, 1),
        step_s=record.step_s,
        power_w=float(prediction.energy.gpu_w),
    )


def find_planned_need(job_id: str, record: AdviceRecord) -> PlannedNeed | None:
    """Fetch a job's script from Slurm and predict its plan; ``None`` where no plan can be read."""
    try:
        job = slurm_client().job(job_id)
        document = check_job(job, deadline_s=_PATIENCE_S)
        completion = None if document is None else complete_answer(document)
        if completion is None or completion.model is None or completion.plan is None:
            return None
        need = predict_need(completion.model, completion.plan, _load_cluster(), record)
    except (OpskError, OSError, ValueError):
        return None
    return replace(need, nodes=job.nodes) if len(need.stage_memory_bytes) > 1 else need


def _load_cluster() -> ClusterSpec:
    """Return the lab's cluster, as its site configuration names it."""
    named = Path(load_site().cluster or "")
    return parse_cluster(named.read_text(encoding="utf-8"), origin=str(named))


def compute_load(need: PlannedNeed, job_id: str, node: str, gpus: Sequence[int], *, pace: float = 1.0) -> GpuLoad:
    """Return the load of a job on a node's GPUs: the plan's need, with noise that is constant for a GPU.

    No GPU holds more than its memory: one whose job needs more is full.
    """
    first = need.nodes.index(node) * len(gpus) if node in need.nodes else 0
    needed_bytes = (
        need.memory_bytes(first + at) * _noise_factor(job_id, node, gpu, "memory") for at, gpu in enumerate(gpus)
    )
    return GpuLoad(
        memory_bytes=tuple(min(each, need.capacity_bytes or each) for each in needed_bytes),
        power_w=tuple(need.power_w * _noise_factor(job_id, node, gpu, "power") for gpu in gpus) if need.power_w else (),
        pace=pace,
    )


def _noise_factor(*words: object) -> float:
    """Return a factor near 1 that depends on its arguments alone."""
    return 1.0 + NOISE * random.Random("/".join(map(str, words))).uniform(-1.0, 1.0)


def compute_pace(progress: Progress | None, step_s: float | None, now_unix_s: float) -> float:
    """Return the speed of a job over the predicted one [ratio, 0 to 1], by its log; 1 until the log has steps."""
    if progress is None or not progress.step_s or not step_s:
        return 1.0
    silent_s = now_unix_s - (progress.at_unix_s or now_unix_s)
    if silent_s > max(STILL_STEPS * progress.step_s, STILL_S):
        return 0.0
    return min(step_s / progress.step_s, 1.0)


Predict = Callable[[str, AdviceRecord], PlannedNeed | None]


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
        return AdviceRecord.parse(advice_file(folder.jobs, job).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
