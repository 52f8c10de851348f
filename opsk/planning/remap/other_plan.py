"""Proposes to continue with another plan: with fewer replicas, or with other tensor, pipeline and data parallelism.

With fewer replicas the affected ones are dropped, and all other ranks keep their slots. Another plan keeps the model,
the precision and the global batch; it may leave GPUs idle where nothing divides. Where evaluating a completely new
placement takes too long, the prediction comes from the cost model alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from opsk.costmodel.predict import predict
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk.errors import PlanInfeasibleError
from opsk.planning.alternatives import is_legal
from opsk.planning.placement.rank_placement import Verdicts, judge
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel, step_model
from opsk.planning.ranks import RankGrid, rank_grid
from opsk.planning.remap.baseline_loads import KINDS, Fewer, evaluate_change
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import Proposal, require_no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.values import OptionKind, Refusal, Terms, Way
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.traffic import StepBytes, step_bytes
from opsk.workload.plan import Plan, Recompute

LIKELY = 0.9
"""Minimum probability to fit for a plan to be selected."""
_MAX_RANKS = 2048
_MAX_LEAVES = 600
"""Maximum ranks and leaves of a job whose new placement is evaluated on the fabric; more take too long."""
_MAX_STAGES_FACTOR = 4
_MICRO_BATCHES = (1, 2, 4)


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


def shrink_dp(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the job without the affected replicas, and without all replicas of the failed nodes."""
    affected = impact.find_affected(situation)
    if not affected.size:
        yield Refusal(kind=OptionKind.SHRINK_DP, why="no GPU failed: leaving a replica out loses more than it wins")
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
        return Refusal(kind=OptionKind.SHRINK_DP, why=error.message)
    reason = explain_out_of_memory(situation, smaller)
    if reason:
        return Refusal(kind=OptionKind.SHRINK_DP, why=f"with dp {remaining.size} {reason}")
    before = np.empty(smaller.gpus, dtype=np.int64)
    before[grid.ranks.ravel()] = job.grid.ranks[:, remaining].ravel()
    node, gpu = situation.rank_placement.node[0, before], situation.rank_placement.gpu[0, before]
    verdict = _evaluate_shrunk(situation, impact, smaller, grid, node, gpu)
    if not np.isfinite(verdict.step_s[0]):
        return Refusal(kind=OptionKind.SHRINK_DP, why="the remaining ranks have no path to each other")
    gives_back = way is Way.RESIZE and bool(impact.failure.drain - {situation.batch_host})
    shown = ", ".join(map(str, dropped[:6].tolist())) + (", ..." if dropped.size > 6 else "")
    return Proposal(
        kind=OptionKind.SHRINK_DP,
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
        why=("all remaining ranks keep their GPUs, with new numbers",),
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
        raise PlanInfeasibleError(("every replica is affected: none remains",))
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


def _evaluate_shrunk(
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


def replan(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the fastest other plan on the nodes that remain, or why there is none."""
    if not impact.find_affected(situation).size:
        yield Refusal(kind=OptionKind.REPLAN, why="no GPU failed: the plan has all that it needs")
        return
    if situation.cluster is None:
        yield Refusal(kind=OptionKind.REPLAN, why="the cluster's GPUs are not known: name them with --cluster")
        return
    nodes = _list_remaining_nodes(situation, impact)
    ranks_per_node = situation.ranks_per_node
    plans = list(list_other_plans(situation, len(nodes) * ranks_per_node))
    best = find_fastest(situation, plans)
    if best is None:
        yield Refusal(
            kind=OptionKind.REPLAN,
            why=f"none of {len(plans)} other plans on {len(nodes)} nodes is likely to fit in memory"
            if plans
            else f"no other plan runs on {len(nodes)} nodes of {ranks_per_node} GPUs",
        )
        return
    plan, step_s = best
    node, gpu = np.array(nodes)[np.arange(plan.gpus) // ranks_per_node], np.arange(plan.gpus) % ranks_per_node
    verdict = _evaluate_replanned(situation, impact, plan, node, gpu) if _is_small(impact, plan, node, gpu) else None
    if verdict is not None and not np.isfinite(verdict.step_s[0]):
        yield Refusal(kind=OptionKind.REPLAN, why="the nodes that remain have no path to each other")
        return
    stays = stays_impossible(situation, impact, is_running=terms.is_running)
    yield Proposal(
        kind=OptionKind.REPLAN,
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


def _evaluate_replanned(situation: Situation, impact: FailureImpact, plan: Plan, node: Index, gpu: Index) -> Verdicts:
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
