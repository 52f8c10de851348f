"""Computes how long steps usually take, and which ones take longer, at what intervals.

Time between steps counts too: where lines carry times, the time between two lines beyond their steps belongs to the
second one; where they do not, what the log reports of checkpoints and validations is added. Values are compared within
groups of peers (steps, or GPUs with the same work) as parts of their group's median, with spreads that resist outliers;
the spread is taken over all groups together, because that of few values is hardly known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

from opsk.diagnosis.losses.observation import MeasuredStep, Observation, Pause

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
MIN_STEPS = 5
"""Fewer lines give no step times."""
_LONG_SIGMAS, _LONG_SHARE = 6.0, 0.05
_MIN_PERIODS = 3
_ON_TIME = 0.15
"""A step is on time within this part of the period."""
_REGULAR = 0.8
"""Share of intervals that must be whole periods."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Statistics of the steps of an interval.

    Parameters
    ----------
    typical_s, mean_s
        Median of single steps, and the mean with all that happens between them [s].
    checkpoint_s, validation_s, stalled_s
        Time that checkpoints, validations and other long steps add to the mean step [s].
    checkpoints, period
        How many checkpoints were seen, and after how many steps each; 0 where that is not regular.
    are_reported
        Whether the log reports the checkpoints.
    stalls
        How many other long steps there were.
    """

    typical_s: float
    mean_s: float
    checkpoint_s: float = 0.0
    validation_s: float = 0.0
    stalled_s: float = 0.0
    checkpoints: int = 0
    period: float = 0.0
    are_reported: bool = False
    stalls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LongStep:
    """A line whose steps took longer than usual: its position, its number of steps, and the excess time."""

    at: float
    steps: int
    extra_s: float


def compute_step_times(seen: Observation) -> StepTimes | None:
    """Return the statistics of the steps; ``None`` where there are too few."""
    steps = seen.steps
    if len(steps) < MIN_STEPS:
        return None
    typical = _compute_typical(steps)
    count = sum(step.steps for step in steps)
    long, usual_s = _find_long(steps, typical)
    unseen = [] if any(step.at_s is not None for step in steps) else _find_unseen_pauses(seen, long)
    saved = [each for each in long if _is_near(each, seen.checkpoints)]
    tested = [each for each in long if each not in saved and _is_near(each, seen.validations)]
    rest = [each for each in long if each not in saved and each not in tested]
    period = _find_period(saved or rest)
    if not saved and period:
        saved, rest = _split_regular(rest, period)
    between_s = sum(pause.seconds or 0.0 for pause in unseen)
    save_s = sum(each.extra_s for each in saved) + sum(
        pause.seconds or 0.0 for pause in unseen if pause in seen.checkpoints
    )
    test_s = sum(each.extra_s for each in tested) + sum(
        pause.seconds or 0.0 for pause in unseen if pause not in seen.checkpoints
    )
    stalled_s = sum(each.extra_s for each in rest)
    mean_s = (usual_s + sum(each.extra_s for each in long) + between_s) / count
    return StepTimes(
        typical_s=typical,
        mean_s=mean_s,
        checkpoint_s=save_s / count,
        validation_s=test_s / count,
        stalled_s=stalled_s / count,
        checkpoints=max(len(saved), sum(pause in seen.checkpoints for pause in unseen)),
        period=period,
        are_reported=bool(seen.checkpoints),
        stalls=len(rest),
    )


def _compute_typical(steps: Sequence[MeasuredStep]) -> float:
    """Return the median of single steps."""
    ordered = sorted(steps, key=lambda step: step.seconds)
    half, passed = sum(step.steps for step in steps) / 2.0, 0
    for number, step in enumerate(ordered):
        passed += step.steps
        if passed > half:
            return step.seconds
        if passed == half:
            return (step.seconds + ordered[number + 1].seconds) / 2.0
    return ordered[-1].seconds


def _find_long(steps: Sequence[MeasuredStep], typical: float) -> tuple[list[_LongStep], float]:
    """Return the lines that took longer than usual, and the time of all steps without the excess."""
    times = [step.seconds for step in steps]
    needed = typical + max(_LONG_SIGMAS * compute_sigma(times), _LONG_SHARE * typical)
    between, allowed = _compute_between(steps)
    long_steps: list[_LongStep] = []
    usual_s, passed = 0.0, 0
    for step, waited_s in zip(steps, between, strict=True):
        passed += step.steps
        extra = step.steps * (step.seconds - typical) if step.seconds > needed else 0.0
        usual_s += step.steps * step.seconds - extra
        if waited_s > allowed + _LONG_SHARE * step.steps * typical:
            extra += waited_s
        if extra > 0:
            at = float(passed if step.iteration is None else step.iteration)
            long_steps.append(_LongStep(at=at, steps=step.steps, extra_s=extra))
    return long_steps, usual_s


def _compute_between(steps: Sequence[MeasuredStep]) -> tuple[list[float], float]:
    """Return the time that passed before each line beyond its steps [s], and how much of it is rounding of times."""
    waited: list[float] = []
    before: MeasuredStep | None = None
    for step in steps:
        known = before is not None and before.at_s is not None and step.at_s is not None
        waited.append(step.at_s - before.at_s - step.steps * step.seconds if known else 0.0)  # type: ignore[operator, union-attr]
        before = step
    return waited, _LONG_SIGMAS * compute_sigma(waited)


def _find_unseen_pauses(seen: Observation, long: Sequence[_LongStep]) -> list[Pause]:
    """Return the pauses that the log gives a time of and no line shows."""
    pauses = (*seen.checkpoints, *seen.validations)
    first = min((step.iteration for step in seen.steps if step.iteration is not None), default=None)
    last = max((step.iteration for step in seen.steps if step.iteration is not None), default=None)
    return [
        pause
        for pause in pauses
        if pause.seconds
        and not any(_is_near(each, (pause,)) for each in long)
        and (pause.iteration is None or first is None or last is None or first <= pause.iteration <= last)
    ]


def _is_near(long: _LongStep, pauses: Sequence[Pause]) -> bool:
    """Return whether a pause is within the steps of a long line, or right before it."""
    return any(
        pause.iteration is not None and long.at - long.steps - 1 <= pause.iteration <= long.at + 1 for pause in pauses
    )


def _find_period(long_steps: Sequence[_LongStep]) -> float:
    """Return the steps from one to the next where they come regularly; 0 where they do not."""
    if len(long_steps) < _MIN_PERIODS:
        return 0.0
    gaps = [after.at - before.at for before, after in pairwise(long_steps)]
    period = median(gaps)
    if period <= 1.5 * max(each.steps for each in long_steps):
        return 0.0
    on_time = sum(_is_whole(gap, period, long_steps[0].steps) for gap in gaps)
    return period if on_time >= _REGULAR * len(gaps) else 0.0


def _is_whole(gap: float, period: float, grain: int) -> bool:
    """Return whether a gap is one or several periods, at the resolution of lines of ``grain`` steps."""
    times = max(round(gap / period), 1)
    return abs(gap - times * period) <= max(_ON_TIME * period, grain if grain > 1 else 0.0)


def _split_regular(long_steps: Sequence[_LongStep], period: float) -> tuple[list[_LongStep], list[_LongStep]]:
    """Return those that come on time with another one, and the rest."""
    regular = [
        each
        for each in long_steps
        if any(other is not each and _is_whole(abs(other.at - each.at), period, each.steps) for other in long_steps)
    ]
    return regular, [each for each in long_steps if each not in regular]
