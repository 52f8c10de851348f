"""How are the switches of the tree drawn, and the hosts below them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsk.cli.pictures.style import FONT, SMALL
from opsk.cli.pictures.svg import bold_width, element, escaped, fitted, fitted_bold, text, told, tooltip, width_of
from opsk.cli.pictures.tree_layout import ROLES, Place, counts, facts, title
from opsk.topology.picture.load import percent, step
from opsk.topology.picture.marks import words
from opsk.topology.picture.names import ranges
from opsk.topology.picture.tree import Box

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
