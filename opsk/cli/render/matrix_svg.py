"""Renders the rail × node matrix as SVG."""

from __future__ import annotations

from collections.abc import Mapping

from opsk.cli.render.svg import (
    FONT,
    LEFT,
    SMALL,
    WIDTH,
    Drawing,
    build_load_entries,
    draw_legend,
    element,
    fit,
    fit_bold,
    format_faults,
    measure_width,
    text,
    tooltip,
)
from opsk.fabric.views.marks import describe_fault, format_percent, scale_step
from opsk.fabric.views.matrix import Block, Cell, Head, Matrix, Row, State
from opsk.fabric.views.names import format_ranges
from opsk.units import as_gbit_per_s

_LABEL = 210.0
_MIN_COLUMN, _MAX_COLUMN = 92.0, 190.0
_HEAD, _ROW, _GAP = 42.0, 26.0, 10.0
_MAX_NAMED = 2
"""More leaves than this on a rail of one block are counted, not named."""


def draw_matrix(matrix: Matrix, labels: Mapping[str, str], top: float) -> Drawing:
    """Return the matrix from ``top`` on; ``labels`` are short names of switches by guid."""
    rails = len(matrix.devices)
    if not rails:
        return Drawing(
            parts=[text(LEFT, top + 20, "No rails: no compute node hangs on a leaf.", "d")],
            right=WIDTH,
            bottom=top + 30,
        )
    column = min(max((WIDTH - 2 * LEFT - _LABEL) / rails, _MIN_COLUMN), _MAX_COLUMN)
    right = LEFT + _LABEL + rails * column
    parts = [text(LEFT, top + 20, "Rails by node", "h")]
    y = top + 46
    for rail, devices in enumerate(matrix.devices):
        x = LEFT + _LABEL + (rail + 0.5) * column
        parts += [
            text(x, y, f"rail {rail}", "b m"),
            text(x, y + 15, fit(", ".join(devices[:2]), column - 8, SMALL), "s d m"),
        ]
    y += 24
    for block in matrix.blocks:
        drawn, y = _draw_block(block, labels, y, column)
        parts += drawn
        y += _GAP
    if matrix.apart:
        note = f"Not shown, on no unit: {format_ranges(matrix.apart[:200])}"
        parts.append(text(LEFT, y + 12, fit(note, right - LEFT, FONT), "d"))
        y += 24
    drawn, y = draw_legend(_build_legend_entries(matrix), y + 18, LEFT, max(right, 700))
    parts += drawn
    if matrix.loaded:
        drawn, y = draw_legend(build_load_entries("box"), y + 14, LEFT, max(right, 700))
        parts += drawn
    return Drawing(parts=parts, right=right, bottom=y)


def _draw_block(block: Block, labels: Mapping[str, str], y: float, column: float) -> tuple[list[str], float]:
    """Return a unit: its leaves, then its rows unless all nodes are one regular row."""
    parts = [element("path", d=f"M{LEFT:g} {y:g}h{_LABEL + len(block.heads) * column:g}", class_="rule")]
    y += 6
    several = len(block.units) > 1
    title = f"{len(block.units)} units" if several else f"unit {block.units[0]}"
    count = f"{len(block.nodes)} nodes" if len(block.nodes) != 1 else "1 node"
    nodes = format_ranges(block.nodes)
    parts.append(
        element(
            "g",
            tooltip([f"unit{'s' if several else ''} {format_ranges(map(str, block.units))}: {count}", nodes]),
            text(LEFT, y + 17, fit_bold(f"{title} · {count}", _LABEL - 12, FONT), "b"),
            text(LEFT, y + 33, fit(nodes, _LABEL - 12, SMALL), "s d"),
        )
    )
    for rail, head in enumerate(block.heads):
        parts.append(_draw_head(head, labels, LEFT + _LABEL + rail * column, y, column))
    y += _HEAD
    if (
        len(block.rows) == 1
        and block.rows[0].regular
        and not any(cell.load is not None for cell in block.rows[0].cells)
    ):
        return parts, y
    for row in block.rows:
        parts += _draw_row(row, labels, y, column)
        y += _ROW + (14 if row.faults else 0)
    return parts, y


def _draw_head(head: Head, labels: Mapping[str, str], x: float, y: float, column: float) -> str:
    """Return the leaf of a unit on a rail."""
    box = {"x": x + 3, "y": y, "width": column - 6, "height": _HEAD - 4, "rx": 4.0}
    middle = x + column / 2
    if not head.leaves:
        return element("g", element("rect", **box, class_="void"), text(middle, y + 23, "no leaf", "s d m"))
    names = format_ranges(labels[guid] for guid in head.leaves)
    many = len(head.leaves) > _MAX_NAMED
    lines = [
        f"{len(head.leaves)} leaves: {names}" if len(head.leaves) > 1 else f"leaf {names}",
        f"{head.hca_links} HCA links, {head.uplinks} cables up",
        "" if head.load is None else f"busiest cable to another switch: {format_percent(head.load)}",
        *format_faults(head.faults),
    ]
    bar = ""
    if head.load is not None:
        bar = element("rect", x=x + 3, y=y + _HEAD - 8, width=column - 6, height=4, class_=f"k{scale_step(head.load)}")
    shown = f"{len(head.leaves)} leaves" if many else names
    return element(
        "g",
        tooltip(lines),
        element("rect", **box, class_="wrong" if head.faults else "box"),
        bar,
        text(middle, y + 16, fit_bold(shown, column - 12, FONT, keep_end=True), "b m"),
        text(middle, y + 30, _format_links(head, column - 10), "s bad m" if head.faults else "s d m"),
    )


def _format_links(head: Head, width: float) -> str:
    """Return the links of a leaf, its load and its faults, as far as there is room."""
    load = [] if head.load is None else [format_percent(head.load)]
    short = f"{head.hca_links}↓ {head.uplinks}↑"
    if head.faults:
        wrong = ", ".join(dict.fromkeys(describe_fault(fault) for fault in head.faults))
        return fit_bold(" · ".join([f"⚠ {short}", *load, wrong]), width, SMALL)
    long = " · ".join([f"{head.hca_links} down", f"{head.uplinks} up", *load])
    return long if measure_width(long, SMALL) <= width else fit(" · ".join([short, *load]), width, SMALL)


def _draw_row(row: Row, labels: Mapping[str, str], y: float, column: float) -> list[str]:
    count = len(row.nodes)
    name = row.nodes[0] if count == 1 else f"{count} × {format_ranges(row.nodes)}"
    parts = [
        element("g", tooltip([format_ranges(row.nodes), *format_faults(row.faults)]),
                text(LEFT + 10, y + 16, fit(name, _LABEL - 22, SMALL + 0.5), "s" if row.regular else "s b"))
    ]  # fmt: skip
    if row.faults:
        problems = ", ".join(dict.fromkeys(describe_fault(fault) for fault in row.faults))
        parts.append(text(LEFT + 10, y + 32, fit(f"⚠ {problems}", 3 * column, SMALL), "s bad"))
    for rail, cell in enumerate(row.cells):
        parts.append(_draw_cell(cell, row, rail, labels, LEFT + _LABEL + rail * column, y, column))
    return parts


def _draw_cell(cell: Cell, row: Row, rail: int, labels: Mapping[str, str], x: float, y: float, column: float) -> str:
    box = {"x": x + 3, "y": y + 2, "width": column - 6, "height": _ROW - 4, "rx": 4.0}
    middle, base = x + column / 2, y + 17
    if cell.state is State.NONE:
        return text(middle, base, "·", "s d m")
    devices = ", ".join(cell.devices)
    if cell.state is State.MISSING:
        lines = [f"{row.nodes[0]}: no HCA on rail {rail}", *format_faults(cell.faults)]
        return element(
            "g", tooltip(lines), element("rect", **box, class_="missing"), text(middle, base, "✗ missing", "s bad m")
        )
    where = ", ".join(labels[guid] for guid in cell.leaves)
    rate = f"{as_gbit_per_s(cell.bytes_per_s):.0f}"
    lines = [
        f"{format_ranges(row.nodes[:50])}, rail {rail}: {devices}" + (f" on {where}" if where else ""),
        f"{rate} Gbit/s",
    ]
    load = ""
    if cell.load is not None:
        lines.append(f"load {format_percent(cell.load)}")
        load = element("rect", x=x + 3, y=y + _ROW - 6, width=column - 6, height=4, class_=f"k{scale_step(cell.load)}")
    lines += format_faults(cell.faults)
    if cell.state is State.WRONG:
        shown, look, class_ = f"⇄ {where}", "bad", "wrong"
    elif cell.state is State.SLOW:
        usual = as_gbit_per_s(cell.usual_bytes_per_s)
        shown, look, class_ = f"▾ {rate} of {usual:.0f} Gbit/s", "late", "slow"
    else:
        shown, look, class_ = devices if len(row.nodes) == 1 or not where else where, "d", "cell"
    if cell.load is not None:
        shown = f"{shown} {format_percent(cell.load)}" if cell.state is not State.OK else format_percent(cell.load)
    return element(
        "g",
        tooltip(lines),
        element("rect", **box, class_=class_),
        load,
        text(middle, base, fit(shown, column - 14, SMALL), f"s {look} m"),
    )


def _build_legend_entries(matrix: Matrix) -> list[tuple[str, str, str]]:
    """Return the legend entries of this matrix."""
    states = {cell.state for block in matrix.blocks for row in block.rows for cell in row.cells}
    entries = {
        State.WRONG: ("box", "wrong", "⇄ on the leaf of another rail or unit"),
        State.MISSING: ("box", "missing", "✗ HCA missing"),
        State.SLOW: ("box", "slow", "▾ slower than its like"),
    }
    leaf = ("box", "box", "leaf: ↓ HCA links down, ↑ cables up")
    short = any(head.faults for block in matrix.blocks for head in block.heads)
    return [
        leaf,
        *([("box", "wrong", "⚠ something is wrong with the leaf")] if short else []),
        ("box", "cell", "HCA on its rail's leaf"),
        *(entry for state, entry in entries.items() if state in states),
    ]
