"""Which other plan is best on the nodes that remain? Another cut over tensor, pipeline and data parallelism.

Model, precision and global batch stay as they are; the plan may leave GPUs idle where nothing divides. Where whole new
placements take too long to judge, the cost model alone speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from opsk.errors import PlanInfeasibleError
from opsk.planning.alternatives import is_legal
from opsk.planning.placement.judging import Verdicts, judge
from opsk.planning.ranks import rank_grid
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.predicted_plan import fastest, model_of
from opsk.planning.remap.proposal import Proposal, no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_seats import Index
from opsk.planning.routing.rank_traffic import step_bytes
from opsk.workload.plan import Plan, Recompute

_MOST_RANKS = 2048
_MOST_LEAVES = 600
"""Jobs of so many ranks on so many leaves are judged on the fabric; a whole new placement of more takes too long."""
_MOST_STAGES_FACTOR = 4
_MICRO_BATCHES = (1, 2, 4)


def replan(situation: Situation, wreck: Wreck, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the fastest other plan on the nodes that remain, or why there is none."""
    if not wreck.hit(situation).size:
        yield Refusal(kind=Kind.REPLAN, why="no GPU failed: the plan has all that it needs")
        return
    if situation.cluster is None:
        yield Refusal(kind=Kind.REPLAN, why="the cluster's GPUs are not known: name them with --cluster")
        return
    nodes = _remaining(situation, wreck)
    each = situation.ranks_per_node
    plans = list(other_plans(situation, len(nodes) * each))
    best = fastest(situation, plans)
    if best is None:
        yield Refusal(
            kind=Kind.REPLAN,
            why=f"none of {len(plans)} other plans on {len(nodes)} nodes is likely to fit in memory"
            if plans
            else f"no other plan runs on {len(nodes)} nodes of {each} GPUs",
        )
        return
    plan, step_s = best
    node, gpu = np.array(nodes)[np.arange(plan.gpus) // each], np.arange(plan.gpus) % each
    verdict = _judged(situation, wreck, plan, node, gpu) if _is_small(wreck, plan, node, gpu) else None
    if verdict is not None and not np.isfinite(verdict.step_s[0]):
        yield Refusal(kind=Kind.REPLAN, why="the nodes that remain have no path to each other")
        return
    stays = stays_impossible(situation, wreck, is_running=terms.is_running)
    yield Proposal(
        kind=Kind.REPLAN,
        title=f"another plan on {int(np.unique(node).size)} nodes: {_layout(plan)}",
        way=Way.REQUEUE if stays else Way.RESIZE,
        plan=plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]) if verdict is not None else step_s,
        verdict=verdict,
        renumbered=True,
        needs=("a checkpoint that loads under another plan", *(() if stays else no_kill(wreck))),
        why=(f"the fastest of {len(plans)} other plans that keep model and global batch and are likely to fit",),
        changes=tuple(_changes(situation.plan, plan)),
    )


def other_plans(situation: Situation, gpus: int) -> Iterator[Plan]:
    """Yield the plans of another cut on at most ``gpus`` GPUs, with as many replicas as divide the global batch."""
    plan, model = situation.plan, situation.model
    domain = situation.cluster.node.hb_domain_gpus if situation.cluster else situation.node_gpus
    sizes = [size for size in (1, 2, 4, 8, 16, 32) if size <= min(domain, gpus)]
    stages = range(1, min(model.layers, _MOST_STAGES_FACTOR * plan.pp, gpus) + 1)
    for tp, pp in product(sizes, stages):
        if (tp, pp) == (plan.tp, plan.pp) or model.layers % pp:
            continue
        most = gpus // (tp * pp * plan.cp)
        dp = next((dp for dp in range(most, 0, -1) if plan.global_batch % dp == 0), 0)
        if dp < 1 or dp * plan.cp % plan.ep:
            continue
        # More than half of the GPUs idle is no plan for them.
        if 2 * dp * tp * pp * plan.cp < gpus:
            continue
        yield from _within(situation, domain, tp=tp, pp=pp, dp=dp)


def _within(situation: Situation, domain: int, *, tp: int, pp: int, dp: int) -> Iterator[Plan]:
    """Yield the plans of one layout."""
    plan, model = situation.plan, situation.model
    chunks = {1, plan.vpp} if pp > 1 else {1}
    micro = sorted({*_MICRO_BATCHES, plan.micro_batch})
    recompute = sorted({*Recompute, plan.recompute})
    for vpp, size, kept in product(sorted(chunks), micro, recompute):
        if plan.global_batch % (dp * size):
            continue
        try:
            found = replace(
                plan, tp=tp, pp=pp, dp=dp, vpp=vpp, micro_batch=size, recompute=kept, sequence_parallel=tp > 1,
                shard_gpus=0, recompute_layers=0, first_stage_layers=0, last_stage_layers=0,
            )  # fmt: skip
        except PlanInfeasibleError:
            continue
        if is_legal(model, found, hb_domain_gpus=domain):
            yield found


def _remaining(situation: Situation, wreck: Wreck) -> list[int]:
    """Return the nodes in use that are sound, in the order of their ranks, then spares that the job holds."""
    wounded = (wreck.dead & ~situation.not_held).any(axis=1) | wreck.dead_nodes
    named = np.array([node in wreck.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    sound = ~wounded & ~named
    row = list(dict.fromkeys(situation.seating.node[0].tolist()))
    spares = np.flatnonzero(situation.held & ~situation.used).tolist()
    return [node for node in (*row, *spares) if sound[node]]


def _is_small(wreck: Wreck, plan: Plan, node: Index, gpu: Index) -> bool:
    """Tell whether judging a whole new placement is quick: on nodes of few leaves it is, scattered ones take longer."""
    if plan.gpus > _MOST_RANKS:
        return False
    leaves = wreck.ports.leaf[wreck.ports.port[node, gpu]]
    return np.unique(leaves).size <= _MOST_LEAVES


def _judged(situation: Situation, wreck: Wreck, plan: Plan, node: Index, gpu: Index) -> Verdicts:
    """Return the verdict on a whole new placement."""
    job = replace(
        situation.job,
        ports=wreck.ports,
        grid=rank_grid(plan, situation.order),
        sent=step_bytes(situation.model, plan),
        step=model_of(situation, plan),
    )
    return judge(job, wreck.seated(situation, node, gpu))


def _layout(plan: Plan) -> str:
    axes = [f"{name} {size}" for name in ("tp", "cp", "ep", "pp", "dp") if (size := getattr(plan, name)) > 1]
    return ", ".join(axes) or "one GPU"


def _changes(before: Plan, after: Plan) -> Iterator[str]:
    """Yield what differs, in words."""
    for name in ("tp", "pp", "dp", "vpp", "micro_batch", "recompute", "sequence_parallel"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name} {old} to {new}"
