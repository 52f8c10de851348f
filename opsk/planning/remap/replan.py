"""Searches another plan for the remaining nodes, with other tensor, pipeline and data parallelism.

The model, the precision and the global batch stay the same; the plan may leave GPUs idle where nothing divides. Where
evaluating a completely new placement takes too long, the prediction comes from the cost model alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from opsk.errors import PlanInfeasibleError
from opsk.planning.alternatives import is_legal
from opsk.planning.placement.evaluation import Verdicts, judge
from opsk.planning.ranks import rank_grid
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.predicted_plan import build_step_model, find_fastest
from opsk.planning.remap.proposal import Proposal, require_no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.rank_traffic import step_bytes
from opsk.workload.plan import Plan, Recompute

_MAX_RANKS = 2048
_MAX_LEAVES = 600
"""Maximum ranks and leaves of a job whose new placement is evaluated on the fabric; more take too long."""
_MAX_STAGES_FACTOR = 4
_MICRO_BATCHES = (1, 2, 4)


def replan(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the fastest other plan on the nodes that remain, or why there is none."""
    if not impact.find_affected(situation).size:
        yield Refusal(kind=Kind.REPLAN, why="no GPU failed: the plan has all that it needs")
        return
    if situation.cluster is None:
        yield Refusal(kind=Kind.REPLAN, why="the cluster's GPUs are not known: name them with --cluster")
        return
    nodes = _list_remaining_nodes(situation, impact)
    ranks_per_node = situation.ranks_per_node
    plans = list(list_other_plans(situation, len(nodes) * ranks_per_node))
    best = find_fastest(situation, plans)
    if best is None:
        yield Refusal(
            kind=Kind.REPLAN,
            why=f"none of {len(plans)} other plans on {len(nodes)} nodes is likely to fit in memory"
            if plans
            else f"no other plan runs on {len(nodes)} nodes of {ranks_per_node} GPUs",
        )
        return
    plan, step_s = best
    node, gpu = np.array(nodes)[np.arange(plan.gpus) // ranks_per_node], np.arange(plan.gpus) % ranks_per_node
    verdict = _evaluate(situation, impact, plan, node, gpu) if _is_small(impact, plan, node, gpu) else None
    if verdict is not None and not np.isfinite(verdict.step_s[0]):
        yield Refusal(kind=Kind.REPLAN, why="the nodes that remain have no path to each other")
        return
    stays = stays_impossible(situation, impact, is_running=terms.is_running)
    yield Proposal(
        kind=Kind.REPLAN,
        title=f"another plan on {int(np.unique(node).size)} nodes: {_format_layout(plan)}",
        way=Way.REQUEUE if stays else Way.RESIZE,
        plan=plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]) if verdict is not None else step_s,
        verdict=verdict,
        renumbered=True,
        needs=("a checkpoint that loads under another plan", *(() if stays else require_no_kill(impact))),
        why=(f"the fastest of {len(plans)} other plans that keep model and global batch and are likely to fit",),
        changes=tuple(_describe_changes(situation.plan, plan)),
    )


def list_other_plans(situation: Situation, gpus: int) -> Iterator[Plan]:
    """Yield the plans of another cut on at most ``gpus`` GPUs, with as many replicas as divide the global batch."""
    plan, model = situation.plan, situation.model
    domain = situation.cluster.node.hb_domain_gpus if situation.cluster else situation.node_gpus
    sizes = [size for size in (1, 2, 4, 8, 16, 32) if size <= min(domain, gpus)]
    stages = range(1, min(model.layers, _MAX_STAGES_FACTOR * plan.pp, gpus) + 1)
    for tp, pp in product(sizes, stages):
        if (tp, pp) == (plan.tp, plan.pp) or model.layers % pp:
            continue
        most = gpus // (tp * pp * plan.cp)
        dp = next((dp for dp in range(most, 0, -1) if plan.global_batch % dp == 0), 0)
        if dp < 1 or dp * plan.cp % plan.ep:
            continue
        # Plans that leave more than half of the GPUs idle are skipped.
        if 2 * dp * tp * pp * plan.cp < gpus:
            continue
        yield from _list_plans_of_layout(situation, domain, tp=tp, pp=pp, dp=dp)


def _list_plans_of_layout(situation: Situation, domain: int, *, tp: int, pp: int, dp: int) -> Iterator[Plan]:
    """Yield the plans of one layout."""
    plan, model = situation.plan, situation.model
    chunks = {1, plan.vpp} if pp > 1 else {1}
    micro = sorted({*_MICRO_BATCHES, plan.micro_batch})
    recompute = sorted({*Recompute, plan.recompute})
    for vpp, size, mode in product(sorted(chunks), micro, recompute):
        if plan.global_batch % (dp * size):
            continue
        try:
            candidate = replace(
                plan, tp=tp, pp=pp, dp=dp, vpp=vpp, micro_batch=size, recompute=mode, sequence_parallel=tp > 1,
                shard_gpus=0, recompute_layers=0, first_stage_layers=0, last_stage_layers=0,
            )  # fmt: skip
        except PlanInfeasibleError:
            continue
        if is_legal(model, candidate, hb_domain_gpus=domain):
            yield candidate


def _list_remaining_nodes(situation: Situation, impact: FailureImpact) -> list[int]:
    """Return the healthy nodes in use, in the order of their ranks, then spares that the job holds."""
    wounded = (impact.dead & ~situation.not_held).any(axis=1) | impact.dead_nodes
    named = np.array([node in impact.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    sound = ~wounded & ~named
    row = list(dict.fromkeys(situation.rank_placement.node[0].tolist()))
    spares = np.flatnonzero(situation.held & ~situation.used).tolist()
    return [node for node in (*row, *spares) if sound[node]]


def _is_small(impact: FailureImpact, plan: Plan, node: Index, gpu: Index) -> bool:
    """Return whether evaluating a completely new placement is quick: it is on nodes of few leaves."""
    if plan.gpus > _MAX_RANKS:
        return False
    leaves = impact.ports.leaf[impact.ports.port[node, gpu]]
    return np.unique(leaves).size <= _MAX_LEAVES


def _evaluate(situation: Situation, impact: FailureImpact, plan: Plan, node: Index, gpu: Index) -> Verdicts:
    """Return the verdict on a whole new placement."""
    job = replace(
        situation.job,
        ports=impact.ports,
        grid=rank_grid(plan, situation.order),
        sent=step_bytes(situation.model, plan),
        step=build_step_model(situation, plan),
    )
    return judge(job, impact.place_ranks(situation, node, gpu))


def _format_layout(plan: Plan) -> str:
    axes = [f"{name} {size}" for name in ("tp", "cp", "ep", "pp", "dp") if (size := getattr(plan, name)) > 1]
    return ", ".join(axes) or "one GPU"


def _describe_changes(before: Plan, after: Plan) -> Iterator[str]:
    """Yield descriptions of the differences."""
    for name in ("tp", "pp", "dp", "vpp", "micro_batch", "recompute", "sequence_parallel"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name} {old} to {new}"
