"""Finds values that differ from their peers by more than chance, with medians and spreads that resist outliers.

Values are compared within groups of peers (GPUs with the same work), as parts of their group's median; the spread is
taken over all groups together, because that of few values is hardly known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import median
from typing import TypeVar

MIN_PEERS = 4
"""Among fewer peers no outlier can be determined."""
FALSE_OUTLIER = 0.001
"""Chance that among healthy peers, however many, any is called an outlier, if their spread were known."""
_UNKNOWN_SPREAD = 16.0
"""Limits are wider by 1 + this / n, for the median absolute deviation of n values is no more certain than that.

Drawn 20,000 times from a normal distribution, that leaves less than 3 false outliers in 1,000 for any n from 4 on.
"""
_MIN_SPREAD = 0.004
"""Least standard deviation [part of the median]: readings are rounded, and equal readings are no proof of no noise."""
_SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_SIGMA_OF_MEDIAN = 0.6
"""Standard deviation of the median of a few values over theirs; 1.25 / sqrt(n) is 0.63 for 4 and 0.44 for 8."""

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


def compute_sigma(values: Sequence[float]) -> float:
    """Return the standard deviation, from the median absolute deviation."""
    centre = median(values)
    return _SIGMA_OF_MAD * median(abs(value - centre) for value in values)


def compute_limit(count: int) -> float:
    """Return how many standard deviations the largest of ``count`` healthy values stays below, almost surely.

    The normal tail is below exp(-z**2 / 2) / 2, so z = sqrt(2 ln(count / chance)) bounds the chance of any outlier.
    """
    widened = 1.0 + _UNKNOWN_SPREAD / max(count, 1)
    return widened * max(4.0, math.sqrt(2.0 * math.log(max(count, 2) / FALSE_OUTLIER)))


def find_outliers(groups: Sequence[Mapping[Key, float]], *, high: bool, minimum: float) -> dict[Key, float]:
    """Return those that are above (or below) the median of their peers by more than chance, and by how much.

    Parameters
    ----------
    minimum
        Least difference that counts [part of the median].

    Returns
    -------
    By key, |value / median - 1|; nothing where there are too few values, or where most of them would be odd.
    """
    parts: dict[Key, float] = {}
    for group in groups:
        centre = median(group.values()) if len(group) >= MIN_PEERS else 0.0
        if centre > 0:
            parts |= {key: value / centre - 1.0 for key, value in group.items()}
    if not parts:
        return {}
    needed = max(compute_limit(len(parts)) * max(compute_sigma(list(parts.values())), _MIN_SPREAD), minimum)
    sign = 1.0 if high else -1.0
    outliers = {key: abs(part) for key, part in parts.items() if sign * part > needed}
    return outliers if 2 * len(outliers) < len(parts) else {}


def find_odd_groups(
    groups: Sequence[Mapping[Group, Sequence[float]]], *, high: bool, minimum: float
) -> dict[Group, float]:
    """Return the nodes whose median is above (or below) that of the other nodes by more than chance, and how much.

    Of two nodes with the same work the better one is the measure, of more the median. The spread is that within nodes
    or that between them, whichever is larger.
    """
    centres: dict[Group, float] = {}
    within: list[float] = []
    for nodes in groups:
        known = {node: values for node, values in nodes.items() if len(values) >= 2}
        usual = _reference([median(values) for values in known.values()], high=high)
        if usual <= 0:
            continue
        centres |= {node: median(values) / usual - 1.0 for node, values in known.items()}
        within += [value / usual - 1.0 - centres[node] for node, values in known.items() for value in values]
    if not centres:
        return {}
    inside = _SIGMA_OF_MEDIAN * max(compute_sigma(within), _MIN_SPREAD) * compute_limit(len(within))
    between = compute_sigma(list(centres.values())) * compute_limit(len(centres)) if len(centres) >= MIN_PEERS else 0.0
    needed = max(inside, between, minimum)
    sign = 1.0 if high else -1.0
    odd = {node: abs(part) for node, part in centres.items() if sign * part > needed}
    return odd if 2 * len(odd) <= len(centres) else {}


def _reference(centres: Sequence[float], *, high: bool) -> float:
    """Return the reference of nodes; 0 where there is nothing to compare with."""
    if len(centres) < 2:
        return 0.0
    if len(centres) == 2:
        return min(centres) if high else max(centres)
    return median(centres)
