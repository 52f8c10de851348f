"""Ranks the nodes that can replace an affected one: nearest first, one of each kind of cabling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import copy_current_slots, match_gpus
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.routing.hca_ports import Index

_FAR = 1 << 20


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
    here, there = ports.attached(node, 0), ports.attached(other, 0)
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
