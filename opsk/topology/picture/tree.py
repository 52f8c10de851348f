"""How do the tiers of switches stand above each other, and what joins them? The tree, folded where it is too wide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsk.topology.cabling import short_name
from opsk.topology.fabric import Fabric
from opsk.topology.graph import switch_neighbours, tiers
from opsk.topology.hosts import natural
from opsk.topology.picture.boxes import UNNAMED, Box, Boxes
from opsk.topology.picture.folding import Folding
from opsk.topology.picture.lines import Line, read_lines
from opsk.topology.picture.load import Loads
from opsk.topology.picture.marks import read_marks
from opsk.topology.picture.ordering import arranged
from opsk.topology.rails import Rails

__all__ = ["MOST_BOXES", "UNNAMED", "Box", "Line", "Tier", "Tree", "build_tree"]

MOST_BOXES = 60
"""A tier of more switches than this is folded."""
_NAMES = ("leaf", "spine", "core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier: ``boxes`` are indices from left to right; ``level`` is ``None`` for what no leaf is reached from."""

    level: int | None
    name: str
    boxes: tuple[int, ...]
    switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The tree, tiers from top to bottom; ``usual`` is the cables of most pairs of switches between two tiers."""

    tiers: tuple[Tier, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    usual: Mapping[tuple[int, int], int]
    folded: bool
    loaded: bool


def build_tree(
    fabric: Fabric, rails: Rails, loads: Loads | None = None, *, most: int = MOST_BOXES, most_above: int = MOST_BOXES
) -> Tree:
    """Return the tree of tiers.

    Parameters
    ----------
    loads
        Utilisation of links, when known.
    most, most_above
        Leaves, and switches of each higher tier, beyond which they are folded: by unit, else by what they are cabled
        to.
    """
    neighbours = switch_neighbours(fabric)
    tier = tiers(neighbours, {guid for guid, leaf in rails.leaves.items() if not leaf.off_tier})
    levels = sorted(set(tier.values()))
    order = _order(fabric, rails)
    folding = Folding(neighbours, tier, rails, most, most_above)
    for level in levels:
        folding.fold(level, sorted((guid for guid in tier if tier[guid] == level), key=order))
    folding.fold(None, sorted(fabric.switches.keys() - tier.keys(), key=order))
    marks = read_marks((*fabric.faults, *rails.faults))
    joined = read_lines(neighbours, tier, folding, loads, marks)
    filled = Boxes(fabric, rails, loads, marks, neighbours, tier)
    boxes = tuple(filled.box(group, joined.inside[index]) for index, group in enumerate(folding.groups))
    rows = [[index for index, box in enumerate(boxes) if box.tier == level] for level in reversed(levels)]
    rows = arranged(rows, [(line.low, line.high, line.cables) for line in joined.lines if line.cables])
    rows.append([index for index, box in enumerate(boxes) if box.tier is None])
    return Tree(
        tiers=tuple(_tier(boxes, row, len(levels)) for row in rows if row),
        boxes=boxes,
        lines=joined.lines,
        usual={pair: count for pair, count in joined.usual.items() if pair[0] < pair[1]},
        folded=any(len(box.switches) > 1 for box in boxes),
        loaded=bool(loads),
    )


def _order(fabric: Fabric, rails: Rails) -> Callable[[str], tuple[Any, ...]]:
    """Return the key by which switches stand before lines are looked at: unit, rail, role, name."""

    def key(guid: str) -> tuple[Any, ...]:
        leaf = rails.leaves.get(guid)
        unit, rail, role = (leaf.unit, leaf.rail, leaf.role) if leaf else (None, None, "")
        name = natural(short_name(fabric.switches[guid].description))
        return unit is None, unit or 0, rail is None, rail or 0, role, name, guid

    return key


def _tier(boxes: Sequence[Box], row: Sequence[int], tiers_in_all: int) -> Tier:
    level = boxes[row[0]].tier
    if level is None:
        name = "no path to a leaf"
    elif level < min(tiers_in_all, len(_NAMES)) and (level < 2 or tiers_in_all == len(_NAMES)):
        name = _NAMES[level]
    else:
        name = f"tier {level}"
    return Tier(level=level, name=name, boxes=tuple(row), switches=sum(len(boxes[index].switches) for index in row))
