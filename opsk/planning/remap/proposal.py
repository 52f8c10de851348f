"""Defines a proposal, and converts it to an option: moves of ranks, commands, rank file and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.planning.placement.rank_placement import SAME, Verdicts, is_better, judge, local_ranks
from opsk.planning.remap.baseline_loads import evaluate_change
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.values import CostPart, Move, Option, OptionKind, Predicted, Rendezvous, Terms, Way
from opsk.planning.routing.hca_ports import Index
from opsk.slurm.commands.remap_commands import (
    TOPOLOGY_ORDER_SINCE,
    Command,
    build_requeue_commands,
    drain,
    relaunch,
    release_job,
    requeue_hold,
    reserve,
    resume,
    shrink,
)
from opsk.workload.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One option: the slot of every rank of ``plan``, and the verdict.

    ``verdict`` is ``None`` where ``step_s`` is the cost model's alone. ``renumbered`` is true where ranks have other
    numbers than before. ``lost`` replaces the loss over a horizon where an option does not last it.
    """

    kind: OptionKind
    title: str
    way: Way
    plan: Plan
    node: Index
    gpu: Index
    step_s: float
    verdict: Verdicts | None = None
    renumbered: bool = False
    switches: bool = False
    needs: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    lost: Callable[[Terms], tuple[CostPart, ...]] | None = None


def judge_slots(
    situation: Situation, impact: FailureImpact, node: Index, gpu: Index, *, port: Index | None = None
) -> Verdicts:
    """Return the verdict on slots of the same plan, with the remaining HCAs.

    ``port`` replaces the ports of ranks where it is not negative.
    """
    job = replace(situation.job, ports=impact.ports)
    rank_placement = impact.place_ranks(situation, node, gpu)
    if port is not None:
        rank_placement = replace(rank_placement, port=np.where(port >= 0, port, rank_placement.port[0])[None, :])
    verdict = evaluate_change(job, situation.baseline, rank_placement)
    return judge(job, rank_placement) if verdict is None else verdict


def as_good_as_today(situation: Situation, verdict: Verdicts) -> bool:
    """Return whether a step is no longer than today's: then nodes farther away need not be evaluated."""
    return bool(verdict.step_s[0] <= situation.verdict.step_s[0] * (1.0 + SAME))


def is_preferred(situation: Situation, verdict: Verdicts, moved: int, best: Verdicts | None, best_moved: int) -> bool:
    """Return whether slots are better than the best so far: by step, then by fewest moves, then by `is_better`."""
    if best is None:
        return True
    ours, its = float(verdict.step_s[0]), float(best.step_s[0])
    if ours != its and not abs(ours - its) <= SAME * min(ours, its):
        return ours < its
    return moved < best_moved or (moved == best_moved and is_better(verdict, best, situation.job.step))


def copy_current_slots(situation: Situation) -> tuple[Index, Index]:
    """Return copies of node and GPU of every rank."""
    return situation.rank_placement.node[0].copy(), situation.rank_placement.gpu[0].copy()


def find_affected_ranks(situation: Situation, impact: FailureImpact) -> Index:
    """Return the ranks that should move: those on dead GPUs, and those that fall back to another HCA."""
    return np.union1d(impact.find_affected(situation), impact.find_fallen_back(situation))


def find_healthy_nodes(situation: Situation, impact: FailureImpact) -> Mask:
    """Return the nodes on which every GPU is healthy, idle, and uses its own HCA."""
    ports = situation.job.ports
    gpu_ok = ~impact.dead & situation.idle & (impact.ports.port == ports.port)
    drained = np.array([node in impact.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    is_healthy: Mask = gpu_ok.all(axis=1) & ~drained & ~impact.dead_nodes
    return is_healthy


def match_gpus(
    situation: Situation, current: Sequence[int], there: int, free: Sequence[int], ranks: Index
) -> list[int]:
    """Return a GPU of node ``there`` for each rank: on the rail of the rank's GPU, of the same number where that is it.

    Parameters
    ----------
    current
        GPU number of each rank today.
    free
        GPUs that can be taken, at least as many as ranks.
    """
    ports = situation.job.ports
    rail = [int(ports.rail[port]) for port in situation.rank_placement.port[0, ranks]]
    rail_there = {gpu: int(ports.rail[ports.port[there, gpu]]) for gpu in free}
    left = list(free)
    chosen = [-1] * len(rail)
    for is_good in (_same_slot, _same_rail, _any_slot):
        for index, (gpu_today, rail_today) in enumerate(zip(current, rail, strict=True)):
            matching = [
                gpu for gpu in left if chosen[index] < 0 and is_good(gpu, gpu_today, rail_there[gpu], rail_today)
            ]
            if matching:
                chosen[index] = min(matching)
                left.remove(chosen[index])
    return chosen


def _same_slot(gpu: int, want: int, rail: int, need: int) -> bool:
    return gpu == want and rail == need


def _same_rail(gpu: int, want: int, rail: int, need: int) -> bool:
    return rail == need


def _any_slot(gpu: int, want: int, rail: int, need: int) -> bool:
    return True


def batch_host_is_down(situation: Situation, impact: FailureImpact) -> bool:
    """Return whether the batch script died with its node."""
    return situation.batch_host is not None and situation.batch_host in impact.failure.nodes


def stays_impossible(situation: Situation, impact: FailureImpact, *, is_running: bool) -> str | None:
    """Return why nothing can be done inside the job's own nodes, ``None`` where it can."""
    if not is_running:
        return "the job does not run any more: its nodes are given back"
    if batch_host_is_down(situation, impact):
        return f"{situation.batch_host} ran the batch script, and the job ends with it: only a requeue is possible"
    return None


def require_no_kill(impact: FailureImpact) -> tuple[str, ...]:
    """Return the requirement for a job to survive the failure inside its nodes."""
    if not impact.failure.nodes:
        return ()
    return ("the job was submitted with --no-kill: else it ended with its node, and only a requeue is possible",)


def build_option(
    situation: Situation,
    impact: FailureImpact,
    terms: Terms,
    proposal: Proposal,
    then: Predicted,
    *,
    down: tuple[CostPart, ...],
    down_s: float,
    lost: tuple[CostPart, ...],
    goodput: tuple[float | None, float] = (None, 0.0),
) -> Option:
    """Return the option of a proposal, with its moves, commands and requirements."""
    names = situation.job.nodes
    node_of_rank = proposal.node.tolist()
    nodes = tuple(names[number] for number in dict.fromkeys(node_of_rank))
    hosts = [names[number] for number in node_of_rank]
    rank_file = "\n".join([*hosts, ""]) if _needs_rank_file(situation, proposal.node, terms) else ""
    before = names[int(situation.rank_placement.node[0, 0])]
    return Option(
        kind=proposal.kind,
        title=proposal.title,
        way=proposal.way,
        moves=() if proposal.renumbered else _list_moves(situation, impact, proposal),
        renumbered=proposal.plan.gpus if proposal.renumbered else 0,
        predicted=then,
        downtime_s=down_s,
        downtime=down,
        lost_s=sum(part.seconds for part in lost),
        lost=lost,
        commands=_list_commands(situation, impact, terms, proposal, nodes, rank_file),
        needs=(*_list_needs(impact, terms, proposal, bool(rank_file)), *proposal.needs),
        why=proposal.why,
        nodes=nodes,
        rendezvous=Rendezvous(before=before, after=hosts[0]),
        plan=proposal.plan,
        changes=proposal.changes,
        rank_file=rank_file,
        gpu_order=tuple(_list_gpu_order(names, proposal.node, proposal.gpu)),
        goodput=goodput[0],
        goodput_over_s=goodput[1],
    )


def _list_moves(situation: Situation, impact: FailureImpact, proposal: Proposal) -> tuple[Move, ...]:
    """Return the ranks whose node or GPU changes."""
    rank_placement, ports, names = situation.rank_placement, situation.job.ports, situation.job.nodes
    moved = np.flatnonzero((proposal.node != rank_placement.node[0]) | (proposal.gpu != rank_placement.gpu[0]))
    moves = []
    for rank in moved.tolist():
        number, gpu = int(proposal.node[rank]), int(proposal.gpu[rank])
        old = ports.hcas[int(rank_placement.port[0, rank])]
        new = old if proposal.kind is OptionKind.OPTICAL else impact.ports.find_attachment(number, gpu)
        moves.append(
            Move(
                rank=rank,
                from_node=names[int(rank_placement.node[0, rank])],
                from_gpu=int(rank_placement.gpu[0, rank]),
                to_node=names[number],
                to_gpu=gpu,
                from_rail=old.rail if old else None,
                to_rail=new.rail if new else None,
            )
        )
    return tuple(moves)


def _needs_rank_file(situation: Situation, node: Index, terms: Terms) -> bool:
    """Return whether Slurm's own order would move a rank; from 26.05 on it does not follow from names."""
    used = np.unique(node)
    if used.size > 1 and terms.site.release >= TOPOLOGY_ORDER_SINCE and terms.site.topology != "flat":
        return True
    order = used[np.argsort(situation.slurm_place[used])]
    ranks_per_node = -(-node.size // used.size)
    return bool((node != order[np.minimum(np.arange(node.size) // ranks_per_node, used.size - 1)]).any())


def _list_gpu_order(names: Sequence[str], node: Index, gpu: Index) -> list[tuple[str, str]]:
    """Return the GPUs of each node whose local ranks do not take them in order."""
    odd = np.unique(node[gpu != local_ranks(node)])
    return [(names[number], ",".join(map(str, gpu[node == number].tolist()))) for number in odd.tolist()]


def _list_needs(impact: FailureImpact, terms: Terms, proposal: Proposal, has_rank_file: bool) -> list[str]:
    """Return the required permissions, and what the batch script must do."""
    needs = []
    if impact.failure.drain:
        other = reserve(sorted(impact.failure.drain), terms.job).text
        needs.append(f"an administrator drains the failed nodes; or an operator runs: {other}")
    if proposal.way is Way.REQUEUE and has_rank_file:
        needs.append(
            f"the batch script launches its step with SLURM_HOSTFILE={terms.rank_file} and --distribution=arbitrary, "
            "else Slurm's own order puts other ranks elsewhere"
        )
    if proposal.way in {Way.RELAUNCH, Way.RESIZE}:
        needs.append("the batch script waits for a new step and does not end with the old one")
    return needs


def _list_commands(
    situation: Situation, impact: FailureImpact, terms: Terms, proposal: Proposal, nodes: Sequence[str], rank_file: str
) -> tuple[Command, ...]:
    """Return the commands to run, in order."""
    failed = sorted(impact.failure.drain)
    reason = " ".join(impact.failure.reported) + " failed"
    drained = (drain(failed, reason),) if failed else ()
    step = relaunch(nodes, tasks=proposal.plan.gpus, rank_file=terms.rank_file if rank_file else None)
    if proposal.way is Way.RELAUNCH:
        return (*drained, step)
    if proposal.way is Way.RESIZE:
        held = [situation.job.nodes[number] for number in np.flatnonzero(situation.held)]
        # The batch script needs its node even where no rank can run there any more.
        gone = (impact.failure.drain - {situation.batch_host}) | impact.failure.nodes
        remaining_nodes = [name for name in held if name not in gone]
        return (*drained, *((shrink(terms.job, remaining_nodes),) if len(remaining_nodes) < len(held) else ()), step)
    if proposal.way is Way.HOLD:
        back = (requeue_hold(terms.job),) if terms.is_running else ()
        return (*drained, *back, *((resume(failed),) if failed else ()), release_job(terms.job))
    count = len(nodes) if proposal.renumbered else None
    return build_requeue_commands(
        terms.job, terms.site, failed=failed, reason=reason, required=nodes, count=count, is_running=terms.is_running
    )
