"""How is a table of plans drawn? Cells are text that nothing in it can turn into markup; the last columns may wrap."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from opsk.text import escape

_WORDS = ("plan", "change", "run by")
"""Columns of words, to the left; the others are numbers, which are never broken."""


def table_of(*columns: str) -> Table:
    """Return a table with these columns, and no rows."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        if name in _WORDS:
            table.add_column(Text(name), justify="left", overflow="fold")
        else:
            table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row; what is no text of ours already is made harmless."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(escape(cell)) for cell in cells))
