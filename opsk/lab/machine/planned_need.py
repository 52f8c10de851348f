"""Predicts what a job asks of its GPUs: memory of each pipeline stage, power, and time of a step.

The record that the submit hook left in Slurm gives the memory of the fullest GPU and the time of a step; the model adds
the other stages and the power, for the plan in the job's script. So one prediction drives all that is observed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opsk.config import load_site
from opsk.costmodel.predict import predict_one
from opsk.errors import OpskError
from opsk.hardware.catalog import parse_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.lab.machine.gpu_load import GpuLoad
from opsk.slurm.adapter import slurm_client
from opsk.slurm.commands.job_script import check_job
from opsk.telemetry.progress.follow import Progress
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
