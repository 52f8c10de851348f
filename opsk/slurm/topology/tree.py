"""Builds the ``topology/tree`` of a rail-optimised fabric.

A leaf switch of Slurm is a scalable unit: the nodes that share one leaf per rail. A rail leaf is no switch of its own
there, since Slurm requires each node under one leaf switch only. The switches above represent the spines that units
share; parts of the fabric that no cable joins stay separate trees, between which Slurm places no job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations

from opsk.errors import InputError
from opsk.fabric.cabling import shorten_name
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails
from opsk.slurm.topology.conf import Entry, SlurmTopology, match_slurm_names, render_conf

TREE_HEADING = "topology/tree, written by opsk from the cabling of the fabric"


def build_topology_tree(rails: Rails, *, node_names: Collection[str] | None = None) -> SlurmTopology:
    """Return the tree of a fabric, the same for the same cabling.

    Parameters
    ----------
    node_names
        Names that Slurm knows (see `slurm_names`); without it all compute nodes of the fabric are written.

    Raises
    ------
    InputError
        When no node is left to write.
    """
    units = collect_units(rails, node_names)
    entries = [
        Entry(name=f"unit{index}", nodes=nodes, comment=", ".join(_list_leaves(rails, index)))
        for index, nodes in units.items()
    ]
    entries += _build_upper_levels(rails, list(units))
    return SlurmTopology(kind="tree", entries=tuple(entries), notes=note_absent_nodes(rails, node_names))


def render_tree(rails: Rails, *, node_names: Collection[str] | None = None) -> str:
    """Return `build_topology_tree` as the text of a ``topology.conf``; Slurm reads it from 22.05 on."""
    return render_conf(build_topology_tree(rails, node_names=node_names), heading=(TREE_HEADING,))


def collect_units(rails: Rails, node_names: Collection[str] | None) -> dict[int, tuple[str, ...]]:
    """Return the nodes of each scalable unit by Slurm's names; each node once, units without nodes left out.

    Raises
    ------
    InputError
        When no node is left.
    """
    taken: set[str] = set()
    units: dict[int, tuple[str, ...]] = {}
    for index, nodes in enumerate(rails.units):
        names = tuple(name for name in match_slurm_names(nodes, node_names) if name not in taken)
        taken.update(names)
        if names:
            units[index] = names
    if not units:
        raise InputError(
            "the fabric names no compute node that Slurm knows" if node_names is not None
            else "the fabric names no compute node",
            hint="node descriptions of HCAs must start with the host name (rdma-ndd sets them)",
        )  # fmt: skip
    return units


def note_absent_nodes(rails: Rails, node_names: Collection[str] | None, also: Collection[str] = ()) -> tuple[str, ...]:
    """Return a note on the nodes that Slurm knows and the fabric does not show; those in ``also`` are there."""
    present = {*also, *(name for nodes in rails.units for name in match_slurm_names(nodes, node_names))}
    missing = sorted(set(node_names or ()) - present, key=natural_key)
    if not missing:
        return ()
    some = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
    return (f"not on the fabric, so in no switch and no block: {len(missing)} nodes ({some})",)


def find_unit_tops(rails: Rails, units: Collection[int]) -> dict[int, int]:
    """Return for each unit the first of those that it is connected with, however far."""
    joined = _join({unit: [unit] for unit in units}, list(_compute_unit_distances(rails, sorted(units))))
    return {unit: first for first, members in joined.items() for unit in members}


def _list_leaves(rails: Rails, unit: int) -> list[str]:
    """Return the names of a unit's leaves."""
    leaves = [shorten_name(leaf.description) or leaf.guid for leaf in rails.leaves.values() if leaf.unit == unit]
    return sorted(leaves, key=natural_key)


def _build_upper_levels(rails: Rails, units: list[int]) -> list[Entry]:
    """Return the switches above the units: at each distance, those that it joins are under one."""
    distance = _compute_unit_distances(rails, units)
    tops = {index: [index] for index in units}
    names = {index: f"unit{index}" for index in units}
    entries: list[Entry] = []
    for level, reach in enumerate(sorted(set(distance.values())), 1):
        joined = _join(tops, [pair for pair, length in distance.items() if length <= reach])
        for number, (first, parts) in enumerate(joined.items()):
            if len(parts) > 1:
                name = f"spine{level}-{number}"
                entries.append(Entry(name=name, children=tuple(names[part] for part in parts)))
                names[first] = name
        tops = {first: [unit for part in parts for unit in tops[part]] for first, parts in joined.items()}
    return entries


def _compute_unit_distances(rails: Rails, units: list[int]) -> dict[tuple[int, int], int]:
    """Return the least leaf distance of each two units that are connected."""
    leaves: dict[int, dict[int | None, str]] = {unit: {} for unit in units}
    for leaf in sorted(rails.leaves.values(), key=lambda leaf: leaf.guid):
        if leaf.unit in leaves:
            leaves[leaf.unit].setdefault(leaf.rail, leaf.guid)
    distances: dict[tuple[int, int], int] = {}
    for first, second in combinations(units, 2):
        rails_of_both = leaves[first].keys() & leaves[second].keys()
        pairs = [(leaves[first][rail], leaves[second][rail]) for rail in rails_of_both]
        lengths = [
            rails.leaf_distance[pair]
            for pair in pairs or [(a, b) for a in leaves[first].values() for b in leaves[second].values()]
            if pair in rails.leaf_distance
        ]
        if lengths:
            distances[first, second] = min(lengths)
    return distances


def _join(tops: Mapping[int, list[int]], pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return which tops the pairs of units join, by the first of each group."""
    top_of = {unit: top for top, members in tops.items() for unit in members}
    root = {top: top for top in tops}

    def find(top: int) -> int:
        while root[top] != top:
            top = root[top]
        return top

    for first, second in pairs:
        low, high = sorted((find(top_of[first]), find(top_of[second])))
        root[high] = low
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for top in sorted(tops):
        groups[find(top)].append(top)
    return dict(groups)
