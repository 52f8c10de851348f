"""How much of a link is used: the heaviest of several links, and one of six steps of a scale?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

Loads = Mapping[tuple[str, str], float]
"""Directed pair of guids (two switches, an HCA and its leaf) to utilisation of its cables together; 1 is all of it."""

STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Upper ends of the steps of the scale; what is above the last is more than the cables carry."""


def heaviest(loads: Loads | None, pairs: Iterable[tuple[str, str]]) -> float | None:
    """Return the highest load of directed pairs, ``None`` when none of them is known; never negative."""
    if not loads:
        return None
    known = [load for pair in pairs if (load := loads.get(pair)) is not None and not math.isnan(load)]
    return max(0.0, *known) if known else None


def step(load: float) -> int:
    """Return the step of the scale: 0 idle, 1 to 4 by quarters, 5 more than the cables carry."""
    return sum(load > end for end in STEPS)


def percent(load: float) -> str:
    """Return a load for people; never 100% for something else."""
    if load > 9.995:
        return "> 999%"
    text = f"{load:.0%}"
    if text == "100%" and load != 1:
        return "> 100%" if load > 1 else "> 99%"
    return "< 1%" if text == "0%" and load > 0 else text
