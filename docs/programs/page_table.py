"""Formats Markdown tables for the programs that write pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTHING = "–"
GIB = 2**30


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def seconds(value: float) -> str:
    """Return a time with three digits that count."""
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def gib(value_bytes: float) -> str:
    """Return bytes in GiB."""
    return f"{value_bytes / GIB:.1f}"
