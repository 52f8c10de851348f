"""Renders the rail × node matrix for terminals of any width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from opsk.fabric.views.marks import describe_fault, format_percent, scale_step
from opsk.fabric.views.matrix import Block, Cell, Head, Matrix, Row, State
from opsk.fabric.views.names import format_ranges
from opsk.text import escape, format_share

MAX_BLOCKS = 40
_MAX_ROWS = 12
_MIN_CELL, _MAX_CELL = 9, 24
_PADDING = 3
"""Characters between two columns."""
_LABEL_SHARE = 0.34
LOAD_STYLES = ("dim", "green", "cyan", "yellow", "bold yellow", "bold red reverse")
"""By step of the scale; the number is shown as well."""


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
        table.add_column(Text(f"rail {rail}\n{_cut(devices, widths.cell)}"), width=widths.cell, no_wrap=True)
    for block in blocks:
        nodes = _cut(format_ranges(block.nodes), widths.label, keep_end=False)
        title = Text.assemble((_cut(_format_title(block), widths.label, keep_end=False), "bold"), "\n", (nodes, "dim"))
        table.add_row(title, *(_format_head(block.heads[rail], labels, widths.cell) for rail in rails))
        rows = _select_rows(block)
        for row in rows[:_MAX_ROWS]:
            name = Text(
                "  " + _cut(_format_row_name(row), widths.label - 2, keep_end=False), "" if row.regular else "bold"
            )
            if row.faults:
                problems = ", ".join(dict.fromkeys(describe_fault(fault) for fault in row.faults))
                name.append("\n  " + _cut(f"! {problems}", widths.label - 2, keep_end=False), "yellow")
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
    shown = Text(_cut(_format_leaf_name(head, labels), width), "bold")
    problems = list(dict.fromkeys(describe_fault(fault) for fault in head.faults))
    shown.append(f"\n{links}", "not bold yellow" if problems else "not bold dim")
    if problems:
        shown.append("\n" + _cut(f"! {', '.join(problems)}", width, keep_end=False), "not bold yellow")
    if head.load is not None:
        shown.append(
            f"\n{_cut(f'load {format_percent(head.load)}', width)}", f"not bold {LOAD_STYLES[scale_step(head.load)]}"
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
        shown = Text("! on " + _cut(where, width - 5), "bold red")
    elif cell.state is State.SLOW:
        share = format_share(cell.bytes_per_s / cell.usual_bytes_per_s) if cell.usual_bytes_per_s else ""
        shown = Text(f"! slow {share}" if width > len(share) + 6 else "! slow", "yellow")
    else:
        shown = Text(_cut(where, width) or "ok", "dim")
    if cell.load is None:
        return shown
    load = Text(format_percent(cell.load), LOAD_STYLES[scale_step(cell.load)])
    return load if cell.state is State.OK else Text.assemble(shown, "\n", load)


def _cut(content: str, width: int, *, keep_end: bool = True) -> str:
    """Return escaped text cut to ``width`` characters; ``keep_end`` for names of switches, which differ at the end."""
    content = escape(content[-400:] if keep_end else content[:400])
    if cell_len(content) <= width:
        return content
    while content and cell_len(content) >= width:
        content = content[1:] if keep_end else content[:-1]
    return f"…{content}" if keep_end else f"{content}…"
