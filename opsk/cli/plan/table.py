"""Builds tables of plans. Cells are plain text without markup; columns of words may wrap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from opsk.text import escape


def format_plan(plan: Mapping[str, Any]) -> str:
    """Return the axes of a plan in short form: ``TP8 PP16×2 DP32 mbs 1 zero1 SP recompute full 3 a stage``."""
    pipeline = f"PP{plan['pp']}" + (f"×{plan['vpp']}" if plan["vpp"] > 1 else "") if plan["pp"] > 1 else ""
    ends = [str(plan[name]) for name in ("first_stage_layers", "last_stage_layers") if plan[name]]
    sharding = plan["sharding"] + (f"/{plan['shard_gpus']}" if plan["shard_gpus"] else "")
    recompute = plan["recompute"] + (f" {plan['recompute_layers']} a stage" if plan["recompute_layers"] else "")
    words = [
        *(f"{axis.upper()}{plan[axis]}" for axis in ("tp",) if plan[axis] > 1),
        pipeline,
        *(f"{axis.upper()}{plan[axis]}" for axis in ("cp", "ep", "dp") if plan[axis] > 1),
        f"ETP{plan['etp']}" if plan["etp"] else "",
        f"mbs {plan['micro_batch']}",
        sharding if plan["sharding"] != "none" else "",
        "SP" if plan["sequence_parallel"] else "",
        f"recompute {recompute}" if plan["recompute"] != "none" else "",
        plan["schedule"] if plan["schedule"] != "1f1b" else "",
        f"ends {'+'.join(ends)} layers" if ends else "",
    ]
    return " ".join(word for word in words if word)


_WORDS = ("plan", "change", "run by")
"""Columns of words are left-aligned; the others are numbers, which are never wrapped."""


def build_table(*columns: str) -> Table:
    """Return a table with these columns, and no rows."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        if name in _WORDS:
            table.add_column(Text(name), justify="left", overflow="fold")
        else:
            table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row; plain strings are escaped."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(escape(cell)) for cell in cells))
