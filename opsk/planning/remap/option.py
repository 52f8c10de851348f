"""Converts a proposal to an option: the moves of ranks, the commands, the rank file and the settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk.planning.placement.rank_placement import local_ranks
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import Proposal
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Move, Option, Part, Predicted, Rendezvous, Way
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


def build_option(
    situation: Situation,
    impact: FailureImpact,
    terms: Terms,
    proposal: Proposal,
    then: Predicted,
    *,
    down: tuple[Part, ...],
    down_s: float,
    lost: tuple[Part, ...],
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
        new = old if proposal.kind is Kind.OPTICAL else impact.ports.attached(number, gpu)
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
