"""Proposes another whole HB domain to take over from the affected one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsk.planning.placement.evaluation import Verdicts, is_better
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.other_nodes import distance, is_shared, move_ranks
from opsk.planning.remap.proposal import (
    Proposal,
    as_good_as_today,
    find_healthy_nodes,
    judge_slots,
    require_no_kill,
    stays_impossible,
)
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_ports import Index

_MAX_EVALUATED = 4


def hb_domain(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best domain that the job holds, and the best free one, or why there is none."""
    ranks = impact.find_affected(situation)
    affected = np.unique(situation.job.domains[situation.rank_placement.node[0, ranks]]).tolist()
    reason = _explain_refusal(situation, impact, affected)
    if reason:
        yield Refusal(kind=Kind.HB_DOMAIN, why=reason)
        return
    whole = find_healthy_nodes(situation, impact)
    inside = stays_impossible(situation, impact, is_running=terms.is_running)
    candidates = []
    for among, way in ((whole & situation.held, Way.RELAUNCH), (whole & situation.free, Way.REQUEUE)):
        if way is Way.REQUEUE or not inside:
            candidates.append(_find_best(situation, impact, affected[0], among, way))
    proposals = [proposal for proposal in candidates if proposal is not None]
    yield from proposals
    if not proposals:
        needed = np.unique(_list_members(situation, affected[0])).size
        yield Refusal(
            kind=Kind.HB_DOMAIN,
            why=f"no other HB domain is known to have {needed} idle node{'' if needed == 1 else 's'}"
            + (f"; inside the allocation: {inside}" if inside else ""),
        )


def _explain_refusal(situation: Situation, impact: FailureImpact, affected: list[int]) -> str | None:
    """Return why another domain cannot take over, or ``None``."""
    if not affected:
        return "no GPU failed"
    if len(affected) > 1:
        return f"{len(affected)} HB domains are hit at once"
    member = int(np.flatnonzero(situation.job.domains == affected[0])[0])
    if not impact.failure.domains and not is_shared(situation, member):
        return "each node is an HB domain of its own: see spare_node"
    return None


def _list_members(situation: Situation, domain: int) -> Index:
    """Return the node of each rank of a domain."""
    node_of_rank = situation.rank_placement.node[0]
    members: Index = node_of_rank[situation.job.domains[node_of_rank] == domain]
    return members


def _find_best(situation: Situation, impact: FailureImpact, domain: int, among: Mask, way: Way) -> Proposal | None:
    """Return the domain with the shortest step; node follows node in the order of their ranks."""
    domains, node_of_rank = situation.job.domains, situation.rank_placement.node[0]
    nodes = list(dict.fromkeys(_list_members(situation, domain).tolist()))
    able = [
        other
        for other in dict.fromkeys(domains[among].tolist())
        if other != domain and np.count_nonzero(among & (domains == other)) >= len(nodes)
    ]
    rooms = [np.flatnonzero(among & (domains == other))[: len(nodes)] for other in able]
    rooms.sort(key=lambda room: distance(situation, nodes[0], int(room[0])))
    best: tuple[Verdicts, tuple[Index, Index], Index] | None = None
    for room in rooms[:_MAX_EVALUATED]:
        pairs = [(np.flatnonzero(node_of_rank == node), int(there)) for node, there in zip(nodes, room, strict=True)]
        node, gpu = move_ranks(situation, impact, pairs)
        verdict = judge_slots(situation, impact, node, gpu)
        if best is None or is_better(verdict, best[0], situation.job.step):
            best = verdict, (node, gpu), room
        if as_good_as_today(situation, best[0]):
            break
    if best is None or not np.isfinite(best[0].step_s[0]):
        return None
    verdict, (node, gpu), room = best
    name = situation.domain_of[situation.job.nodes[int(room[0])]]
    _, other_unit, _ = distance(situation, nodes[0], int(room[0]))
    return Proposal(
        kind=Kind.HB_DOMAIN,
        title=f"HB domain {name} for {situation.domain_of[situation.job.nodes[nodes[0]]]}",
        way=way,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        needs=require_no_kill(impact) if way is Way.RELAUNCH else (),
        why=("the nearest, in another scalable unit" if other_unit else "in the same scalable unit",),
    )
