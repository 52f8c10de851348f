"""Proposes to change nothing: to run on what is left, or to wait for the repair."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsk.planning.placement.rank_placement import Verdicts
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import Proposal, copy_current_slots, judge_slots, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.values import CostPart, OptionKind, Refusal, Terms, Way, downtime, losses, total


def _judge_degraded(situation: Situation, impact: FailureImpact) -> Verdicts | None:
    """Return how the job runs on the HCAs that are left; ``None`` where a GPU is gone, or no path is left."""
    if impact.find_affected(situation).size:
        return None
    node, gpu = copy_current_slots(situation)
    verdict = judge_slots(situation, impact, node, gpu)
    return verdict if np.isfinite(verdict.step_s[0]) else None


def wait(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the degraded job, where it can run, and the wait for the repair, where it cannot."""
    node, gpu = copy_current_slots(situation)
    verdict = _judge_degraded(situation, impact)
    reason = stays_impossible(situation, impact, is_running=terms.is_running)
    if verdict is not None and not reason:
        step_s = float(verdict.step_s[0])
        loss = 1.0 - float(situation.verdict.step_s[0]) / step_s if step_s else 0.0
        yield Proposal(
            kind=OptionKind.WAIT,
            title="continue as it is, on the remaining HCAs",
            way=Way.RELAUNCH,
            plan=situation.plan,
            node=node,
            gpu=gpu,
            step_s=step_s,
            verdict=verdict,
            why=("no GPU is gone: ranks that lost their HCA use another one of their node",),
            lost=lambda when: _compute_losses_until_repair(when, loss),
        )
        return
    if verdict is not None and reason:
        yield Refusal(kind=OptionKind.WAIT, why=f"going on degraded: {reason}")
    yield Proposal(
        kind=OptionKind.WAIT,
        title="wait for the repair, then continue as before",
        way=Way.HOLD,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(situation.verdict.step_s[0]),
        verdict=situation.verdict,
        why=("the job needs every GPU that it had; its other nodes are free for other jobs meanwhile",),
    )


def _compute_losses_until_repair(terms: Terms, loss: float) -> tuple[CostPart, ...]:
    """Return the smaller loss: degraded for the whole horizon, or until a restart after the repair."""
    down = downtime(terms, Way.RELAUNCH)
    whole = losses(terms, down, loss)
    again = total(down)
    slow = max(min(terms.repair_s, terms.horizon_s) - again, 0.0) * loss
    if terms.repair_s >= terms.horizon_s or again + slow >= whole[-1].seconds:
        return whole
    return (
        *whole[:2],
        CostPart(name="slower", seconds=slow, why=f"--repair-s: {loss:.2%} of today's speed until the repair"),
        CostPart(name="second start", seconds=again, why="HCAs are chosen at the start: one more after the repair"),
    )
