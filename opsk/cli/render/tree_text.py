"""How is the tree of tiers shown in a terminal: what is on top, what hangs on it, and what is out of line?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.text import Text
from rich.tree import Tree as Branch

from opsk.cli.render.matrix_text import LOAD_STYLES
from opsk.fabric.views.marks import percent, step, words
from opsk.fabric.views.names import ranges
from opsk.fabric.views.tree import UNNAMED, Box, Line, Tier, Tree
from opsk.text import escape

MOST_LEAVES = 12
"""So many leaves stand in lines of their own before they are put together by unit."""
_MOST_LINES = 40
_MOST_ODD = 4
_MOST_SIGNS = 160
_MOST_OF_NAMES = 60
_SLOW = "slow or narrow cables, see below"


def tree_branches(tree: Tree, labels: Mapping[str, str]) -> Branch | None:
    """Return the tree with what is on top first; ``None`` where there is only one switch, or none."""
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
        for index in tops[:_MOST_LINES]:
            _grow(root, index, None, tree, labels, below, parents)
        if len(tops) > _MOST_LINES:
            root.add(Text(f"... and {len(tops) - _MOST_LINES} more on top of nothing else", "dim"))
    for line in level[:_MOST_ODD]:
        said = f"{_cables(line.cables)} inside a tier: {_names(tree.boxes[line.low], labels)} to "
        root.add(Text(said + _names(tree.boxes[line.high], labels), "yellow"))
    if len(level) > _MOST_ODD:
        root.add(Text(f"... and {len(level) - _MOST_ODD} more pairs inside a tier", "dim"))
    return root


def _grow(
    above: Branch, index: int, line: Line | None, tree: Tree, labels: Mapping[str, str],
    below: Mapping[int, Sequence[Line]], parents: Mapping[int, Sequence[Line]],
) -> None:  # fmt: skip
    """Add a box and all that hangs on it."""
    box = tree.boxes[index]
    tier = next(tier for tier in tree.tiers if index in tier.boxes)
    own = above.add(_said(box, tier, line, labels))
    others = [other for other in parents.get(index, ()) if line is not None and other.high != line.high]
    if others:
        cables = sum(other.cables for other in others)
        names = ranges(labels[guid] for other in others for guid in tree.boxes[other.high].switches)
        own.add(Text(_cut(f"also {_cables(cables)} to {names}"), "dim"))
    _add_odd(own, box, line, tree, labels)
    lines = sorted(below.get(index, ()), key=lambda line: _place(tree, line.low))
    for under in lines[:_MOST_LINES]:
        _grow(own, under.low, under, tree, labels, below, parents)
    if len(lines) > _MOST_LINES:
        own.add(Text(f"... and {len(lines) - _MOST_LINES} more", "dim"))


def _place(tree: Tree, index: int) -> tuple[int, int]:
    """Return where a box stands in its tier, left to right."""
    level = tree.boxes[index].tier
    return next((row, tier.boxes.index(index)) for row, tier in enumerate(tree.tiers) if tier.level == level)


def _said(box: Box, tier: Tier, line: Line | None, labels: Mapping[str, str]) -> Text:
    """Return a box in one line."""
    kind = (
        {"leaf": "leaves"}.get(tier.name, f"{tier.name}s") if tier.level is not None and tier.level < 3 else "switches"
    )
    one = tier.name if tier.level is not None else "switch"
    unit = f"unit {box.unit}: " if box.unit is not None and len(box.switches) > 1 else ""
    head = f"{unit}{len(box.switches)} {kind}" if len(box.switches) > 1 else one
    said = Text.assemble((f"{head} ", "bold"), _names(box, labels))
    if line is not None:
        each = line.cables / line.pairs
        said.append(
            f"  {_cables(line.cables)} up" + (f", {each:g} a pair" if line.pairs > 1 and each == line.usual else ""),
            "dim",
        )
    if box.ratio is not None:
        said.append(f", {'worst ' if len(box.switches) > 1 else ''}{box.ratio:.2f}:1", "dim")
    hosts = [f"{count} {role}" for role, count in box.hosts.items() if role != UNNAMED]
    hosts += [f"{count} HCAs without a name" for role, count in box.hosts.items() if role == UNNAMED]
    if hosts:
        said.append(f"; {', '.join(hosts)}", "cyan")
    if box.inside and len(box.switches) == 1:
        said.append(f"; {box.inside} loops", "yellow")
    loads = [("up", line.up_load), ("down", line.down_load)] if line is not None else []
    for word, load in (*loads, ("HCAs", box.host_load)):
        if load is not None:
            said.append("  ").append(f"{word} {percent(load)}", LOAD_STYLES[step(load)])
    return said


def _add_odd(own: Branch, box: Box, line: Line | None, tree: Tree, labels: Mapping[str, str]) -> None:
    """Add what is wrong with the switches of a box, the first few by name."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for fault in box.faults:
        kinds[words(fault)].append(next((labels[guid] for guid in fault.switches if guid in box.switches), fault.where))
    if line is not None and line.faults:
        kinds[_SLOW].append("")
    for said, names in list(kinds.items())[:_MOST_ODD]:
        many = len(box.switches) > 1 and said != _SLOW
        several = f"{len(set(names))} of {len(box.switches)}: " if many else ""
        which = ranges(names) if many else ""
        own.add(Text(_cut(f"! {said}" + (f", {several}{which}" if which else "")), "yellow"))


def _names(box: Box, labels: Mapping[str, str]) -> str:
    return _cut(ranges(labels[guid] for guid in box.switches), _MOST_OF_NAMES)


def _cables(count: int) -> str:
    return f"{count} cable" + ("s" if count != 1 else "")


def _cut(said: str, most: int = _MOST_SIGNS) -> str:
    said = escape(said[: 2 * most])
    return said if len(said) <= most else said[: most - 1] + "…"
