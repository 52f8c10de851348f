"""Proposes to continue with fewer replicas: the affected ones are dropped, all other ranks keep their slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from opsk.errors import PlanInfeasibleError
from opsk.planning.placement.evaluation import Verdicts, judge
from opsk.planning.ranks import RankGrid, rank_grid
from opsk.planning.remap.baseline_loads import KINDS, Fewer, evaluate_change
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.predicted_plan import build_step_model, explain_out_of_memory
from opsk.planning.remap.proposal import Proposal, require_no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.rank_traffic import StepBytes, step_bytes
from opsk.workload.plan import Plan


def shrink_dp(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the job without the affected replicas, and without all replicas of the failed nodes."""
    affected = impact.find_affected(situation)
    if not affected.size:
        yield Refusal(kind=Kind.SHRINK_DP, why="no GPU failed: leaving a replica out loses more than it wins")
        return
    replica = situation.job.grid.coordinates()["dp"]
    nodes = situation.rank_placement.node[0]
    named = np.array([node in impact.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    least = np.unique(replica[affected])
    most = np.union1d(least, np.unique(replica[named[nodes]]))
    stays = stays_impossible(situation, impact, is_running=terms.is_running)
    if not stays and least.size < most.size:
        yield _drop_replicas(situation, impact, least, Way.RELAUNCH)
    yield _drop_replicas(situation, impact, most, Way.REQUEUE if stays else Way.RESIZE)


def _drop_replicas(situation: Situation, impact: FailureImpact, dropped: Index, way: Way) -> Proposal | Refusal:
    """Return the job without some replicas."""
    plan, job = situation.plan, situation.job
    remaining = np.setdiff1d(np.arange(plan.dp), dropped)
    try:
        smaller, changes = fewer_replicas(plan, int(remaining.size))
        grid = rank_grid(smaller, situation.order)
    except PlanInfeasibleError as error:
        return Refusal(kind=Kind.SHRINK_DP, why=error.message)
    reason = explain_out_of_memory(situation, smaller)
    if reason:
        return Refusal(kind=Kind.SHRINK_DP, why=f"with dp {remaining.size} {reason}")
    before = np.empty(smaller.gpus, dtype=np.int64)
    before[grid.ranks.ravel()] = job.grid.ranks[:, remaining].ravel()
    node, gpu = situation.rank_placement.node[0, before], situation.rank_placement.gpu[0, before]
    verdict = _evaluate(situation, impact, smaller, grid, node, gpu)
    if not np.isfinite(verdict.step_s[0]):
        return Refusal(kind=Kind.SHRINK_DP, why="the ranks that are left have no path to each other")
    gives_back = way is Way.RESIZE and bool(impact.failure.drain - {situation.batch_host})
    shown = ", ".join(map(str, dropped[:6].tolist())) + (", ..." if dropped.size > 6 else "")
    return Proposal(
        kind=Kind.SHRINK_DP,
        title=f"without replica{'' if dropped.size == 1 else 's'} {shown}: dp {plan.dp} to {smaller.dp}"
        + (", failed nodes given back" if gives_back else ""),
        way=way,
        plan=smaller,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        renumbered=True,
        needs=(
            "a checkpoint that loads with another number of replicas",
            *(require_no_kill(impact) if way is not Way.REQUEUE else ()),
        ),
        why=("all ranks that are left keep their GPUs, with new numbers",),
        changes=changes,
    )


def fewer_replicas(plan: Plan, dp: int) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with ``dp`` replicas, and all changes; the global batch stays the same where it divides.

    Raises
    ------
    PlanInfeasibleError
        There is no such plan.
    """
    if dp < 1:
        raise PlanInfeasibleError(("every replica was hit: none is left to go on with",))
    unit = dp * plan.micro_batch * (plan.pp if plan.vpp > 1 else 1)
    changes = [f"dp {plan.dp} to {dp}"]
    batch = plan.global_batch
    if batch % unit:
        batch = max(round(batch / unit), 1) * unit
        changes.append(f"global batch {plan.global_batch} to {batch}: {plan.global_batch} does not divide by {unit}")
    smaller = replace(plan, dp=dp, global_batch=batch)
    if smaller.micro_batches != plan.micro_batches:
        changes.append(f"micro-batches of a replica {plan.micro_batches} to {smaller.micro_batches}")
    return smaller, tuple(changes)


def _evaluate(
    situation: Situation, impact: FailureImpact, plan: Plan, grid: RankGrid, node: Index, gpu: Index
) -> Verdicts:
    """Return the verdict on the smaller job: from the baseline loads where each kind of bytes changes by one factor."""
    job = replace(situation.job, ports=impact.ports, step=build_step_model(situation, plan))
    rank_placement = impact.place_ranks(situation, node, gpu)
    sent = step_bytes(situation.model, plan)
    factors = compute_volume_factors(situation.job.sent, sent)
    verdict = (
        evaluate_change(job, situation.baseline, rank_placement, Fewer(grid=grid, factor=factors))
        if factors is not None
        else None
    )
    return judge(replace(job, grid=grid, sent=sent), rank_placement) if verdict is None else verdict


def compute_volume_factors(before: StepBytes, after: StepBytes) -> Mapping[str, float] | None:
    """Return by which factor a rank's bytes of each kind change; ``None`` where stages differ, or nothing was sent."""
    factors: dict[str, float] = {}
    for kind, (_, names) in KINDS.items():
        old = np.concatenate([np.atleast_1d(getattr(before, name)) for name in names])
        new = np.concatenate([np.atleast_1d(getattr(after, name)) for name in names])
        is_sent = old > 0
        if old.size != new.size or (new[~is_sent] > 0).any():
            return None
        ratios = new[is_sent] / old[is_sent]
        if ratios.size and not np.allclose(ratios, ratios[0], rtol=1e-9):
            return None
        factors[kind] = float(ratios[0]) if ratios.size else 1.0
    return factors
