"""How is the tree of tiers drawn as SVG: its lines, their numbers, and all of it together?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opsk.cli.render.style import FONT, LEFT, SMALL, WIDTH, Drawing, legend, load_entries
from opsk.cli.render.svg import bold_width, element, escaped, fitted, fitted_bold, text, told, tooltip, width_of
from opsk.cli.render.tree_layout import ROLES, Place, counts, facts, lay_out, title
from opsk.fabric.views.marks import percent, step, words
from opsk.fabric.views.names import ranges
from opsk.fabric.views.tree import UNNAMED, Box, Line, Tree

_LINE = 13.0
_BAR = 110.0


def named(box: Box, labels: Mapping[str, str]) -> str:
    """Return what a tooltip calls a box."""
    names = ranges(labels[guid] for guid in box.switches)
    return f"{len(box.switches)} switches {names}" if len(box.switches) > 1 else names


def draw_box(box: Box, place: Place, labels: Mapping[str, str]) -> str:
    """Return a switch, or several in one box that stands for them."""
    frame = {"width": place.width, "height": place.height, "rx": 4.0}
    behind = element("rect", x=place.x + 4, y=place.y - 4, class_="box", **frame) if len(box.switches) > 1 else ""
    shape = element("rect", x=place.x, y=place.y, class_="wrong" if box.faults else "box", **frame)
    said = [named(box, labels), *box.switches[:1], *_facts(box), *told(box.faults)]
    inside = _upright(box, place, labels) if place.upright else _flat(box, place, labels)
    return element("g", tooltip(said), behind, shape, *inside)


def _title(box: Box, labels: Mapping[str, str], room: float, class_: str) -> tuple[str, str]:
    """Return the name of a box and its class: in smaller letters before it is cut."""
    said = title(box, labels)
    if bold_width(said, FONT) <= room:
        return said, f"b {class_}".strip()
    return fitted_bold(said, room, SMALL, keep_end=len(box.switches) == 1), f"s b {class_}".strip()


def _mark(box: Box) -> str:
    """Return the sign and the words of what is wrong."""
    return "⚠ " + ", ".join(dict.fromkeys(words(fault) for fault in box.faults)) if box.faults else ""


def _flat(box: Box, place: Place, labels: Mapping[str, str]) -> list[str]:
    """Return the texts of a wide box."""
    lines = [_title(box, labels, place.width - 8, "m")]
    said = list(facts(box))
    below = [" · ".join(said)]
    if width_of(below[0], SMALL) > place.width - 6:
        below = [" · ".join(said[:-1]), said[-1]]
    lines += [(fitted(said, place.width - 6, SMALL), "s d m") for said in below if said]
    if box.faults:
        lines = [*lines[:2], (fitted_bold(_mark(box), place.width - 6, SMALL), "s bad m")]
    return [text(place.middle, place.y + 19 + 16 * row, said, class_) for row, (said, class_) in enumerate(lines[:3])]


def _upright(box: Box, place: Place, labels: Mapping[str, str]) -> list[str]:
    """Return the texts of a narrow box, read from below; what is wrong goes before numbers."""
    room = place.height - 10
    lines = [_title(box, labels, room, "")]
    if box.faults:
        lines.append((fitted_bold(_mark(box), room, SMALL), "s bad"))
    if facts(box):
        lines.append((_as_many(facts(box), room), "s d"))
    lines = lines[: max(int((place.width - 1) // _LINE), 1)]
    first = place.middle - (len(lines) - 1) * _LINE / 2 + 4
    base = place.bottom - 5
    return [
        element(
            "text",
            escaped(said),
            class_=class_,
            transform=f"translate({first + _LINE * row:.1f} {base:.1f}) rotate(-90)",
        )
        for row, (said, class_) in enumerate(lines)
    ]


def _as_many(said: Sequence[str], room: float) -> str:
    """Return as many facts as there is room for, the first ones first."""
    for count in range(len(said), 1, -1):
        if width_of(" · ".join(said[:count]), SMALL) <= room:
            return " · ".join(said[:count])
    return fitted(said[0], room, SMALL)


def _facts(box: Box) -> list[str]:
    """Return what a tooltip says of a box."""
    hosts = ", ".join(f"{count} {role}" for role, count in box.hosts.items())
    among = "cables from a port of its own to another" if len(box.switches) == 1 else "cables among these switches"
    return [
        f"unit {box.unit}" if box.unit is not None else "",
        f"{box.hca_links} HCA links (hosts: {hosts})" if box.hca_links else "",
        f"{box.up_cables} cables upwards" if box.up_cables else "",
        f"{box.down_cables} cables to switches below" if box.down_cables else "",
        f"oversubscription {box.ratio:.2f}:1" if box.ratio is not None else "",
        f"{box.inside} {among}" if box.inside else "",
        f"busiest HCA link {percent(box.host_load)}" if box.host_load is not None else "",
    ]


def draw_hosts(box: Box, place: Place, *, below: bool) -> str:
    """Return the hosts of a leaf: a bar of their roles and how many of each; inside the box where lines are below."""
    total = sum(box.hosts.values()) or 1
    width = min(place.width, _BAR) if below else place.width - 12
    x = place.middle - width / 2
    y = place.bottom + 14 if below else place.bottom - 9
    parts = []
    if below:
        class_ = "line" if box.host_load is None else f"l{step(box.host_load)}"
        stalk = 1.5 if box.host_load is None else 1 + 0.8 * step(box.host_load)
        parts.append(element("path", d=f"M{place.middle:.1f} {place.bottom:.1f}v14", class_=class_, stroke_width=stalk))
    for role, _ in ROLES:
        if count := box.hosts.get(role, 0):
            share = width * count / total
            parts.append(element("rect", x=x, y=y, width=max(share, 2.0), height=10 if below else 6, class_=role))
            x += share
    if below:
        parts += _counts(box, place, y + 23)
    hosts = ", ".join(f"{count} {role}" for role, count in box.hosts.items())
    load = f"busiest HCA link {percent(box.host_load)}" if box.host_load is not None else ""
    return element("g", tooltip([f"hosts: {hosts}", load]), *parts)


def _counts(box: Box, place: Place, y: float) -> list[str]:
    """Return the numbers of hosts by role: beside each other where there is room."""
    together = " ".join(counts(box))
    if width_of(together, SMALL) <= place.width:
        return [text(place.middle, y, together, "s d m")]
    return [text(place.middle, y + 11 * row, said, "s d m") for row, said in enumerate(counts(box)[:3])]


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
