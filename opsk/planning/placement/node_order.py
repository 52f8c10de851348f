"""Selects the nodes of a job among the candidates, and orders them.

Nodes of one scalable unit follow each other, and so do units that are near each other. The outermost groups of the plan
(pipeline stages, or replicas) lie within one unit wherever it has room for a whole group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails

UNKNOWN_UNIT = -1
_FAR = 1 << 20


def slurm_order(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes as Slurm numbers them in a job without topology ordering: by name, ``n2`` before ``n10``."""
    return tuple(sorted(set(nodes), key=natural_key))


def unit_of_nodes(rails: Rails, nodes: Sequence[str]) -> dict[str, int]:
    """Return the scalable unit of each node: that of most of its leaves; ``UNKNOWN_UNIT`` where there is none."""
    units: dict[str, int] = {}
    leaves, attachments = rails.leaves, rails.attachments
    for node in nodes:
        units_of_leaves = [
            leaf.unit
            for hca in attachments.get(node, ())
            if (leaf := leaves.get(hca.leaf)) is not None and leaf.unit is not None
        ]
        if len(set(units_of_leaves)) < 2:  # nearly all nodes
            units[node] = units_of_leaves[0] if units_of_leaves else UNKNOWN_UNIT
            continue
        votes = Counter(units_of_leaves)
        units[node] = min(votes, key=lambda unit: (-votes[unit], unit))
    return units


def node_order(
    rails: Rails,
    nodes: Sequence[str],
    *,
    needed: int,
    block_nodes: int,
    domain_of: Mapping[str, str],
    group_nodes: int = 1,
) -> tuple[str, ...]:
    """Return the ``needed`` nodes to take, in the order in which ranks fill them.

    Parameters
    ----------
    block_nodes
        Nodes of one outermost group of the plan, 1 where it is no whole number.
    domain_of
        Node to HB domain; a domain's nodes stay together.
    group_nodes
        Nodes that a group of ranks fills which should not leave its domain: while there are enough, only so many nodes
        of a domain are taken as hold whole groups (16 of an NVL72's 18 for groups of 64).
    """
    units = unit_of_nodes(rails, nodes)
    members: defaultdict[int, list[str]] = defaultdict(list)
    for node in sorted(set(nodes), key=lambda name: (natural_key(domain_of[name]), natural_key(name))):
        members[units[node]].append(node)
    whole = {unit: _select_whole_groups(names, domain_of, group_nodes) for unit, names in members.items()}
    chosen = _select_compact(whole if sum(map(len, whole.values())) >= needed else members, needed)
    bins: dict[tuple[int, str], list[str]] = {}
    for unit in _sort_nearest_first(rails, chosen):
        crowded = Counter(domain_of[node] for node in chosen[unit])
        for node in chosen[unit]:
            domain = domain_of[node] if crowded[domain_of[node]] > 1 else ""
            bins.setdefault((unit, domain), []).append(node)
    return _fill_blocks(list(bins.values()), block_nodes)


def _select_whole_groups(nodes: Sequence[str], domain_of: Mapping[str, str], group_nodes: int) -> list[str]:
    """Return the nodes without those of each domain that would be left over from whole groups."""
    left = {domain: count // group_nodes * group_nodes for domain, count in Counter(map(domain_of.get, nodes)).items()}
    chosen = []
    for node in nodes:
        if left[domain_of[node]]:
            left[domain_of[node]] -= 1
            chosen.append(node)
    return chosen


def _select_compact(members: Mapping[int, list[str]], needed: int) -> dict[int, list[str]]:
    """Return ``needed`` nodes from few units: the smallest that holds them all, else the largest until it does."""
    chosen: dict[int, list[str]] = {}
    left = dict(members)
    while needed and left:
        known = [unit for unit in left if unit != UNKNOWN_UNIT] or list(left)
        holding = [unit for unit in known if len(left[unit]) >= needed]
        if holding:
            unit = min(holding, key=lambda candidate: (len(left[candidate]), candidate))
        else:
            unit = max(known, key=lambda candidate: (len(left[candidate]), -candidate))
        chosen[unit] = left.pop(unit)[:needed]
        needed -= len(chosen[unit])
    return chosen


def _sort_nearest_first(rails: Rails, units: Mapping[int, Sequence[str]]) -> list[int]:
    """Return the units so that those near each other follow each other, by number otherwise."""
    left = sorted(units, key=lambda unit: (unit == UNKNOWN_UNIT, unit))
    leaf = {unit: next((hca.leaf for hca in rails.attachments.get(units[unit][0], ())), None) for unit in left}
    row: list[int] = []
    while left:
        seed = left.pop(0)
        row.append(seed)
        apart = {unit: _measure_distance(rails, leaf[seed], leaf[unit]) for unit in left}
        near = [unit for unit in left if apart[unit] == min(apart.values()) < _FAR]
        row += near
        left = [unit for unit in left if unit not in near]
    return row


def _measure_distance(rails: Rails, leaf: str | None, other_leaf: str | None) -> int:
    """Return the switch-to-switch cables between two leaves; far where no path is known."""
    if leaf is None or other_leaf is None:
        return _FAR
    return rails.leaf_distance.get((leaf, other_leaf), _FAR)


def _fill_blocks(bins: Sequence[Sequence[str]], block_nodes: int) -> tuple[str, ...]:
    """Fill whole blocks from single bins first; blocks that must straddle bins come last, of bins near each other."""
    whole: list[str] = []
    rests: list[Sequence[str]] = []
    for nodes in bins:
        fitting = len(nodes) // block_nodes * block_nodes
        whole += nodes[:fitting]
        if len(nodes) > fitting:
            rests.append(nodes[fitting:])
    return (*whole, *chain.from_iterable(rests))
