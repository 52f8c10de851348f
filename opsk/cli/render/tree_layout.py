"""Computes the positions of the boxes of the tree of tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsk.cli.render.style import FONT, LEFT, SMALL, WIDTH
from opsk.cli.render.svg import measure_bold_width, measure_width
from opsk.fabric.views.names import format_ranges
from opsk.fabric.views.tree import UNNAMED, Box, Line, Tier, Tree

MARGIN = 120.0
"""Width of the tier names left of the boxes."""
HOSTS = 58.0
ROLES = (("compute", "c"), ("storage", "s"), ("management", "m"), (UNNAMED, "?"))
_MIN_WIDTH, _MAX_WIDTH = 27.0, 150.0
_TALL, _FLAT = 124.0, 64.0
_GAP = 150.0
_BOW = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of a box; ``upright`` when its texts are rotated."""

    x: float
    y: float
    width: float
    height: float
    upright: bool

    @property
    def middle(self) -> float:
        """Horizontal centre, where lines meet the box."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Lower end, where its hosts are attached."""
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions by box, and their extent."""

    places: Mapping[int, Place]
    right: float
    bottom: float


def lay_out(tree: Tree, labels: Mapping[str, str], top: float) -> Layout:
    """Return the places of all boxes; every tier is spread over the whole width, so that lines go straight down."""
    widest = max(len(tier.boxes) for tier in tree.tiers)
    room = WIDTH - 2 * LEFT - MARGIN
    slot = max(room / widest, _MIN_WIDTH + 4)
    room = max(room, widest * slot)
    places: dict[int, Place] = {}
    y = top
    bottom = top
    for tier in tree.tiers:
        if _find_level_lines(tree, tier):
            y += _BOW
        spacing = room / len(tier.boxes)
        width = min(spacing - 4 if spacing < 60 else spacing - 12, _MAX_WIDTH)
        upright = not _fits(tree, tier, labels, width)
        height = _TALL if upright else _FLAT
        for position, index in enumerate(tier.boxes):
            middle = LEFT + MARGIN + (position + 0.5) * spacing
            places[index] = Place(x=middle - width / 2, y=y, width=width, height=height, upright=upright)
        bottom = y + height + (HOSTS if tier is tree.tiers[-1] or tier.level == 0 else 0)
        y = bottom + _GAP
    return Layout(places=places, right=LEFT + MARGIN + room, bottom=bottom)


def _find_level_lines(tree: Tree, tier: Tier) -> list[Line]:
    """Return the lines between two boxes of a tier."""
    return [line for line in tree.lines if line.low in tier.boxes and line.high in tier.boxes]


def _fits(tree: Tree, tier: Tier, labels: Mapping[str, str], width: float) -> bool:
    """Return whether the boxes of a tier are wide enough for horizontal text."""
    if width >= 0.6 * _MAX_WIDTH:
        return True
    boxes = [tree.boxes[index] for index in tier.boxes]
    titles = all(measure_bold_width(format_title(box, labels), FONT) <= width - 6 for box in boxes)
    return titles and all(measure_width(fact, SMALL) <= width - 6 for box in boxes for fact in list_facts(box))


def format_title(box: Box, labels: Mapping[str, str]) -> str:
    """Return the name of a box."""
    return format_ranges(labels[guid] for guid in box.switches)


def list_facts(box: Box) -> Sequence[str]:
    """Return the lines below the name of a box, the most important first."""
    down = box.hca_links + box.down_cables
    links = [f"{down}↓"] if down else []
    links += [f"{box.up_cables}↑"] if box.up_cables else []
    ratio = [f"{box.ratio:.2f}:1"] if box.ratio is not None else []
    together = [" ".join(links)] if links else []
    lines = [f"{len(box.switches)} switches", *ratio, *together] if len(box.switches) > 1 else [*together, *ratio]
    if box.tier != 0 and box.hosts:
        lines.append(" ".join(format_counts(box)))
    if box.inside and len(box.switches) == 1:
        lines.append(f"{box.inside} loop" + ("s" if box.inside > 1 else ""))
    return lines


def format_counts(box: Box) -> list[str]:
    """Return the numbers of hosts by role."""
    return [f"{box.hosts[role]}{letter}" for role, letter in ROLES if box.hosts.get(role)]
