"""Proposes a spare node to take over: one that the job holds already, or a free one through the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opsk.planning.placement.evaluation import Verdicts
from opsk.planning.placement.rank_placement import inner_group
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.other_nodes import distance, move_ranks, nearest_nodes, nearness
from opsk.planning.remap.proposal import (
    Proposal,
    as_good_as_today,
    find_affected_ranks,
    find_healthy_nodes,
    is_preferred,
    judge_slots,
    require_no_kill,
    stays_impossible,
)
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_ports import Index

_MAX_EVALUATED = 4
"""Maximum kinds of cabling of which a node is evaluated."""

Pairs = Sequence[tuple[Index, int]]


def spare_node(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best node of the allocation, and the best free one, or why there is none."""
    if impact.failure.domains:
        yield Refusal(kind=Kind.SPARE_NODE, why="a whole HB domain failed: see hb_domain")
        return
    affected = np.unique(situation.rank_placement.node[0, find_affected_ranks(situation, impact)]).tolist()
    whole = find_healthy_nodes(situation, impact)
    spares, free = whole & situation.held & ~situation.used, whole & situation.free
    reason = stays_impossible(situation, impact, is_running=terms.is_running)
    if not reason and np.count_nonzero(spares) < len(affected):
        reason = f"the job holds {_format_nodes(np.count_nonzero(spares))} to spare, needed: {len(affected)}"
    if reason:
        yield Refusal(kind=Kind.SPARE_NODE, why=f"inside the allocation: {reason}")
    else:
        yield _find_best(situation, impact, affected, spares, Way.RELAUNCH)
    if not situation.held[affected].all() or np.count_nonzero(free) + np.count_nonzero(spares) < len(affected):
        yield Refusal(
            kind=Kind.SPARE_NODE,
            why=f"through the queue: {_format_nodes(np.count_nonzero(free))} free are known, needed: {len(affected)}",
        )
    elif not free.any():
        yield Refusal(kind=Kind.SPARE_NODE, why="through the queue: no free node is known")
    else:
        yield _find_best(
            situation, impact, affected, free if np.count_nonzero(free) >= len(affected) else free | spares, Way.REQUEUE
        )


def _find_best(
    situation: Situation, impact: FailureImpact, affected: Sequence[int], among: Mask, way: Way
) -> Proposal | Refusal:
    """Return the nodes with the shortest step; among equals the one for which the fewest ranks move."""
    best: tuple[Verdicts, tuple[Index, Index], int] | None = None
    fewest = 0
    for pairs in _list_choices(situation, impact, affected, among, way):
        node, gpu = move_ranks(situation, impact, pairs)
        verdict = judge_slots(situation, impact, node, gpu)
        moved = sum(int(ranks.size) for ranks, _ in pairs)
        if is_preferred(situation, verdict, moved, best[0] if best else None, fewest):
            best, fewest = (verdict, (node, gpu), int(pairs[0][1])), moved
        if best is not None and as_good_as_today(situation, best[0]):
            break
    if best is None or not np.isfinite(best[0].step_s[0]):
        return Refusal(kind=Kind.SPARE_NODE, why="no spare node has a path to the others")
    verdict, (node, gpu), first = best
    replacements = [
        situation.job.nodes[number] for number in dict.fromkeys(node[node != situation.rank_placement.node[0]].tolist())
    ]
    inside = way is Way.RELAUNCH
    return Proposal(
        kind=Kind.SPARE_NODE,
        title=f"{'spare' if inside else 'free'} {_shorten(replacements)} for "
        f"{_shorten([situation.job.nodes[number] for number in affected])}",
        way=way,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        needs=require_no_kill(impact) if inside else (),
        why=(_describe_distance(situation, affected[0], first),),
    )


def _shorten(names: Sequence[str]) -> str:
    """Return the first four names, with an ellipsis for the rest."""
    return f"{', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"


def _list_choices(
    situation: Situation, impact: FailureImpact, affected: Sequence[int], among: Mask, way: Way
) -> Iterator[list[tuple[Index, int]]]:
    """Yield the ranks that move to each node: those of the affected groups, where a step may do that, and all."""
    node_of_rank = situation.rank_placement.node[0]
    if len(affected) == 1:
        nearest = nearest_nodes(situation, affected[0], among)[:_MAX_EVALUATED]
        for there in nearest:
            everybody = np.flatnonzero(node_of_rank == affected[0])
            groups = _list_affected_groups(situation, impact, everybody)
            if way is Way.RELAUNCH and groups.size < everybody.size:
                yield [(groups, there)]
            yield [(everybody, there)]
        return
    left = among.copy()
    pairs = []
    for node in affected:
        there = min(np.flatnonzero(left).tolist(), key=lambda other: nearness(situation, node, other))
        left[there] = False
        pairs.append((np.flatnonzero(node_of_rank == node), there))
    yield pairs


def _list_affected_groups(situation: Situation, impact: FailureImpact, ranks: Index) -> Index:
    """Return those of a node's ranks that are in one inner group with an affected rank."""
    size = inner_group(situation.plan, situation.node_gpus)
    affected = np.unique(find_affected_ranks(situation, impact) // size)
    members: Index = ranks[np.isin(ranks // size, affected)]
    return members


def _describe_distance(situation: Situation, node: int, other: int) -> str:
    """Return how near the new node is."""
    domain, unit, cables = distance(situation, node, other)
    if not domain:
        return "in the same HB domain"
    if not unit:
        return "in the same scalable unit, on the same leaves"
    return f"in another scalable unit, {cables} cables from leaf to leaf" if cables < 1 << 20 else "in another unit"


def _format_nodes(count: int | np.signedinteger) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
