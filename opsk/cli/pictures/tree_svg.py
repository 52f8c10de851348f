"""How is the tree of tiers drawn as SVG: its lines, their numbers, and all of it together?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opsk.cli.pictures.style import LEFT, SMALL, WIDTH, Drawing, legend, load_entries
from opsk.cli.pictures.svg import element, text, told, tooltip, width_of
from opsk.cli.pictures.tree_boxes import draw_box, draw_hosts, named
from opsk.cli.pictures.tree_layout import ROLES, Place, lay_out
from opsk.topology.picture.load import percent, step
from opsk.topology.picture.tree import UNNAMED, Line, Tree

_MANY_LINES = 150
_FEW_LINES = 40
_HOTTEST = 5
_MOST_NUMBERS = 80
_SHARES = tuple(share / 20 for share in (8, 6, 10, 4, 12, 14, 16, 3, 17))
"""Where on a line its number may stand, the best place first; 0 is the lower end."""


def draw_tree(tree: Tree, labels: Mapping[str, str], top: float) -> Drawing:
    """Return the tree from ``top`` on; ``labels`` are short names of switches by guid."""
    parts = [text(LEFT, top + 20, "Tiers", "h")]
    if not tree.boxes:
        return Drawing(parts=[*parts, text(LEFT, top + 44, "No switches.", "d")], right=WIDTH, bottom=top + 50)
    layout = lay_out(tree, labels, top + 44)
    places = layout.places
    parts += _names(tree, places)
    parts += _lines(tree, places, labels)
    for index, box in enumerate(tree.boxes):
        parts.append(draw_box(box, places[index], labels))
        if box.hosts:
            parts.append(draw_hosts(box, places[index], below=box.tier == 0))
    parts += _numbers(tree, places)
    drawn, y = legend(_entries(tree), layout.bottom + 20, LEFT, layout.right)
    parts += drawn
    if tree.loaded:
        drawn, y = legend(load_entries("line"), y + 14, LEFT, layout.right)
        parts += drawn
    return Drawing(parts=parts, right=layout.right, bottom=y)


def _names(tree: Tree, places: Mapping[int, Place]) -> Iterator[str]:
    """Yield the names of the tiers at the left, with how many switches they have and how they are cabled upwards."""
    for tier in tree.tiers:
        y = places[tier.boxes[0]].y
        yield text(LEFT, y + 18, tier.name, "b")
        yield text(LEFT, y + 34, f"{tier.switches} switch" + ("es" if tier.switches != 1 else ""), "s d")
        for (low, high), usual in sorted(tree.usual.items()):
            if low == tier.level:
                each = f"{usual} cable{'s' if usual != 1 else ''} a pair"
                above = "" if high == low + 1 else f", {high - low} tiers up"
                yield text(LEFT, y - 14 - 14 * (high - low - 1), each + above, "s d")


def _lines(tree: Tree, places: Mapping[int, Place], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines, those that say something above the others."""
    many = len(tree.lines) > _MANY_LINES
    plain = [line for line in tree.lines if not _telling(line)]
    faint: dict[str, float | str] = {"opacity": "0.5"} if many else {}
    yield element("g", *(_line(line, tree, places, labels, 1.0 if many else 1.5) for line in plain), **faint)
    for line in sorted(filter(_telling, tree.lines), key=lambda line: line.load or 0.0):
        yield _line(line, tree, places, labels, 1.8)


def _telling(line: Line) -> bool:
    return line.odd or bool(line.faults) or bool(line.load)


def _line(line: Line, tree: Tree, places: Mapping[int, Place], labels: Mapping[str, str], width: float) -> str:
    low, high = tree.boxes[line.low], tree.boxes[line.high]
    if line.pairs > 1:
        cables = f"{line.cables} cables between {line.pairs} pairs of switches"
    elif line.odd:
        cables = f"{line.cables} of {line.usual} cables"
    else:
        cables = f"{line.cables} cable" + ("s" if line.cables != 1 else "")
    busiest = " on the busiest" if line.pairs > 1 else ""
    loads = [
        f"{way}: {percent(load)}{busiest}"
        for way, load in (("up", line.up_load), ("down", line.down_load))
        if load is not None
    ]
    if not line.cables:
        class_ = "none"
    elif line.load is not None:
        class_, width = f"l{step(line.load)}", 1.0 + 0.8 * step(line.load)
    else:
        class_ = "odd" if line.odd else "slowline" if line.faults else "line"
    said = [f"{named(low, labels)} to {named(high, labels)}", cables, *loads, *told(line.faults)]
    path = _path(places[line.low], places[line.high])
    return element("path", tooltip(said), d=path, class_=class_, stroke_width=width)


def _path(low: Place, high: Place) -> str:
    """Return a line from the top of the lower box to the bottom of the upper one; within a tier, a bow above."""
    if low.y != high.y:
        if low.y < high.y:
            low, high = high, low
        return f"M{low.middle:.1f} {low.y:.1f}L{high.middle:.1f} {high.bottom:.1f}"
    top = low.y - _rise(low, high)
    left, right = f"{low.middle:.1f}", f"{high.middle:.1f}"
    return f"M{left} {low.y:.1f}C{left} {top:.1f} {right} {top:.1f} {right} {high.y:.1f}"


def _rise(low: Place, high: Place) -> float:
    return min(24 + abs(low.middle - high.middle) / 12, 64)


def _numbers(tree: Tree, places: Mapping[int, Place]) -> Iterator[str]:
    """Yield numbers on lines that are out of line, and loads on the busiest; none upon another."""
    taken: list[tuple[float, float, float]] = []
    for line, said, class_ in _said(tree)[:_MOST_NUMBERS]:
        half = width_of(said, SMALL) / 2 + 2
        for x, y in _points(places[line.low], places[line.high]):
            if all(abs(x - other) >= half + reach or abs(y - level) >= 13 for other, level, reach in taken):
                taken.append((x, y, half))
                yield text(x, y + 4, said, class_)
                break


def _points(low: Place, high: Place) -> Iterator[tuple[float, float]]:
    """Yield the points of a line where a number may stand."""
    if low.y == high.y:
        yield (low.middle + high.middle) / 2, low.y - 0.75 * _rise(low, high) - 8
        return
    if low.y < high.y:
        low, high = high, low
    for share in _SHARES:
        yield low.middle + share * (high.middle - low.middle), low.y + share * (high.bottom - low.y)


def _said(tree: Tree) -> list[tuple[Line, str, str]]:
    """Return which lines carry a number, what and how, the most telling first."""
    loaded = sorted((line for line in tree.lines if line.load), key=lambda line: -(line.load or 0))
    hottest = [line for place, line in enumerate(loaded) if place < _HOTTEST or (line.load or 0) > 1]
    said = [(line, percent(line.load), "s b m halo") for line in hottest if line.load is not None]
    said += [(line, "slow", "s late m halo") for line in tree.lines if line.faults and not line.odd]
    said += [(line, f"{line.cables} of {line.usual}", "s bad m halo") for line in tree.lines if line.odd]
    if len(tree.lines) <= _FEW_LINES and not tree.loaded:
        said += [(line, f"{line.cables}×", "s d m halo") for line in tree.lines if line.pairs > 1]
    level = [line for line in tree.lines if tree.boxes[line.low].tier == tree.boxes[line.high].tier]
    said += [(line, f"{line.cables}× inside the tier", "s d m halo") for line in level if not line.load]
    return said


def _entries(tree: Tree) -> list[tuple[str, str, str]]:
    """Return what is to be explained of this tree."""
    roles = {role for box in tree.boxes for role in box.hosts}
    entries = [
        ("box", role, "? = HCAs without a host name" if role == UNNAMED else f"{letter} = {role} hosts")
        for role, letter in ROLES
        if role in roles
    ]
    if any(box.hca_links for box in tree.boxes):
        entries.append(("box", "box", "↓ links downwards, ↑ cables upwards, oversubscription"))
    if any(box.faults for box in tree.boxes):
        entries.append(("box", "wrong", "⚠ something is wrong"))
    if any(line.odd and line.cables for line in tree.lines):
        entries.append(("line", "odd", "fewer cables than usual"))
    if any(not line.cables for line in tree.lines):
        entries.append(("line", "none", "no cable where its like have one"))
    if any(line.faults for line in tree.lines):
        entries.append(("line", "slowline", "slow or narrow cable"))
    return entries
