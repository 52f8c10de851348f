"""Compares two Slurm topologies by what changes for nodes, not by names.

Names of switches and blocks are arbitrary; two of them are the same when they hold the same nodes. So groups (leaf
switches, blocks) are matched by the nodes that they share, and a node moves when its group's counterpart is another.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opsk.fabric.hosts.ports import natural_key
from opsk.slurm.topology.conf import TopologyConf


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A node that changes its leaf switch or block: names of the groups in each topology."""

    node: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs.

    Parameters
    ----------
    appear, vanish
        Nodes that only the new, or only the old, topology has.
    moves
        Nodes that change group.
    upper_levels
        True when other leaf switches are connected above (tree), or blocks follow each other otherwise (block).
    sizes
        ``BlockSizes`` before and after, where they differ.
    """

    appear: tuple[str, ...] = ()
    vanish: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    upper_levels: bool = False
    sizes: tuple[str | None, str | None] | None = None

    @property
    def is_same(self) -> bool:
        """True when both mean the same."""
        return not (self.appear or self.vanish or self.moves or self.upper_levels or self.sizes)


def compare_topologies(before: TopologyConf, after: TopologyConf) -> Difference:
    """Return what changes for nodes from one topology to the other."""
    old, new = _map_groups(before), _map_groups(after)
    counterpart = _match_groups(old, new)
    stay = [node for node in new if node in old]
    moves = [
        Move(node=node, before=old[node], after=new[node]) for node in stay if counterpart.get(new[node]) != old[node]
    ]
    common = frozenset(stay)
    sizes = (before.block_sizes, after.block_sizes)
    return Difference(
        appear=tuple(sorted(new.keys() - old.keys(), key=natural_key)),
        vanish=tuple(sorted(old.keys() - new.keys(), key=natural_key)),
        moves=tuple(sorted(moves, key=lambda move: natural_key(move.node))),
        upper_levels=not moves and _describe_connections(before, common) != _describe_connections(after, common),
        sizes=sizes if _numbers(sizes[0]) != _numbers(sizes[1]) else None,
    )


def diff_texts(before: str, after: str, *, before_name: str, after_name: str) -> str:
    """Return a unified diff of two texts; empty when they are the same."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _map_groups(conf: TopologyConf) -> dict[str, str]:
    """Return the group of each node; the first that names it, where two do."""
    group: dict[str, str] = {}
    for name, nodes in conf.groups.items():
        for node in nodes:
            group.setdefault(node, name)
    return group


def _match_groups(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the old counterpart of new groups: pairs that share most nodes first, each group once."""
    shared = Counter((group, old[node]) for node, group in new.items() if node in old)
    counterpart: dict[str, str] = {}
    used: set[str] = set()
    for (group, other), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0][0] != item[0][1], item[0])):
        if group not in counterpart and other not in used:
            counterpart[group] = other
            used.add(other)
    return counterpart


def _describe_connections(conf: TopologyConf, nodes: frozenset[str]) -> object:
    """Return what holds groups together: the sets of nodes below upper switches, and the order of blocks.

    A switch above one group joins nothing, and the order of blocks matters where Slurm makes larger ones of them.
    """
    groups = {frozenset(group) & nodes for group in conf.groups.values()}
    above = {conf.nodes_below(name) & nodes for name, switch in conf.switches.items() if switch.switches}
    order = [frozenset(block) & nodes for block in conf.blocks.values() if nodes.intersection(block)]
    return above - groups - {frozenset()}, order if len(_numbers(conf.block_sizes)) != 1 else None


def _numbers(sizes: str | None) -> tuple[str, ...]:
    """Return block sizes without what does not matter in how they are written."""
    return tuple(part.strip() for part in sizes.split(",")) if sizes else ()
