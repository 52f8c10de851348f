"""Predicts a job's step and the steps of plans near its own, and decides whether a run may calibrate the cost model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.case_spread import find_plan_log_sigma
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS
from opsk.diagnosis.losses.observation import Axis, GpuActivity, Observation, OtherPlan, Prediction
from opsk.diagnosis.losses.step_times import compute_sigma
from opsk.diagnosis.losses.values import Cause, Losses
from opsk.hardware.spec import ClusterSpec
from opsk.planning.alternatives import neighbours
from opsk.planning.routing.traffic import AXES
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute

MIN_STEPS = 20
MAX_SPREAD = 0.05
"""Standard deviation of a step over the median, beyond which a job is not steady [ratio]."""
_ABOUT_THE_PLAN = (Cause.UNKNOWN, Cause.WRONG_PLAN, Cause.RECOMPUTE, Cause.CHECKPOINTING)
"""Causes that leave the median step a valid measure of the job's own plan; above all a gap without explanation.

Fitting to jobs without a gap alone would prove every prediction right.
"""
ERROR_OF_A_RECORD = 1.2
"""High over expected step time where only the expected one is recorded: that of the included fit for most GPUs."""
_LESS = {Recompute.FULL: (Recompute.NONE, Recompute.SELECTIVE), Recompute.SELECTIVE: (Recompute.NONE,)}


def list_unfit_reasons(seen: Observation, losses: Losses) -> tuple[str, ...]:
    """Return why an interval is none to fit to; nothing where it is one."""
    why: list[str] = []
    count = sum(step.steps for step in seen.steps)
    if count < MIN_STEPS:
        why.append(f"{count} steps, {MIN_STEPS} are needed")
    elif losses.measured_step_s:
        spread = compute_sigma([step.seconds for step in seen.steps]) / losses.measured_step_s
        if spread > MAX_SPREAD:
            why.append(f"steps differ by {spread:.0%}, {MAX_SPREAD:.0%} at most")
    why += [
        f"{finding.cause.value.replace('_', ' ')}{' at ' if finding.where else ''}{finding.where}"
        for finding in losses.findings
        if finding.cause not in _ABOUT_THE_PLAN
    ]
    return tuple(why)


def predict_plan(model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT) -> Prediction:
    """Return the prediction of a plan, with the plans that are one or two changes away from it."""
    near = _list_other_plans(model, plan, cluster)
    table = predict(model, PlanTable.of([plan, *(other for _, other, _ in near)]), cluster, efficiency)
    time = table.time
    return Prediction(
        low_s=_read_entry(time.step_s.low, 0),
        step_s=_read_entry(time.step_s.expected, 0),
        high_s=_read_entry(time.step_s.high, 0),
        components={name: _read_entry(column, 0) for name, column in time.components.items()},
        network={
            axis: Axis(total_s=_read_entry(time.communication[axis], 0), window_s=_read_entry(time.windows[axis], 0))
            for axis in list_inter_node_axes(plan, cluster)
        },
        mfu=_read_entry(time.mfu.expected, 0),
        others=tuple(
            _build_other_plan(table, row, what, is_leaner=is_leaner)
            for row, (what, _, is_leaner) in enumerate(near, start=1)
        ),
        plan_error=math.expm1(COVERED_SIGMAS * find_plan_log_sigma(efficiency.spread)),
    )


def read_recorded_prediction(record: AdviceRecord) -> Prediction | None:
    """Return the prediction in the record of a job's ``admin_comment``; ``None`` where it has no time."""
    if not record.step_s:
        return None
    return Prediction(
        low_s=record.step_s / ERROR_OF_A_RECORD,
        step_s=record.step_s,
        high_s=record.step_s * ERROR_OF_A_RECORD,
        mfu=record.mfu,
    )


def list_inter_node_axes(plan: Plan, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the axes whose groups do not fit into one HB domain, with ranks in the usual order: tp, cp, dp, pp."""
    reach = {
        "tp": plan.tp,
        "cp": plan.tp * plan.cp,
        "ep": plan.tp * plan.cp * plan.ep,
        "dp": plan.tp * plan.cp * plan.dp,
        "pp": plan.gpus,
    }
    sizes = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "dp": plan.dp, "pp": plan.pp}
    return tuple(axis for axis in AXES if sizes.get(axis, 1) > 1 and reach.get(axis, 1) > cluster.node.hb_domain_gpus)


def assign_stages(gpus: Sequence[GpuActivity], plan: Plan) -> tuple[GpuActivity, ...]:
    """Return the GPUs with their rank and pipeline stage, where their number is the plan's.

    Ranks are taken to follow nodes by name and GPUs by index, stages to be the outermost axis: the usual order.
    """
    ordered = sorted(gpus, key=lambda gpu: (gpu.node, gpu.index))
    if len(ordered) != plan.gpus:
        return tuple(ordered)
    each = plan.gpus // plan.pp
    return tuple(replace(gpu, rank=rank, equals=rank // each) for rank, gpu in enumerate(ordered))


def _list_other_plans(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> Sequence[tuple[str, Plan, bool]]:
    """Return other plans, their changes, and whether less recomputation is the only one."""
    leaner = [
        (f"recompute {plan.recompute} → {recompute}", replace(plan, recompute=recompute, recompute_layers=0), True)
        for recompute in _LESS.get(plan.recompute, ())
    ]
    known = {each for _, each, _ in leaner}
    return [
        *leaner,
        *(
            (", ".join(change.what for change in other.changes), other.plan, False)
            for other in neighbours(model, plan, hb_domain_gpus=cluster.node.hb_domain_gpus)
            if other.plan not in known
        ),
    ]


def _build_other_plan(table: PredictionTable, row: int, what: str, *, is_leaner: bool) -> OtherPlan:
    return OtherPlan(
        what=what,
        step_s=_read_entry(table.time.step_s.expected, row),
        fit_probability=_read_entry(table.memory.fit_probability, row),
        only_recomputes_less=is_leaner,
    )


def _read_entry(column: object, row: int) -> float:
    """Return one entry of a column, or the one that holds for all plans."""
    values = np.ravel(np.asarray(column, dtype=np.float64))
    return float(values[row if values.size > 1 else 0])
