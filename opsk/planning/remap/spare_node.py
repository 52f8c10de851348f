"""Which spare node can take over: one that the job holds already, or a free one through the queue?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opsk.planning.placement.judging import Verdicts
from opsk.planning.placement.seating import inner_group
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.other_nodes import distance, nearest_nodes, nearness, taken_over
from opsk.planning.remap.proposal import (
    Proposal,
    as_good_as_today,
    is_preferred,
    judged_seats,
    no_kill,
    stays_impossible,
    victims,
    whole_rows,
)
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_seats import Index

_MOST_JUDGED = 4
"""Ways of cabling of which a node is judged."""

Pairs = Sequence[tuple[Index, int]]


def spare_node(situation: Situation, wreck: Wreck, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best node of the allocation, and the best free one, or why there is none."""
    if wreck.failure.domains:
        yield Refusal(kind=Kind.SPARE_NODE, why="a whole HB domain failed: see hb_domain")
        return
    hit = np.unique(situation.seating.node[0, victims(situation, wreck)]).tolist()
    whole = whole_rows(situation, wreck)
    spares, free = whole & situation.held & ~situation.used, whole & situation.free
    reason = stays_impossible(situation, wreck, is_running=terms.is_running)
    if not reason and np.count_nonzero(spares) < len(hit):
        reason = f"the job holds {_nodes(np.count_nonzero(spares))} to spare, needed: {len(hit)}"
    if reason:
        yield Refusal(kind=Kind.SPARE_NODE, why=f"inside the allocation: {reason}")
    else:
        yield _best(situation, wreck, hit, spares, Way.RELAUNCH)
    if not situation.held[hit].all() or np.count_nonzero(free) + np.count_nonzero(spares) < len(hit):
        yield Refusal(
            kind=Kind.SPARE_NODE,
            why=f"through the queue: {_nodes(np.count_nonzero(free))} free are known, needed: {len(hit)}",
        )
    elif not free.any():
        yield Refusal(kind=Kind.SPARE_NODE, why="through the queue: no free node is known")
    else:
        yield _best(situation, wreck, hit, free if np.count_nonzero(free) >= len(hit) else free | spares, Way.REQUEUE)


def _best(situation: Situation, wreck: Wreck, hit: Sequence[int], among: Mask, way: Way) -> Proposal | Refusal:
    """Return the nodes with the shortest step; among equals the one for which the fewest ranks move."""
    best: tuple[Verdicts, tuple[Index, Index], int] | None = None
    fewest = 0
    for pairs in _choices(situation, wreck, hit, among, way):
        node, gpu = taken_over(situation, wreck, pairs)
        verdict = judged_seats(situation, wreck, node, gpu)
        moved = sum(int(ranks.size) for ranks, _ in pairs)
        if is_preferred(situation, verdict, moved, best[0] if best else None, fewest):
            best, fewest = (verdict, (node, gpu), int(pairs[0][1])), moved
        if best is not None and as_good_as_today(situation, best[0]):
            break
    if best is None or not np.isfinite(best[0].step_s[0]):
        return Refusal(kind=Kind.SPARE_NODE, why="no spare node has a path to the others")
    verdict, (node, gpu), first = best
    there = [situation.job.nodes[at] for at in dict.fromkeys(node[node != situation.seating.node[0]].tolist())]
    inside = way is Way.RELAUNCH
    return Proposal(
        kind=Kind.SPARE_NODE,
        title=f"{'spare' if inside else 'free'} {', '.join(there[:4])}{' ...' if len(there) > 4 else ''} for "
        f"{', '.join(situation.job.nodes[at] for at in hit[:4])}{' ...' if len(hit) > 4 else ''}",
        way=way,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        needs=no_kill(wreck) if inside else (),
        why=(_where(situation, hit[0], first),),
    )


def _choices(
    situation: Situation, wreck: Wreck, hit: Sequence[int], among: Mask, way: Way
) -> Iterator[list[tuple[Index, int]]]:
    """Yield which ranks go to which node: those of the groups that were hit, where a step may do that, and all."""
    seated = situation.seating.node[0]
    if len(hit) == 1:
        nearest = nearest_nodes(situation, hit[0], among)[:_MOST_JUDGED]
        for there in nearest:
            everybody = np.flatnonzero(seated == hit[0])
            groups = _groups(situation, wreck, everybody)
            if way is Way.RELAUNCH and groups.size < everybody.size:
                yield [(groups, there)]
            yield [(everybody, there)]
        return
    left = among.copy()
    pairs = []
    for node in hit:
        there = min(np.flatnonzero(left).tolist(), key=lambda other: nearness(situation, node, other))
        left[there] = False
        pairs.append((np.flatnonzero(seated == node), there))
    yield pairs


def _groups(situation: Situation, wreck: Wreck, ranks: Index) -> Index:
    """Return those of a node's ranks that share an HB domain for good reason with one that was hit."""
    size = inner_group(situation.plan, situation.node_gpus)
    hit = np.unique(victims(situation, wreck) // size)
    found: Index = ranks[np.isin(ranks // size, hit)]
    return found


def _where(situation: Situation, node: int, other: int) -> str:
    """Say how near the new node is."""
    domain, unit, cables = distance(situation, node, other)
    if not domain:
        return "in the same HB domain"
    if not unit:
        return "in the same scalable unit, on the same leaves"
    return f"in another scalable unit, {cables} cables from leaf to leaf" if cables < 1 << 20 else "in another unit"


def _nodes(count: int | np.signedinteger) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
