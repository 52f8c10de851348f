"""Predicts the step time and the memory of another plan with the cost model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk.costmodel.predict import predict
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel, step_model
from opsk.planning.remap.situation import Situation
from opsk.workload.plan import Plan

LIKELY = 0.9
"""Minimum probability to fit for a plan to be selected."""


def build_step_model(situation: Situation, plan: Plan) -> StepModel:
    """Return the step model of a plan; its communication alone where the cluster is not known."""
    if situation.cluster is None:
        return COMMUNICATION_ONLY
    return step_model(situation.model, plan, situation.cluster, situation.efficiency)


def explain_out_of_memory(situation: Situation, plan: Plan) -> str | None:
    """Return why a plan would run out of memory; ``None`` where it fits, may fit, or is unknown.

    If the running job does not fit according to the cost model, the model is wrong for it: then no plan is refused
    for memory.
    """
    if situation.cluster is None:
        return None
    table = PlanTable.of([situation.plan, plan])
    memory = predict(situation.model, table, situation.cluster, situation.efficiency).memory
    today, then = np.broadcast_to(memory.fit_probability, 2).tolist()
    if compute_verdict(then) is not Verdict.OOM or compute_verdict(today) is Verdict.OOM:
        return None
    needed = float(np.broadcast_to(memory.needed_bytes.expected, 2)[1])
    capacity = float(np.broadcast_to(memory.capacity_bytes, 2)[1])
    return f"it would run out of memory: {needed / 1e9:.3g} GB of {capacity / 1e9:.3g} GB a GPU"


def find_fastest(situation: Situation, plans: Sequence[Plan]) -> tuple[Plan, float] | None:
    """Return the plan with the most sequences a second that is likely to fit, and its step [s]; ``None`` for none."""
    if situation.cluster is None or not plans:
        return None
    prediction = predict(situation.model, PlanTable.of(plans), situation.cluster, situation.efficiency)
    step_s: FloatColumn = np.broadcast_to(prediction.time.step_s.expected, len(plans))
    chance = np.broadcast_to(prediction.memory.fit_probability, len(plans))
    speed = np.array([plan.global_batch for plan in plans]) / step_s
    speed = np.where(chance >= LIKELY, speed, 0.0)
    best = int(speed.argmax())
    return (plans[best], float(step_s[best])) if speed[best] > 0 else None
