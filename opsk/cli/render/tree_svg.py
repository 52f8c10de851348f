"""Renders the tree of tiers as SVG: boxes, lines and their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.cli.render.svg import (
    FONT,
    LEFT,
    SMALL,
    WIDTH,
    Drawing,
    build_load_entries,
    draw_legend,
    element,
    escape_xml,
    fit,
    fit_bold,
    format_faults,
    measure_bold_width,
    measure_width,
    text,
    tooltip,
)
from opsk.fabric.views.marks import describe_fault, format_percent, scale_step
from opsk.fabric.views.names import format_ranges
from opsk.fabric.views.tree import UNNAMED, Box, Tier, Tree, TreeEdge

MARGIN = 120.0
"""Width of the tier names left of the boxes."""
HOSTS = 58.0
ROLES = (("compute", "c"), ("storage", "s"), ("management", "m"), (UNNAMED, "?"))
_MIN_WIDTH, _MAX_WIDTH = 27.0, 150.0
_TALL, _FLAT = 124.0, 64.0
_GAP = 150.0
_BOW = 60.0
_LINE = 13.0
_BAR = 110.0
_MANY_LINES = 150
_FEW_LINES = 40
_HOTTEST = 5
_MAX_NUMBERS = 80
_SHARES = tuple(share / 20 for share in (8, 6, 10, 4, 12, 14, 16, 3, 17))
"""Possible positions of a number on its line, the best first; 0 is the lower end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlace:
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

    places: Mapping[int, BoxPlace]
    right: float
    bottom: float


def arrange_tree(tree: Tree, labels: Mapping[str, str], top: float) -> Layout:
    """Return the places of all boxes; every tier is spread over the whole width, so that lines go straight down."""
    widest = max(len(tier.boxes) for tier in tree.tiers)
    room = WIDTH - 2 * LEFT - MARGIN
    slot = max(room / widest, _MIN_WIDTH + 4)
    room = max(room, widest * slot)
    places: dict[int, BoxPlace] = {}
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
            places[index] = BoxPlace(x=middle - width / 2, y=y, width=width, height=height, upright=upright)
        bottom = y + height + (HOSTS if tier is tree.tiers[-1] or tier.level == 0 else 0)
        y = bottom + _GAP
    return Layout(places=places, right=LEFT + MARGIN + room, bottom=bottom)


def _find_level_lines(tree: Tree, tier: Tier) -> list[TreeEdge]:
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


def format_name(box: Box, labels: Mapping[str, str]) -> str:
    """Return the name of a box in tooltips."""
    names = format_ranges(labels[guid] for guid in box.switches)
    return f"{len(box.switches)} switches {names}" if len(box.switches) > 1 else names


def draw_box(box: Box, place: BoxPlace, labels: Mapping[str, str]) -> str:
    """Return the box of a switch, or of several."""
    frame = {"width": place.width, "height": place.height, "rx": 4.0}
    shadow = element("rect", x=place.x + 4, y=place.y - 4, class_="box", **frame) if len(box.switches) > 1 else ""
    shape = element("rect", x=place.x, y=place.y, class_="wrong" if box.faults else "box", **frame)
    lines = [format_name(box, labels), *box.switches[:1], *_list_tooltip_facts(box), *format_faults(box.faults)]
    inside = _draw_upright_text(box, place, labels) if place.upright else _draw_flat_text(box, place, labels)
    return element("g", tooltip(lines), shadow, shape, *inside)


def _fit_title(box: Box, labels: Mapping[str, str], room: float, class_: str) -> tuple[str, str]:
    """Return the name of a box and its class: in smaller letters before it is cut."""
    name = format_title(box, labels)
    if measure_bold_width(name, FONT) <= room:
        return name, f"b {class_}".strip()
    return fit_bold(name, room, SMALL, keep_end=len(box.switches) == 1), f"s b {class_}".strip()


def _format_mark(box: Box) -> str:
    """Return the symbol and the description of the faults."""
    return "⚠ " + ", ".join(dict.fromkeys(describe_fault(fault) for fault in box.faults)) if box.faults else ""


def _draw_flat_text(box: Box, place: BoxPlace, labels: Mapping[str, str]) -> list[str]:
    """Return the texts of a wide box."""
    lines = [_fit_title(box, labels, place.width - 8, "m")]
    content = list(list_facts(box))
    below = [" · ".join(content)]
    if measure_width(below[0], SMALL) > place.width - 6:
        below = [" · ".join(content[:-1]), content[-1]]
    lines += [(fit(content, place.width - 6, SMALL), "s d m") for content in below if content]
    if box.faults:
        lines = [*lines[:2], (fit_bold(_format_mark(box), place.width - 6, SMALL), "s bad m")]
    return [
        text(place.middle, place.y + 19 + 16 * row, content, class_) for row, (content, class_) in enumerate(lines[:3])
    ]


def _draw_upright_text(box: Box, place: BoxPlace, labels: Mapping[str, str]) -> list[str]:
    """Return the rotated texts of a narrow box; faults precede numbers."""
    room = place.height - 10
    lines = [_fit_title(box, labels, room, "")]
    if box.faults:
        lines.append((fit_bold(_format_mark(box), room, SMALL), "s bad"))
    if list_facts(box):
        lines.append((_fit_facts(list_facts(box), room), "s d"))
    lines = lines[: max(int((place.width - 1) // _LINE), 1)]
    first = place.middle - (len(lines) - 1) * _LINE / 2 + 4
    base = place.bottom - 5
    return [
        element(
            "text",
            escape_xml(content),
            class_=class_,
            transform=f"translate({first + _LINE * row:.1f} {base:.1f}) rotate(-90)",
        )
        for row, (content, class_) in enumerate(lines)
    ]


def _fit_facts(known: Sequence[str], room: float) -> str:
    """Return as many facts as fit, from the first one on."""
    for count in range(len(known), 1, -1):
        if measure_width(" · ".join(known[:count]), SMALL) <= room:
            return " · ".join(known[:count])
    return fit(known[0], room, SMALL)


def _list_tooltip_facts(box: Box) -> list[str]:
    """Return the tooltip lines of a box."""
    hosts = ", ".join(f"{count} {role}" for role, count in box.hosts.items())
    among = "cables from a port of its own to another" if len(box.switches) == 1 else "cables among these switches"
    return [
        f"unit {box.unit}" if box.unit is not None else "",
        f"{box.hca_links} HCA links (hosts: {hosts})" if box.hca_links else "",
        f"{box.up_cables} cables upwards" if box.up_cables else "",
        f"{box.down_cables} cables to switches below" if box.down_cables else "",
        f"oversubscription {box.ratio:.2f}:1" if box.ratio is not None else "",
        f"{box.inside} {among}" if box.inside else "",
        f"busiest HCA link {format_percent(box.host_load)}" if box.host_load is not None else "",
    ]


def draw_hosts(box: Box, place: BoxPlace, *, below: bool) -> str:
    """Return the hosts of a leaf: a bar of their roles and how many of each; inside the box where lines are below."""
    total = sum(box.hosts.values()) or 1
    width = min(place.width, _BAR) if below else place.width - 12
    x = place.middle - width / 2
    y = place.bottom + 14 if below else place.bottom - 9
    parts = []
    if below:
        class_ = "line" if box.host_load is None else f"l{scale_step(box.host_load)}"
        stalk = 1.5 if box.host_load is None else 1 + 0.8 * scale_step(box.host_load)
        parts.append(element("path", d=f"M{place.middle:.1f} {place.bottom:.1f}v14", class_=class_, stroke_width=stalk))
    for role, _ in ROLES:
        if count := box.hosts.get(role, 0):
            share = width * count / total
            parts.append(element("rect", x=x, y=y, width=max(share, 2.0), height=10 if below else 6, class_=role))
            x += share
    if below:
        parts += _draw_counts(box, place, y + 23)
    hosts = ", ".join(f"{count} {role}" for role, count in box.hosts.items())
    load = f"busiest HCA link {format_percent(box.host_load)}" if box.host_load is not None else ""
    return element("g", tooltip([f"hosts: {hosts}", load]), *parts)


def _draw_counts(box: Box, place: BoxPlace, y: float) -> list[str]:
    """Return the numbers of hosts by role, in one line where there is room."""
    together = " ".join(format_counts(box))
    if measure_width(together, SMALL) <= place.width:
        return [text(place.middle, y, together, "s d m")]
    return [text(place.middle, y + 11 * row, count, "s d m") for row, count in enumerate(format_counts(box)[:3])]


def draw_tree(tree: Tree, labels: Mapping[str, str], top: float) -> Drawing:
    """Return the tree from ``top`` on; ``labels`` are short names of switches by guid."""
    parts = [text(LEFT, top + 20, "Tiers", "h")]
    if not tree.boxes:
        return Drawing(parts=[*parts, text(LEFT, top + 44, "No switches.", "d")], right=WIDTH, bottom=top + 50)
    layout = arrange_tree(tree, labels, top + 44)
    places = layout.places
    parts += _draw_tier_names(tree, places)
    parts += _draw_lines(tree, places, labels)
    for index, box in enumerate(tree.boxes):
        parts.append(draw_box(box, places[index], labels))
        if box.hosts:
            parts.append(draw_hosts(box, places[index], below=box.tier == 0))
    parts += _draw_numbers(tree, places)
    drawn, y = draw_legend(_build_legend_entries(tree), layout.bottom + 20, LEFT, layout.right)
    parts += drawn
    if tree.loaded:
        drawn, y = draw_legend(build_load_entries("line"), y + 14, LEFT, layout.right)
        parts += drawn
    return Drawing(parts=parts, right=layout.right, bottom=y)


def _draw_tier_names(tree: Tree, places: Mapping[int, BoxPlace]) -> Iterator[str]:
    """Yield the names of the tiers at the left, with how many switches they have and how they are cabled upwards."""
    for tier in tree.tiers:
        y = places[tier.boxes[0]].y
        yield text(LEFT, y + 18, tier.name, "b")
        yield text(LEFT, y + 34, f"{tier.switches} switch" + ("es" if tier.switches != 1 else ""), "s d")
        for (low, high), usual in sorted(tree.usual.items()):
            if low == tier.level:
                per_pair = f"{usual} cable{'s' if usual != 1 else ''} a pair"
                above = "" if high == low + 1 else f", {high - low} tiers up"
                yield text(LEFT, y - 14 - 14 * (high - low - 1), per_pair + above, "s d")


def _draw_lines(tree: Tree, places: Mapping[int, BoxPlace], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines, notable ones above the others."""
    many = len(tree.lines) > _MANY_LINES
    plain = [line for line in tree.lines if not _is_notable(line)]
    faint: dict[str, float | str] = {"opacity": "0.5"} if many else {}
    yield element("g", *(_draw_line(line, tree, places, labels, 1.0 if many else 1.5) for line in plain), **faint)
    for line in sorted(filter(_is_notable, tree.lines), key=lambda line: line.load or 0.0):
        yield _draw_line(line, tree, places, labels, 1.8)


def _is_notable(line: TreeEdge) -> bool:
    return line.odd or bool(line.faults) or bool(line.load)


def _draw_line(
    line: TreeEdge, tree: Tree, places: Mapping[int, BoxPlace], labels: Mapping[str, str], width: float
) -> str:
    low, high = tree.boxes[line.low], tree.boxes[line.high]
    if line.pairs > 1:
        cables = f"{line.cables} cables between {line.pairs} pairs of switches"
    elif line.odd:
        cables = f"{line.cables} of {line.usual} cables"
    else:
        cables = f"{line.cables} cable" + ("s" if line.cables != 1 else "")
    busiest = " on the busiest" if line.pairs > 1 else ""
    loads = [
        f"{way}: {format_percent(load)}{busiest}"
        for way, load in (("up", line.up_load), ("down", line.down_load))
        if load is not None
    ]
    if not line.cables:
        class_ = "none"
    elif line.load is not None:
        class_, width = f"l{scale_step(line.load)}", 1.0 + 0.8 * scale_step(line.load)
    else:
        class_ = "odd" if line.odd else "slowline" if line.faults else "line"
    tooltip_lines = [
        f"{format_name(low, labels)} to {format_name(high, labels)}",
        cables,
        *loads,
        *format_faults(line.faults),
    ]
    path = _format_path(places[line.low], places[line.high])
    return element("path", tooltip(tooltip_lines), d=path, class_=class_, stroke_width=width)


def _format_path(low: BoxPlace, high: BoxPlace) -> str:
    """Return a line from the top of the lower box to the bottom of the upper one; within a tier, a bow above."""
    if low.y != high.y:
        if low.y < high.y:
            low, high = high, low
        return f"M{low.middle:.1f} {low.y:.1f}L{high.middle:.1f} {high.bottom:.1f}"
    top = low.y - _compute_rise(low, high)
    left, right = f"{low.middle:.1f}", f"{high.middle:.1f}"
    return f"M{left} {low.y:.1f}C{left} {top:.1f} {right} {top:.1f} {right} {high.y:.1f}"


def _compute_rise(low: BoxPlace, high: BoxPlace) -> float:
    return min(24 + abs(low.middle - high.middle) / 12, 64)


def _draw_numbers(tree: Tree, places: Mapping[int, BoxPlace]) -> Iterator[str]:
    """Yield numbers on lines that are out of line, and loads on the busiest; without overlaps."""
    taken: list[tuple[float, float, float]] = []
    for line, number, class_ in _select_numbers(tree)[:_MAX_NUMBERS]:
        half = measure_width(number, SMALL) / 2 + 2
        for x, y in _list_points(places[line.low], places[line.high]):
            if all(abs(x - other) >= half + reach or abs(y - level) >= 13 for other, level, reach in taken):
                taken.append((x, y, half))
                yield text(x, y + 4, number, class_)
                break


def _list_points(low: BoxPlace, high: BoxPlace) -> Iterator[tuple[float, float]]:
    """Yield the points of a line where a number may be drawn."""
    if low.y == high.y:
        yield (low.middle + high.middle) / 2, low.y - 0.75 * _compute_rise(low, high) - 8
        return
    if low.y < high.y:
        low, high = high, low
    for share in _SHARES:
        yield low.middle + share * (high.middle - low.middle), low.y + share * (high.bottom - low.y)


def _select_numbers(tree: Tree) -> list[tuple[TreeEdge, str, str]]:
    """Return the lines with a number, its text and class, the most important first."""
    loaded = sorted((line for line in tree.lines if line.load), key=lambda line: -(line.load or 0))
    hottest = [line for place, line in enumerate(loaded) if place < _HOTTEST or (line.load or 0) > 1]
    numbers = [(line, format_percent(line.load), "s b m halo") for line in hottest if line.load is not None]
    numbers += [(line, "slow", "s late m halo") for line in tree.lines if line.faults and not line.odd]
    numbers += [(line, f"{line.cables} of {line.usual}", "s bad m halo") for line in tree.lines if line.odd]
    if len(tree.lines) <= _FEW_LINES and not tree.loaded:
        numbers += [(line, f"{line.cables}×", "s d m halo") for line in tree.lines if line.pairs > 1]
    level = [line for line in tree.lines if tree.boxes[line.low].tier == tree.boxes[line.high].tier]
    numbers += [(line, f"{line.cables}× inside the tier", "s d m halo") for line in level if not line.load]
    return numbers


def _build_legend_entries(tree: Tree) -> list[tuple[str, str, str]]:
    """Return the legend entries of this tree."""
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
