"""Predict what a job asks of its GPUs: memory of each pipeline stage, power, and time of a step.

The record that the submit hook left in Slurm says how much the fullest GPU needs and how long a step takes; the model
adds the other stages and the power, for the plan in the job's script. So one prediction drives all that is observed.
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
from opsk.slurm.choice import slurm_client
from opsk.slurm.commands.job_script import checked_job
from opsk.telemetry.progress.watch import Progress
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.checked import completion_of
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

NOISE = 0.015
"""How far a GPU's memory and power lie from the prediction at most [ratio]: far within its range."""
STILL_STEPS, STILL_S = 5.0, 10.0
"""A job stands still when its log has been silent for so many of its steps, and for so long [s]."""

_PATIENCE_S = 120.0
"""Nobody waits for it, and the machine of a lab is often busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNeed:
    """What a plan asks of its GPUs.

    Parameters
    ----------
    stage_memory_bytes
        Device memory of a GPU of each pipeline stage.
    capacity_bytes
        What a GPU can hold; ``None`` where it is not known.
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


def need_of_record(record: AdviceRecord) -> PlannedNeed | None:
    """Return what a job's record alone says, that every GPU needs what the fullest does; ``None`` without a number."""
    if not record.mem_bytes:
        return None
    return PlannedNeed(
        stage_memory_bytes=(record.mem_bytes,), capacity_bytes=record.capacity_bytes, step_s=record.step_s
    )


def need_of_plan(model: ModelShape, plan: Plan, cluster: ClusterSpec, record: AdviceRecord) -> PlannedNeed:
    """Return what the cost model says of a plan, the fullest stage with the memory that stands in the record.

    Stages between the second and the last count as the second: the model knows first, second and last.
    """
    found = predict_one(model, plan, cluster)
    first, second, last = (float(each) for each in np.ravel(found.memory.by_stage.device))
    stages = (first, *(second,) * (plan.pp - 2), last)[: plan.pp] if plan.pp > 1 else (max(first, last),)
    scale = (record.mem_bytes or max(stages)) / max(stages)
    return PlannedNeed(
        stage_memory_bytes=tuple(scale * each for each in stages),
        capacity_bytes=float(np.ravel(found.memory.capacity_bytes)[0]),
        stage_gpus=max(plan.gpus // plan.pp, 1),
        step_s=record.step_s,
        power_w=float(found.energy.gpu_w),
    )


def planned_need(job_id: str, record: AdviceRecord) -> PlannedNeed | None:
    """Ask Slurm for a job's script and predict its plan; ``None`` where no plan can be read."""
    try:
        job = slurm_client().job(job_id)
        document = checked_job(job, deadline_s=_PATIENCE_S)
        read = None if document is None else completion_of(document)
        if read is None or read.model is None or read.plan is None:
            return None
        found = need_of_plan(read.model, read.plan, _cluster(), record)
    except (OpskError, OSError, ValueError):
        return None
    return replace(found, nodes=job.nodes) if len(found.stage_memory_bytes) > 1 else found


def _cluster() -> ClusterSpec:
    """Return the lab's cluster, as its site configuration names it."""
    named = Path(load_site().cluster or "")
    return parse_cluster(named.read_text(encoding="utf-8"), origin=str(named))


def load_on(need: PlannedNeed, job_id: str, node: str, gpus: Sequence[int], *, pace: float = 1.0) -> GpuLoad:
    """Return what a job asks of its GPUs on a node: the plan's need, with noise that is always the same for a GPU.

    No GPU holds more than it has room for: one whose job needs more is full.
    """
    first = need.nodes.index(node) * len(gpus) if node in need.nodes else 0
    needed_bytes = (need.memory_bytes(first + at) * _noise(job_id, node, gpu, "memory") for at, gpu in enumerate(gpus))
    return GpuLoad(
        memory_bytes=tuple(min(each, need.capacity_bytes or each) for each in needed_bytes),
        power_w=tuple(need.power_w * _noise(job_id, node, gpu, "power") for gpu in gpus) if need.power_w else (),
        pace=pace,
    )


def _noise(*words: object) -> float:
    """Return a factor near 1 that follows from words alone."""
    return 1.0 + NOISE * random.Random("/".join(map(str, words))).uniform(-1.0, 1.0)


def pace_of(progress: Progress | None, step_s: float | None, now_unix_s: float) -> float:
    """Return the speed of a job over the predicted one [ratio, 0 to 1], by its log; 1 until the log says more."""
    if progress is None or not progress.step_s or not step_s:
        return 1.0
    silent_s = now_unix_s - (progress.at_unix_s or now_unix_s)
    if silent_s > max(STILL_STEPS * progress.step_s, STILL_S):
        return 0.0
    return min(step_s / progress.step_s, 1.0)
