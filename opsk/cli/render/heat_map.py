"""Draws which GPUs exchange how much in a step, as a matrix of senders and receivers with HB domains outlined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from opsk.cli.render.chart import DIM, INK, RULE, Box, Chart, Path, Shape, Word
from opsk.costmodel.time.traffic_pairs import Layout, Pair

MAX_RANKS = 192
"""GPUs that are drawn: four pipeline stages of figure 3 of the rail-only paper."""
_SIDE, _LEFT, _TOP, _RIGHT = 576.0, 56.0, 64.0, 210.0
_COLOURS = ("#c6dbef", "#6baed6", "#2171b5", "#d55e00", "#8a1c00")
"""From little to much, a colour a decade."""
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def build_heat_map(title: str, layout: Layout, pairs: Sequence[Pair], shares: Sequence[tuple[str, float]]) -> Chart:
    """Return the matrix, its colours, and the share of each kind of traffic."""
    ranks = min(layout.gpus, MAX_RANKS)
    cell = _SIDE / ranks
    exponents = sorted({_find_decade(pair.size_bytes) for pair in pairs if pair.size_bytes > 0}, reverse=True)
    decades = exponents[: len(_COLOURS)]
    shapes: list[Shape] = [Word(x=_LEFT, y=24, text=title, size=14, is_bold=True)]
    shown = "" if ranks == layout.gpus else f", the first {ranks} of {layout.gpus:,}"
    shapes.append(Word(x=_LEFT, y=44, text=f"rows send, columns receive: GPUs 0 to {ranks - 1}{shown}", colour=DIM))
    shapes += _outline_domains(layout, ranks, cell)
    for pair in pairs:
        if pair.size_bytes > 0:
            fill = _find_colour(_find_decade(pair.size_bytes), decades)
            x, y = _LEFT + pair.target * cell, _TOP + pair.source * cell
            shapes.append(Box(x=x, y=y, width=max(cell, 1.0), height=max(cell, 1.0), fill=fill))
    shapes += _list_legend(decades, shares)
    return Chart(width=_LEFT + _SIDE + _RIGHT, height=_TOP + _SIDE + 24, shapes=tuple(shapes))


def _outline_domains(layout: Layout, ranks: int, cell: float) -> Iterator[Shape]:
    """Yield the border of the matrix and of each HB domain."""
    size = max(min(layout.hb_domain, ranks), 1)
    for first in range(0, ranks, size):
        start, end = first * cell, min(first + size, ranks) * cell
        corners = ((start, start), (end, start), (end, end), (start, end), (start, start))
        yield Path(points=tuple((_LEFT + x, _TOP + y) for x, y in corners), colour="#e69f00", width=1.2)
    border = ((0.0, 0.0), (_SIDE, 0.0), (_SIDE, _SIDE), (0.0, _SIDE), (0.0, 0.0))
    yield Path(points=tuple((_LEFT + x, _TOP + y) for x, y in border), colour=RULE)


def _list_legend(decades: Sequence[int], shares: Sequence[tuple[str, float]]) -> Iterator[Shape]:
    """Yield the colours and the shares of traffic, right of the matrix."""
    x, y = _LEFT + _SIDE + 24, _TOP + 12
    yield Word(x=x, y=y, text="from one GPU to another, a step", size=10.5, colour=DIM)
    for decade in decades:
        y += 20
        yield Box(x=x, y=y - 10, width=12, height=12, fill=_find_colour(decade, decades))
        yield Word(x=x + 20, y=y, text=f"{_format_size(10.0**decade)} to {_format_size(10.0 ** (decade + 1))}")
    yield Path(points=((x, y + 22), (x + 12, y + 22)), colour="#e69f00", width=2)
    yield Word(x=x + 20, y=y + 26, text="an HB domain")
    y += 60
    yield Word(x=x, y=y, text="shares of all bytes", size=10.5, colour=DIM)
    for name, share in shares:
        y += 20
        yield Word(x=x, y=y, text=f"{name} {share:.1%}", colour=INK)


def _find_decade(size_bytes: float) -> int:
    return math.floor(math.log10(size_bytes))


def _find_colour(decade: int, decades: Sequence[int]) -> str:
    """Return a colour: the last one is that of the greatest decade."""
    rank = decades.index(decade) if decade in decades else len(decades) - 1
    return _COLOURS[len(_COLOURS) - 1 - rank]


def _format_size(size_bytes: float) -> str:
    limit, unit = next((entry for entry in _UNITS if size_bytes >= entry[0]), _UNITS[-1])
    return f"{size_bytes / limit:g} {unit}"
