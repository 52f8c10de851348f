"""Defines the glyphs of the screens, in Unicode and for terminals that show only ASCII.

Every state has a glyph of its own, so that no information depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of glyphs; each is one cell wide.

    ``levels`` are eight heights from low to high, used for maps and sparklines.
    """

    is_ascii: bool
    levels: str
    sick: str
    watch: str
    unknown: str
    ok: str
    full: str
    empty: str
    thumb: str
    track: str
    rule: str
    ellipsis: str


UNICODE = Glyphs(
    is_ascii=False, levels="▁▂▃▄▅▆▇█", sick="✗", watch="!", unknown="·", ok="✓", full="█", empty="░", thumb="┃",
    track="│", rule="─", ellipsis="…",
)  # fmt: skip
ASCII = Glyphs(
    is_ascii=True, levels="01234567", sick="X", watch="!", unknown="?", ok="+", full="#", empty=".", thumb="#",
    track="|", rule="-", ellipsis="~",
)  # fmt: skip


def glyphs_for(environ: Mapping[str, str], encoding: str | None) -> Glyphs:
    """Return the glyphs that the terminal can show: ``OPSK_ASCII`` selects ASCII, as does an encoding without them."""
    if environ.get("OPSK_ASCII", "") not in ("", "0") or environ.get("TERM") in ("linux", "vt100", "vt220", "dumb"):
        return ASCII
    return UNICODE if "utf" in (encoding or "").lower() else ASCII


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """Return the latest values as one line of heights, lowest at the bottom; constant values are in the middle.

    Each glyph is the mean of equally many values.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known or width <= 0:
        return ""
    size = -(-len(known) // width)
    means = [sum(part) / len(part) for part in (known[start : start + size] for start in range(0, len(known), size))]
    low, high = min(means), max(means)
    if high - low < 0.02 * abs(high):
        low, high = low - 0.04 * abs(high or 1), high + 0.04 * abs(high or 1)
    return "".join(glyphs.levels[min(7, int((mean - low) / (high - low) * 8))] for mean in means)


def bar(ratio: float, width: int, glyphs: Glyphs) -> str:
    """Return a bar that is filled by ``ratio`` [0 to 1]."""
    filled = round(min(1.0, max(0.0, ratio)) * width)
    return glyphs.full * filled + glyphs.empty * (width - filled)
