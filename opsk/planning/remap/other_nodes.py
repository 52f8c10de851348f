"""Proposes other nodes to take over: a spare node, held by the job or free in the queue, or another whole HB domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opsk.planning.placement.rank_placement import Verdicts, inner_group, is_better
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import (
    Proposal,
    as_good_as_today,
    copy_current_slots,
    find_affected_ranks,
    find_healthy_nodes,
    is_preferred,
    judge_slots,
    match_gpus,
    require_no_kill,
    stays_impossible,
)
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.values import OptionKind, Refusal, Terms, Way
from opsk.planning.routing.hca_ports import Index

_FAR = 1 << 20
_MAX_EVALUATED = 4
"""Maximum kinds of cabling of which a node is evaluated."""
Pairs = Sequence[tuple[Index, int]]


def nearest_nodes(situation: Situation, node: int, among: Mask) -> list[int]:
    """Return the first node of each kind of cabling, those nearest to ``node`` first."""
    ports = situation.job.ports
    leaf = ports.leaf[ports.port]
    by_cabling: dict[tuple[object, ...], int] = {}
    for other in np.flatnonzero(among).tolist():
        row = ports.port[other]
        key = (
            int(situation.job.domains[other]) if is_shared(situation, other) else -1,
            tuple(leaf[other].tolist()),
            tuple(ports.rail[row].tolist()),
            tuple(ports.bytes_per_s[row].tolist()),
        )
        by_cabling.setdefault(key, other)
    return sorted(by_cabling.values(), key=lambda other: nearness(situation, node, other))


def is_shared(situation: Situation, node: int) -> bool:
    """Return whether a node's HB domain has other nodes as well."""
    return bool(np.count_nonzero(situation.job.domains == situation.job.domains[node]) > 1)


def nearness(situation: Situation, node: int, other: int) -> tuple[bool, bool, int, int, int]:
    """Return the sort key of a node: its location, then how many GPUs are on another rail than ``node``'s."""
    domain, unit, cables = distance(situation, node, other)
    ports = situation.job.ports
    off = int((ports.rail[ports.port[node]] != ports.rail[ports.port[other]]).sum())
    return domain, unit, off, cables, other


def distance(situation: Situation, node: int, other: int) -> tuple[bool, bool, int]:
    """Return how far two nodes are apart: another HB domain, another unit, switch-to-switch cables."""
    ports = situation.job.ports
    here, there = ports.find_attachment(node, 0), ports.find_attachment(other, 0)
    cables = _FAR
    if here is not None and there is not None:
        cables = situation.rails.leaf_distance.get((here.leaf, there.leaf), _FAR)
    return (
        bool(situation.job.domains[node] != situation.job.domains[other]),
        bool(situation.unit[node] != situation.unit[other]),
        cables,
    )


def move_ranks(situation: Situation, impact: FailureImpact, pairs: Sequence[tuple[Index, int]]) -> tuple[Index, Index]:
    """Return the slots after moving the ranks of each pair to its node, each to a GPU on its rail."""
    node, gpu = copy_current_slots(situation)
    for ranks, there in pairs:
        free = np.flatnonzero(~impact.dead[there] & situation.idle[there]).tolist()
        current_gpus = situation.rank_placement.gpu[0, ranks].tolist()
        gpu[ranks] = match_gpus(situation, current_gpus, there, free, ranks)
        node[ranks] = there
    return node, gpu


def spare_node(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best node of the allocation, and the best free one, or why there is none."""
    if impact.failure.domains:
        yield Refusal(kind=OptionKind.SPARE_NODE, why="a whole HB domain failed: see hb_domain")
        return
    affected = np.unique(situation.rank_placement.node[0, find_affected_ranks(situation, impact)]).tolist()
    whole = find_healthy_nodes(situation, impact)
    spares, free = whole & situation.held & ~situation.used, whole & situation.free
    reason = stays_impossible(situation, impact, is_running=terms.is_running)
    if not reason and np.count_nonzero(spares) < len(affected):
        reason = f"the job holds {_format_nodes(np.count_nonzero(spares))} to spare, needed: {len(affected)}"
    if reason:
        yield Refusal(kind=OptionKind.SPARE_NODE, why=f"inside the allocation: {reason}")
    else:
        yield _find_best_spare(situation, impact, affected, spares, Way.RELAUNCH)
    if not situation.held[affected].all() or np.count_nonzero(free) + np.count_nonzero(spares) < len(affected):
        yield Refusal(
            kind=OptionKind.SPARE_NODE,
            why=f"through the queue: {_format_nodes(np.count_nonzero(free))} free are known, needed: {len(affected)}",
        )
    elif not free.any():
        yield Refusal(kind=OptionKind.SPARE_NODE, why="through the queue: no free node is known")
    else:
        yield _find_best_spare(
            situation, impact, affected, free if np.count_nonzero(free) >= len(affected) else free | spares, Way.REQUEUE
        )


def _find_best_spare(
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
        return Refusal(kind=OptionKind.SPARE_NODE, why="no spare node has a path to the others")
    verdict, (node, gpu), first = best
    replacements = [
        situation.job.nodes[number] for number in dict.fromkeys(node[node != situation.rank_placement.node[0]].tolist())
    ]
    inside = way is Way.RELAUNCH
    return Proposal(
        kind=OptionKind.SPARE_NODE,
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


def hb_domain(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best domain that the job holds, and the best free one, or why there is none."""
    ranks = impact.find_affected(situation)
    affected = np.unique(situation.job.domains[situation.rank_placement.node[0, ranks]]).tolist()
    reason = _explain_refusal(situation, impact, affected)
    if reason:
        yield Refusal(kind=OptionKind.HB_DOMAIN, why=reason)
        return
    whole = find_healthy_nodes(situation, impact)
    inside = stays_impossible(situation, impact, is_running=terms.is_running)
    candidates = []
    for among, way in ((whole & situation.held, Way.RELAUNCH), (whole & situation.free, Way.REQUEUE)):
        if way is Way.REQUEUE or not inside:
            candidates.append(_find_best_domain(situation, impact, affected[0], among, way))
    proposals = [proposal for proposal in candidates if proposal is not None]
    yield from proposals
    if not proposals:
        needed = np.unique(_list_members(situation, affected[0])).size
        yield Refusal(
            kind=OptionKind.HB_DOMAIN,
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


def _find_best_domain(
    situation: Situation, impact: FailureImpact, domain: int, among: Mask, way: Way
) -> Proposal | None:
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
        kind=OptionKind.HB_DOMAIN,
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
