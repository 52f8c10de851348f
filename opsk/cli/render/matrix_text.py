"""How is the rail × node matrix shown in a terminal, however wide it is?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from opsk.fabric.views.marks import percent, step, words
from opsk.fabric.views.matrix import Block, Cell, Head, Matrix, Row, State
from opsk.fabric.views.names import ranges
from opsk.text import escape, format_share

MOST_BLOCKS = 40
_MOST_ROWS = 12
_LEAST_CELL, _MOST_CELL = 9, 24
_PADDING = 3
"""Signs between two columns."""
_LABEL_SHARE = 0.34
LOAD_STYLES = ("dim", "green", "cyan", "yellow", "bold yellow", "bold red reverse")
"""By step of the scale; the number stands beside each."""


@dataclass(frozen=True, slots=True)
class _Widths:
    """Signs for names of nodes, and for a cell."""

    label: int
    cell: int


def matrix_tables(matrix: Matrix, labels: Mapping[str, str], width: int) -> list[Table]:
    """Return the matrix as tables no wider than ``width``: rails that do not fit go below the others."""
    rails = len(matrix.devices)
    if not rails:
        return []
    blocks = matrix.blocks[:MOST_BLOCKS]
    longest = max((cell_len(said) for block in blocks for said in _names(block)), default=8)
    label = min(longest, max(int(width * _LABEL_SHARE), 18))
    wanted = max((_wanted(head, labels) for block in blocks for head in block.heads), default=_LEAST_CELL)
    wanted = min(max(wanted, _LEAST_CELL), _MOST_CELL)
    room = width - label - 2
    each = room // rails - _PADDING
    if each >= _LEAST_CELL:
        band, cell = rails, min(each, wanted)
    else:
        bands = -(-rails // max(room // (_LEAST_CELL + _PADDING), 1))
        band = -(-rails // bands)
        cell = min(room // band - _PADDING, wanted)
    widths = _Widths(label, max(cell, _LEAST_CELL))
    return [
        _table(matrix, blocks, labels, range(first, min(first + band, rails)), widths)
        for first in range(0, rails, band)
    ]


def _names(block: Block) -> tuple[str, ...]:
    return (_title(block), escape(ranges(block.nodes)), *(f"  {_row_name(row)}" for row in _told_rows(block)))


def _title(block: Block) -> str:
    nodes = f"{len(block.nodes)} node" + ("s" if len(block.nodes) != 1 else "")
    return f"{len(block.units)} units: {nodes}" if len(block.units) > 1 else f"unit {block.units[0]}: {nodes}"


def _row_name(row: Row) -> str:
    names = escape(ranges(row.nodes))
    return names if len(row.nodes) == 1 else f"{len(row.nodes)} x {names}"


def _wanted(head: Head, labels: Mapping[str, str]) -> int:
    said = (_leaf_name(head, labels), _links(head, wide=True), *(f"! {words(fault)}" for fault in head.faults))
    return max(cell_len(escape(line)) for line in said)


def _leaf_name(head: Head, labels: Mapping[str, str]) -> str:
    if len(head.leaves) > 2:
        return f"{len(head.leaves)} leaves"
    return ranges(labels[guid] for guid in head.leaves) if head.leaves else "no leaf"


def _links(head: Head, *, wide: bool) -> str:
    if not head.leaves:
        return ""
    down, up = head.hca_links, head.uplinks
    return f"{down} down, {up} up" if wide else f"{down}↓ {up}↑"


def _told_rows(block: Block) -> Sequence[Row]:
    """Return the rows that say more than the unit itself."""
    loaded = any(cell.load is not None for row in block.rows for cell in row.cells)
    return block.rows if loaded or len(block.rows) > 1 else [row for row in block.rows if not row.regular]


def _table(matrix: Matrix, blocks: Sequence[Block], labels: Mapping[str, str], rails: range, widths: _Widths) -> Table:
    table = Table(title="Rails by node", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("unit", width=widths.label, no_wrap=True)
    for rail in rails:
        devices = ", ".join(matrix.devices[rail][:2])
        devices = devices if cell_len(devices) <= widths.cell else matrix.devices[rail][0]
        table.add_column(Text(f"rail {rail}\n{_cut(devices, widths.cell)}"), width=widths.cell, no_wrap=True)
    for block in blocks:
        nodes = _cut(ranges(block.nodes), widths.label, keep_end=False)
        title = Text.assemble((_cut(_title(block), widths.label, keep_end=False), "bold"), "\n", (nodes, "dim"))
        table.add_row(title, *(_head(block.heads[rail], labels, widths.cell) for rail in rails))
        told = _told_rows(block)
        for row in told[:_MOST_ROWS]:
            name = Text("  " + _cut(_row_name(row), widths.label - 2, keep_end=False), "" if row.regular else "bold")
            if row.faults:
                said = ", ".join(dict.fromkeys(words(fault) for fault in row.faults))
                name.append("\n  " + _cut(f"! {said}", widths.label - 2, keep_end=False), "yellow")
            table.add_row(name, *(_cell(row.cells[rail], labels, widths.cell) for rail in rails))
        if len(told) > _MOST_ROWS:
            table.add_row(Text(f"  ... and {len(told) - _MOST_ROWS} more", "dim"))
        table.add_section()
    return table


def _head(head: Head, labels: Mapping[str, str], width: int) -> Text:
    """Return the leaf of a unit on a rail, with its HCA links and uplinks."""
    if not head.leaves:
        return Text("no leaf", "yellow")
    wide = _links(head, wide=True)
    links = wide if cell_len(wide) <= width else _links(head, wide=False)
    shown = Text(_cut(_leaf_name(head, labels), width), "bold")
    said = list(dict.fromkeys(words(fault) for fault in head.faults))
    shown.append(f"\n{links}", "not bold yellow" if said else "not bold dim")
    if said:
        shown.append("\n" + _cut(f"! {', '.join(said)}", width, keep_end=False), "not bold yellow")
    if head.load is not None:
        shown.append(f"\n{_cut(f'load {percent(head.load)}', width)}", f"not bold {LOAD_STYLES[step(head.load)]}")
    return shown


def _cell(cell: Cell, labels: Mapping[str, str], width: int) -> Text:
    """Return what is to be said of a port; ``ok`` when nothing is."""
    if cell.state is State.NONE:
        return Text("-", "dim")
    if cell.state is State.MISSING:
        return Text("! missing", "bold red")
    where = ranges(labels[guid] for guid in cell.leaves)
    if cell.state is State.WRONG:
        shown = Text("! on " + _cut(where, width - 5), "bold red")
    elif cell.state is State.SLOW:
        share = format_share(cell.bytes_per_s / cell.usual_bytes_per_s) if cell.usual_bytes_per_s else ""
        shown = Text(f"! slow {share}" if width > len(share) + 6 else "! slow", "yellow")
    else:
        shown = Text(_cut(where, width) or "ok", "dim")
    if cell.load is None:
        return shown
    load = Text(percent(cell.load), LOAD_STYLES[step(cell.load)])
    return load if cell.state is State.OK else Text.assemble(shown, "\n", load)


def _cut(said: str, width: int, *, keep_end: bool = True) -> str:
    """Return a hostile text in ``width`` signs; of names of switches the end tells most, of lists the start."""
    said = escape(said[-400:] if keep_end else said[:400])
    if cell_len(said) <= width:
        return said
    while said and cell_len(said) >= width:
        said = said[1:] if keep_end else said[:-1]
    return f"…{said}" if keep_end else f"{said}…"
