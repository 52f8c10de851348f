"""Who differs from its equals by more than chance? Medians, and spreads that a few outliers cannot move.

Values are compared within groups of equals (GPUs with the same work), as parts of their group's median; the spread is
taken over all groups together, for that of few values is hardly known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

FEWEST_EQUALS = 4
"""Of fewer equals nobody can say who is the odd one."""
FALSE_OUTLIER = 0.001
"""Chance that among sound equals, however many, any is called an outlier, if their spread were known."""
_UNKNOWN_SPREAD = 16.0
"""Limits are wider by 1 + this / n, for the median absolute deviation of n values is no more certain than that.

Drawn 20,000 times from a normal distribution, that leaves less than 3 false outliers in 1,000 for any n from 4 on.
"""
_LEAST_SPREAD = 0.004
"""Least standard deviation [part of the median]: readings are rounded, and equal readings are no proof of no noise."""
_SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_SIGMA_OF_MEDIAN = 0.6
"""Standard deviation of the median of a few values over theirs; 1.25 / sqrt(n) is 0.63 for 4 and 0.44 for 8."""

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


def sigma(values: Sequence[float]) -> float:
    """Return the standard deviation as the median absolute deviation tells it."""
    centre = median(values)
    return _SIGMA_OF_MAD * median(abs(value - centre) for value in values)


def limit_of(count: int) -> float:
    """Return how many standard deviations the largest of ``count`` sound values stays below, all but surely.

    The normal tail is below exp(-z**2 / 2) / 2, so z = sqrt(2 ln(count / chance)) bounds the chance of any outlier.
    """
    widened = 1.0 + _UNKNOWN_SPREAD / max(count, 1)
    return widened * max(4.0, math.sqrt(2.0 * math.log(max(count, 2) / FALSE_OUTLIER)))


def outliers(groups: Sequence[Mapping[Key, float]], *, high: bool, least: float) -> dict[Key, float]:
    """Return those that lie above (or below) the median of their equals by more than chance, and by how much.

    Parameters
    ----------
    least
        Least difference that counts [part of the median].

    Returns
    -------
    By key, |value / median - 1|; nothing where there are too few values, or where most of them would be odd.
    """
    parts: dict[Key, float] = {}
    for group in groups:
        centre = median(group.values()) if len(group) >= FEWEST_EQUALS else 0.0
        if centre > 0:
            parts |= {key: value / centre - 1.0 for key, value in group.items()}
    if not parts:
        return {}
    needed = max(limit_of(len(parts)) * max(sigma(list(parts.values())), _LEAST_SPREAD), least)
    sign = 1.0 if high else -1.0
    found = {key: abs(part) for key, part in parts.items() if sign * part > needed}
    return found if 2 * len(found) < len(parts) else {}


def odd_groups(groups: Sequence[Mapping[Group, Sequence[float]]], *, high: bool, least: float) -> dict[Group, float]:
    """Return the nodes whose median lies above (or below) that of the other nodes by more than chance, and how much.

    Of two nodes with the same work the better one is the measure, of more the median. The spread is that within nodes
    or that between them, whichever is larger.
    """
    centres: dict[Group, float] = {}
    within: list[float] = []
    for nodes in groups:
        known = {node: values for node, values in nodes.items() if len(values) >= 2}
        usual = _usual([median(values) for values in known.values()], high=high)
        if usual <= 0:
            continue
        centres |= {node: median(values) / usual - 1.0 for node, values in known.items()}
        within += [value / usual - 1.0 - centres[node] for node, values in known.items() for value in values]
    if not centres:
        return {}
    inside = _SIGMA_OF_MEDIAN * max(sigma(within), _LEAST_SPREAD) * limit_of(len(within))
    between = sigma(list(centres.values())) * limit_of(len(centres)) if len(centres) >= FEWEST_EQUALS else 0.0
    needed = max(inside, between, least)
    sign = 1.0 if high else -1.0
    found = {node: abs(part) for node, part in centres.items() if sign * part > needed}
    return found if 2 * len(found) <= len(centres) else {}


def _usual(centres: Sequence[float], *, high: bool) -> float:
    """Return what nodes are measured by; 0 where there is nobody to compare with."""
    if len(centres) < 2:
        return 0.0
    if len(centres) == 2:
        return min(centres) if high else max(centres)
    return median(centres)
