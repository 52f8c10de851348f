"""Renders a fabric for terminals: the rail × node matrix at any width, and the tree of tiers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branch

from opsk.fabric.views.marks import describe_fault, format_percent, scale_step
from opsk.fabric.views.matrix import Block, Cell, Head, Matrix, Row, State
from opsk.fabric.views.names import format_ranges
from opsk.fabric.views.tree import UNNAMED, Box, Tier, Tree, TreeEdge
from opsk.text import escape, format_share

MAX_BLOCKS = 40
_MAX_ROWS = 12
_MIN_CELL, _MAX_CELL = 9, 24
_PADDING = 3
"""Characters between two columns."""
_LABEL_SHARE = 0.34
LOAD_STYLES = ("dim", "green", "cyan", "yellow", "bold yellow", "bold red reverse")
"""By step of the scale; the number is shown as well."""
MAX_LEAVES = 12
"""Maximum number of leaves with separate lines; more are grouped by unit."""
_MAX_LINES = 40
_MAX_FAULTS = 4
_MAX_CHARS = 160
_MAX_NAME_CHARS = 60
_SLOW = "slow or narrow cables, see below"


@dataclass(frozen=True, slots=True)
class _Widths:
    """Widths in characters of node names and cells."""

    label: int
    cell: int


def build_matrix_tables(matrix: Matrix, labels: Mapping[str, str], width: int) -> list[Table]:
    """Return the matrix as tables no wider than ``width``: rails that do not fit go below the others."""
    rails = len(matrix.devices)
    if not rails:
        return []
    blocks = matrix.blocks[:MAX_BLOCKS]
    longest = max((cell_len(name) for block in blocks for name in _list_names(block)), default=8)
    label = min(longest, max(int(width * _LABEL_SHARE), 18))
    required = max((_compute_width(head, labels) for block in blocks for head in block.heads), default=_MIN_CELL)
    required = min(max(required, _MIN_CELL), _MAX_CELL)
    room = width - label - 2
    available = room // rails - _PADDING
    if available >= _MIN_CELL:
        band, cell = rails, min(available, required)
    else:
        bands = -(-rails // max(room // (_MIN_CELL + _PADDING), 1))
        band = -(-rails // bands)
        cell = min(room // band - _PADDING, required)
    widths = _Widths(label, max(cell, _MIN_CELL))
    return [
        _build_table(matrix, blocks, labels, range(first, min(first + band, rails)), widths)
        for first in range(0, rails, band)
    ]


def _list_names(block: Block) -> tuple[str, ...]:
    return (
        _format_title(block),
        escape(format_ranges(block.nodes)),
        *(f"  {_format_row_name(row)}" for row in _select_rows(block)),
    )


def _format_title(block: Block) -> str:
    nodes = f"{len(block.nodes)} node" + ("s" if len(block.nodes) != 1 else "")
    return f"{len(block.units)} units: {nodes}" if len(block.units) > 1 else f"unit {block.units[0]}: {nodes}"


def _format_row_name(row: Row) -> str:
    names = escape(format_ranges(row.nodes))
    return names if len(row.nodes) == 1 else f"{len(row.nodes)} x {names}"


def _compute_width(head: Head, labels: Mapping[str, str]) -> int:
    lines = (
        _format_leaf_name(head, labels),
        _format_links(head, wide=True),
        *(f"! {describe_fault(fault)}" for fault in head.faults),
    )
    return max(cell_len(escape(line)) for line in lines)


def _format_leaf_name(head: Head, labels: Mapping[str, str]) -> str:
    if len(head.leaves) > 2:
        return f"{len(head.leaves)} leaves"
    return format_ranges(labels[guid] for guid in head.leaves) if head.leaves else "no leaf"


def _format_links(head: Head, *, wide: bool) -> str:
    if not head.leaves:
        return ""
    down, up = head.hca_links, head.uplinks
    return f"{down} down, {up} up" if wide else f"{down}↓ {up}↑"


def _select_rows(block: Block) -> Sequence[Row]:
    """Return the rows with more information than the unit itself."""
    loaded = any(cell.load is not None for row in block.rows for cell in row.cells)
    return block.rows if loaded or len(block.rows) > 1 else [row for row in block.rows if not row.regular]


def _build_table(
    matrix: Matrix, blocks: Sequence[Block], labels: Mapping[str, str], rails: range, widths: _Widths
) -> Table:
    table = Table(title="Rails by node", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("unit", width=widths.label, no_wrap=True)
    for rail in rails:
        devices = ", ".join(matrix.devices[rail][:2])
        devices = devices if cell_len(devices) <= widths.cell else matrix.devices[rail][0]
        table.add_column(Text(f"rail {rail}\n{_fit(devices, widths.cell)}"), width=widths.cell, no_wrap=True)
    for block in blocks:
        nodes = _fit(format_ranges(block.nodes), widths.label, keep_end=False)
        title = Text.assemble((_fit(_format_title(block), widths.label, keep_end=False), "bold"), "\n", (nodes, "dim"))
        table.add_row(title, *(_format_head(block.heads[rail], labels, widths.cell) for rail in rails))
        rows = _select_rows(block)
        for row in rows[:_MAX_ROWS]:
            name = Text(
                "  " + _fit(_format_row_name(row), widths.label - 2, keep_end=False),
                "" if row.regular else "bold",
            )
            if row.faults:
                problems = ", ".join(dict.fromkeys(describe_fault(fault) for fault in row.faults))
                name.append("\n  " + _fit(f"! {problems}", widths.label - 2, keep_end=False), "yellow")
            table.add_row(name, *(_format_cell(row.cells[rail], labels, widths.cell) for rail in rails))
        if len(rows) > _MAX_ROWS:
            table.add_row(Text(f"  ... and {len(rows) - _MAX_ROWS} more", "dim"))
        table.add_section()
    return table


def _format_head(head: Head, labels: Mapping[str, str], width: int) -> Text:
    """Return the leaf of a unit on a rail, with its HCA links and uplinks."""
    if not head.leaves:
        return Text("no leaf", "yellow")
    wide = _format_links(head, wide=True)
    links = wide if cell_len(wide) <= width else _format_links(head, wide=False)
    shown = Text(_fit(_format_leaf_name(head, labels), width), "bold")
    problems = list(dict.fromkeys(describe_fault(fault) for fault in head.faults))
    shown.append(f"\n{links}", "not bold yellow" if problems else "not bold dim")
    if problems:
        shown.append("\n" + _fit(f"! {', '.join(problems)}", width, keep_end=False), "not bold yellow")
    if head.load is not None:
        shown.append(
            f"\n{_fit(f'load {format_percent(head.load)}', width)}",
            f"not bold {LOAD_STYLES[scale_step(head.load)]}",
        )
    return shown


def _format_cell(cell: Cell, labels: Mapping[str, str], width: int) -> Text:
    """Return the cell of a port; ``ok`` when there is nothing to show."""
    if cell.state is State.NONE:
        return Text("-", "dim")
    if cell.state is State.MISSING:
        return Text("! missing", "bold red")
    where = format_ranges(labels[guid] for guid in cell.leaves)
    if cell.state is State.WRONG:
        shown = Text("! on " + _fit(where, width - 5), "bold red")
    elif cell.state is State.SLOW:
        share = format_share(cell.bytes_per_s / cell.usual_bytes_per_s) if cell.usual_bytes_per_s else ""
        shown = Text(f"! slow {share}" if width > len(share) + 6 else "! slow", "yellow")
    else:
        shown = Text(_fit(where, width) or "ok", "dim")
    if cell.load is None:
        return shown
    load = Text(format_percent(cell.load), LOAD_STYLES[scale_step(cell.load)])
    return load if cell.state is State.OK else Text.assemble(shown, "\n", load)


def _fit(content: str, width: int, *, keep_end: bool = True) -> str:
    """Return escaped text cut to ``width`` characters; ``keep_end`` for names of switches, which differ at the end."""
    content = escape(content[-400:] if keep_end else content[:400])
    if cell_len(content) <= width:
        return content
    while content and cell_len(content) >= width:
        content = content[1:] if keep_end else content[:-1]
    return f"…{content}" if keep_end else f"{content}…"


def build_branches(tree: Tree, labels: Mapping[str, str]) -> Branch | None:
    """Return the tree, the top tier first; ``None`` where there is only one switch, or none."""
    if sum(tier.switches for tier in tree.tiers) < 2:
        return None
    below: defaultdict[int, list[TreeEdge]] = defaultdict(list)
    parents: defaultdict[int, list[TreeEdge]] = defaultdict(list)
    level: list[TreeEdge] = []
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
    above: Branch, index: int, line: TreeEdge | None, tree: Tree, labels: Mapping[str, str],
    below: Mapping[int, Sequence[TreeEdge]], parents: Mapping[int, Sequence[TreeEdge]],
) -> None:  # fmt: skip
    """Add a box and everything below it."""
    box = tree.boxes[index]
    tier = next(tier for tier in tree.tiers if index in tier.boxes)
    branch = above.add(_format_box(box, tier, line, labels))
    others = [other for other in parents.get(index, ()) if line is not None and other.high != line.high]
    if others:
        cables = sum(other.cables for other in others)
        names = format_ranges(labels[guid] for other in others for guid in tree.boxes[other.high].switches)
        branch.add(Text(_shorten(f"also {_format_cables(cables)} to {names}"), "dim"))
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


def _format_box(box: Box, tier: Tier, line: TreeEdge | None, labels: Mapping[str, str]) -> Text:
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


def _add_faults(branch: Branch, box: Box, line: TreeEdge | None, tree: Tree, labels: Mapping[str, str]) -> None:
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
        branch.add(Text(_shorten(f"! {problem}" + (f", {several}{which}" if which else "")), "yellow"))


def _format_names(box: Box, labels: Mapping[str, str]) -> str:
    return _shorten(format_ranges(labels[guid] for guid in box.switches), _MAX_NAME_CHARS)


def _format_cables(count: int) -> str:
    return f"{count} cable" + ("s" if count != 1 else "")


def _shorten(content: str, limit: int = _MAX_CHARS) -> str:
    content = escape(content[: 2 * limit])
    return content if len(content) <= limit else content[: limit - 1] + "…"
