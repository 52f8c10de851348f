"""Which other whole HB domain can take over from the one that was hit?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsk.planning.placement.judging import Verdicts, is_better
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.other_nodes import distance, is_shared, taken_over
from opsk.planning.remap.proposal import Proposal, as_good_as_today, judged_seats, no_kill, stays_impossible, whole_rows
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_seats import Index

_MOST_JUDGED = 4


def hb_domain(situation: Situation, wreck: Wreck, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best domain that the job holds, and the best free one, or why there is none."""
    ranks = wreck.hit(situation)
    hit = np.unique(situation.job.domains[situation.seating.node[0, ranks]]).tolist()
    reason = _reason(situation, wreck, hit)
    if reason:
        yield Refusal(kind=Kind.HB_DOMAIN, why=reason)
        return
    whole = whole_rows(situation, wreck)
    inside = stays_impossible(situation, wreck, is_running=terms.is_running)
    found = []
    for among, way in ((whole & situation.held, Way.RELAUNCH), (whole & situation.free, Way.REQUEUE)):
        if way is Way.REQUEUE or not inside:
            found.append(_best(situation, wreck, hit[0], among, way))
    proposals = [proposal for proposal in found if proposal is not None]
    yield from proposals
    if not proposals:
        needed = np.unique(_members(situation, hit[0])).size
        yield Refusal(
            kind=Kind.HB_DOMAIN,
            why=f"no other HB domain is known to have {needed} idle node{'' if needed == 1 else 's'}"
            + (f"; inside the allocation: {inside}" if inside else ""),
        )


def _reason(situation: Situation, wreck: Wreck, hit: list[int]) -> str | None:
    """Return why another domain is no answer."""
    if not hit:
        return "no GPU failed"
    if len(hit) > 1:
        return f"{len(hit)} HB domains are hit at once"
    member = int(np.flatnonzero(situation.job.domains == hit[0])[0])
    if not wreck.failure.domains and not is_shared(situation, member):
        return "each node is an HB domain of its own: see spare_node"
    return None


def _members(situation: Situation, domain: int) -> Index:
    """Return the node of each rank of a domain."""
    seated = situation.seating.node[0]
    found: Index = seated[situation.job.domains[seated] == domain]
    return found


def _best(situation: Situation, wreck: Wreck, domain: int, among: Mask, way: Way) -> Proposal | None:
    """Return the domain with the shortest step; node follows node in the order of their ranks."""
    domains, seated = situation.job.domains, situation.seating.node[0]
    nodes = list(dict.fromkeys(_members(situation, domain).tolist()))
    able = [
        other
        for other in dict.fromkeys(domains[among].tolist())
        if other != domain and np.count_nonzero(among & (domains == other)) >= len(nodes)
    ]
    rooms = [np.flatnonzero(among & (domains == other))[: len(nodes)] for other in able]
    rooms.sort(key=lambda room: distance(situation, nodes[0], int(room[0])))
    best: tuple[Verdicts, tuple[Index, Index], Index] | None = None
    for room in rooms[:_MOST_JUDGED]:
        pairs = [(np.flatnonzero(seated == node), int(there)) for node, there in zip(nodes, room, strict=True)]
        node, gpu = taken_over(situation, wreck, pairs)
        verdict = judged_seats(situation, wreck, node, gpu)
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
        needs=no_kill(wreck) if way is Way.RELAUNCH else (),
        why=("the nearest, in another scalable unit" if other_unit else "in the same scalable unit",),
    )
