"""How is an option brought about: which ranks move, with which commands, rank file and settings?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk.planning.placement.seating import local_ranks
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.proposal import Proposal
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Move, Option, Part, Predicted, Rendezvous, Way
from opsk.planning.routing.hca_seats import Index
from opsk.slurm.commands.remap_commands import (
    TOPOLOGY_ORDER_SINCE,
    Command,
    drain,
    give_back,
    hold_back,
    keep_out,
    relaunch,
    release_job,
    requeue_commands,
    resume,
)


def written(
    situation: Situation,
    broken: Wreck,
    terms: Terms,
    proposal: Proposal,
    then: Predicted,
    *,
    down: tuple[Part, ...],
    down_s: float,
    lost: tuple[Part, ...],
    goodput: tuple[float | None, float] = (None, 0.0),
) -> Option:
    """Return an option with everything that it takes."""
    names = situation.job.nodes
    row = proposal.node.tolist()
    nodes = tuple(names[at] for at in dict.fromkeys(row))
    hosts = [names[at] for at in row]
    rank_file = "\n".join([*hosts, ""]) if _needs_rank_file(situation, proposal.node, terms) else ""
    before = names[int(situation.seating.node[0, 0])]
    return Option(
        kind=proposal.kind,
        title=proposal.title,
        way=proposal.way,
        moves=() if proposal.renumbered else _moves(situation, broken, proposal),
        renumbered=proposal.plan.gpus if proposal.renumbered else 0,
        predicted=then,
        downtime_s=down_s,
        downtime=down,
        lost_s=sum(part.seconds for part in lost),
        lost=lost,
        commands=_commands(situation, broken, terms, proposal, nodes, rank_file),
        needs=(*_needs(broken, terms, proposal, bool(rank_file)), *proposal.needs),
        why=proposal.why,
        nodes=nodes,
        rendezvous=Rendezvous(before=before, after=hosts[0]),
        plan=proposal.plan,
        changes=proposal.changes,
        rank_file=rank_file,
        gpu_order=tuple(_gpu_order(names, proposal.node, proposal.gpu)),
        goodput=goodput[0],
        goodput_over_s=goodput[1],
    )


def _moves(situation: Situation, broken: Wreck, proposal: Proposal) -> tuple[Move, ...]:
    """Return the ranks whose node or GPU changes."""
    seating, ports, names = situation.seating, situation.job.ports, situation.job.nodes
    moved = np.flatnonzero((proposal.node != seating.node[0]) | (proposal.gpu != seating.gpu[0]))
    found = []
    for rank in moved.tolist():
        at, gpu = int(proposal.node[rank]), int(proposal.gpu[rank])
        old = ports.hcas[int(seating.port[0, rank])]
        new = old if proposal.kind is Kind.OPTICAL else broken.ports.attached(at, gpu)
        found.append(
            Move(
                rank=rank,
                from_node=names[int(seating.node[0, rank])],
                from_gpu=int(seating.gpu[0, rank]),
                to_node=names[at],
                to_gpu=gpu,
                from_rail=old.rail if old else None,
                to_rail=new.rail if new else None,
            )
        )
    return tuple(found)


def _needs_rank_file(situation: Situation, node: Index, terms: Terms) -> bool:
    """Return whether Slurm's own order would put a rank on another node; from 26.05 on nobody can tell by names."""
    used = np.unique(node)
    if used.size > 1 and terms.site.release >= TOPOLOGY_ORDER_SINCE and terms.site.topology != "flat":
        return True
    order = used[np.argsort(situation.slurm_place[used])]
    each = -(-node.size // used.size)
    return bool((node != order[np.minimum(np.arange(node.size) // each, used.size - 1)]).any())


def _gpu_order(names: Sequence[str], node: Index, gpu: Index) -> list[tuple[str, str]]:
    """Return the GPUs of each node whose local ranks do not take them in order."""
    odd = np.unique(node[gpu != local_ranks(node)])
    return [(names[at], ",".join(map(str, gpu[node == at].tolist()))) for at in odd.tolist()]


def _needs(broken: Wreck, terms: Terms, proposal: Proposal, has_rank_file: bool) -> list[str]:
    """Return the rights that are needed, and what the batch script must do."""
    needs = []
    if broken.failure.drain:
        other = keep_out(sorted(broken.failure.drain), terms.job).text
        needs.append(f"an administrator drains the failed nodes; or an operator runs: {other}")
    if proposal.way is Way.REQUEUE and has_rank_file:
        needs.append(
            f"the batch script launches its step with SLURM_HOSTFILE={terms.rank_file} and --distribution=arbitrary, "
            "else Slurm's own order puts other ranks elsewhere"
        )
    if proposal.way in {Way.RELAUNCH, Way.RESIZE}:
        needs.append("the batch script waits for a new step and does not end with the old one")
    return needs


def _commands(
    situation: Situation, broken: Wreck, terms: Terms, proposal: Proposal, nodes: Sequence[str], rank_file: str
) -> tuple[Command, ...]:
    """Return what to run, in order."""
    failed = sorted(broken.failure.drain)
    reason = " ".join(broken.failure.said) + " failed"
    drained = (drain(failed, reason),) if failed else ()
    step = relaunch(nodes, tasks=proposal.plan.gpus, rank_file=terms.rank_file if rank_file else None)
    if proposal.way is Way.RELAUNCH:
        return (*drained, step)
    if proposal.way is Way.RESIZE:
        held = [situation.job.nodes[at] for at in np.flatnonzero(situation.held)]
        # The batch script needs its node even where no rank can run there any more.
        gone = (broken.failure.drain - {situation.batch_host}) | broken.failure.nodes
        kept = [name for name in held if name not in gone]
        return (*drained, *((give_back(terms.job, kept),) if len(kept) < len(held) else ()), step)
    if proposal.way is Way.HOLD:
        back = (hold_back(terms.job),) if terms.is_running else ()
        return (*drained, *back, *((resume(failed),) if failed else ()), release_job(terms.job))
    count = len(nodes) if proposal.renumbered else None
    return requeue_commands(
        terms.job, terms.site, failed=failed, reason=reason, wanted=nodes, count=count, is_running=terms.is_running
    )
