"""Renders the tree of tiers for terminals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.text import Text
from rich.tree import Tree as Branch

from opsk.cli.render.matrix_text import LOAD_STYLES
from opsk.fabric.views.marks import describe_fault, format_percent, scale_step
from opsk.fabric.views.names import format_ranges
from opsk.fabric.views.tree import UNNAMED, Box, Line, Tier, Tree
from opsk.text import escape

MAX_LEAVES = 12
"""Maximum number of leaves with separate lines; more are grouped by unit."""
_MAX_LINES = 40
_MAX_FAULTS = 4
_MAX_CHARS = 160
_MAX_NAME_CHARS = 60
_SLOW = "slow or narrow cables, see below"


def build_branches(tree: Tree, labels: Mapping[str, str]) -> Branch | None:
    """Return the tree, the top tier first; ``None`` where there is only one switch, or none."""
    if sum(tier.switches for tier in tree.tiers) < 2:
        return None
    below: defaultdict[int, list[Line]] = defaultdict(list)
    parents: defaultdict[int, list[Line]] = defaultdict(list)
    level: list[Line] = []
    for line in tree.lines:
        if tree.boxes[line.low].tier == tree.boxes[line.high].tier:
            level.append(line)
        elif line.cables:
            parents[line.low].append(line)
    for lines in parents.values():
        main = max(lines, key=lambda line: (line.cables, -line.high))
        below[main.high].append(main)
    root = Branch(Text("Tiers", "bold"), guide_style="dim")
    for tier in tree.tiers:
        tops = [index for index in tier.boxes if index not in parents]
        for index in tops[:_MAX_LINES]:
            _add_box(root, index, None, tree, labels, below, parents)
        if len(tops) > _MAX_LINES:
            root.add(Text(f"... and {len(tops) - _MAX_LINES} more on top of nothing else", "dim"))
    for line in level[:_MAX_FAULTS]:
        content = f"{_format_cables(line.cables)} inside a tier: {_format_names(tree.boxes[line.low], labels)} to "
        root.add(Text(content + _format_names(tree.boxes[line.high], labels), "yellow"))
    if len(level) > _MAX_FAULTS:
        root.add(Text(f"... and {len(level) - _MAX_FAULTS} more pairs inside a tier", "dim"))
    return root


def _add_box(
    above: Branch, index: int, line: Line | None, tree: Tree, labels: Mapping[str, str],
    below: Mapping[int, Sequence[Line]], parents: Mapping[int, Sequence[Line]],
) -> None:  # fmt: skip
    """Add a box and everything below it."""
    box = tree.boxes[index]
    tier = next(tier for tier in tree.tiers if index in tier.boxes)
    branch = above.add(_format_box(box, tier, line, labels))
    others = [other for other in parents.get(index, ()) if line is not None and other.high != line.high]
    if others:
        cables = sum(other.cables for other in others)
        names = format_ranges(labels[guid] for other in others for guid in tree.boxes[other.high].switches)
        branch.add(Text(_cut(f"also {_format_cables(cables)} to {names}"), "dim"))
    _add_faults(branch, box, line, tree, labels)
    lines = sorted(below.get(index, ()), key=lambda line: _find_position(tree, line.low))
    for under in lines[:_MAX_LINES]:
        _add_box(branch, under.low, under, tree, labels, below, parents)
    if len(lines) > _MAX_LINES:
        branch.add(Text(f"... and {len(lines) - _MAX_LINES} more", "dim"))


def _find_position(tree: Tree, index: int) -> tuple[int, int]:
    """Return tier and position of a box, left to right."""
    level = tree.boxes[index].tier
    return next((row, tier.boxes.index(index)) for row, tier in enumerate(tree.tiers) if tier.level == level)


def _format_box(box: Box, tier: Tier, line: Line | None, labels: Mapping[str, str]) -> Text:
    """Return a box in one line."""
    kind = (
        {"leaf": "leaves"}.get(tier.name, f"{tier.name}s") if tier.level is not None and tier.level < 3 else "switches"
    )
    singular = tier.name if tier.level is not None else "switch"
    unit = f"unit {box.unit}: " if box.unit is not None and len(box.switches) > 1 else ""
    head = f"{unit}{len(box.switches)} {kind}" if len(box.switches) > 1 else singular
    content = Text.assemble((f"{head} ", "bold"), _format_names(box, labels))
    if line is not None:
        per_pair = line.cables / line.pairs
        content.append(
            f"  {_format_cables(line.cables)} up"
            + (f", {per_pair:g} a pair" if line.pairs > 1 and per_pair == line.usual else ""),
            "dim",
        )
    if box.ratio is not None:
        content.append(f", {'worst ' if len(box.switches) > 1 else ''}{box.ratio:.2f}:1", "dim")
    hosts = [f"{count} {role}" for role, count in box.hosts.items() if role != UNNAMED]
    hosts += [f"{count} HCAs without a name" for role, count in box.hosts.items() if role == UNNAMED]
    if hosts:
        content.append(f"; {', '.join(hosts)}", "cyan")
    if box.inside and len(box.switches) == 1:
        content.append(f"; {box.inside} loops", "yellow")
    loads = [("up", line.up_load), ("down", line.down_load)] if line is not None else []
    for word, load in (*loads, ("HCAs", box.host_load)):
        if load is not None:
            content.append("  ").append(f"{word} {format_percent(load)}", LOAD_STYLES[scale_step(load)])
    return content


def _add_faults(branch: Branch, box: Box, line: Line | None, tree: Tree, labels: Mapping[str, str]) -> None:
    """Add the faults of the switches of a box, the first few by name."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for fault in box.faults:
        kinds[describe_fault(fault)].append(
            next((labels[guid] for guid in fault.switches if guid in box.switches), fault.where)
        )
    if line is not None and line.faults:
        kinds[_SLOW].append("")
    for problem, names in list(kinds.items())[:_MAX_FAULTS]:
        many = len(box.switches) > 1 and problem != _SLOW
        several = f"{len(set(names))} of {len(box.switches)}: " if many else ""
        which = format_ranges(names) if many else ""
        branch.add(Text(_cut(f"! {problem}" + (f", {several}{which}" if which else "")), "yellow"))


def _format_names(box: Box, labels: Mapping[str, str]) -> str:
    return _cut(format_ranges(labels[guid] for guid in box.switches), _MAX_NAME_CHARS)


def _format_cables(count: int) -> str:
    return f"{count} cable" + ("s" if count != 1 else "")


def _cut(content: str, limit: int = _MAX_CHARS) -> str:
    content = escape(content[: 2 * limit])
    return content if len(content) <= limit else content[: limit - 1] + "…"
