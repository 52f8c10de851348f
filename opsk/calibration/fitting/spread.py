"""How wide must ranges be to hold most measured runs of sources that a fit never saw?

The variance of a prediction is a base, something for assumed inputs, and something for each aspect in which no measured
run is near (`opsk.costmodel.efficiency.nearness`). These are found by quantile regression: what is made small is the
mean score of the ranges (width, and 1 / (1 - coverage) times what lies outside), whose optimum holds the share that is
asked for, whatever the tails of the errors. No class of runs may be held much less often than all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from opsk.costmodel.efficiency.nearness import ASPECTS
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn
from opsk.costmodel.uncertainty.spread import COVERED_SIGMAS, share_of_added_variance

COVERAGE = 0.86
"""Share of the errors of sources left out that ranges hold, a source of n runs counting as the root of n."""
LEAST_CLASS_COVERAGE = 0.74
"""Share that is held of every class of many runs; the aim is 70 %, and other runs lie a little differently."""
LEAST_KIND_COVERAGE = 0.84
"""The same of all runs whose every input is stated, and of all others: the aim is 80 %."""
CLASS_RUNS = 15
"""A class of fewer runs shows no share."""
LEAST_LOG_SIGMA = 0.02
"""Repeated runs of one plan differ by about so much."""
_SHORT_OF_CLASS = 1.0
"""What a class that is held too rarely costs, in the unit of the mean score of ln ratios."""
_BELIEF = 1e-3
"""What an addition twice as large as believed costs, in the same unit: it decides only where few runs do."""
_SWEEPS = 6
_BASES = np.arange(LEAST_LOG_SIGMA, 0.6, 0.02)
_ADDITIONS = np.arange(0.0, 0.9, 0.04)
_BELIEVED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Errors ln(predicted / measured) of runs, and what decides how large they may be.

    Parameters
    ----------
    assumed_inputs
        Number of inputs of each that nobody stated.
    lacks
        Which of `ASPECTS` no run of another source was near in, shape (runs, aspects).
    sources
        Where each is from.
    classes
        By a name, the class of each run.
    """

    log_errors: FloatColumn
    assumed_inputs: IntColumn
    lacks: BoolColumn
    sources: npt.NDArray[np.object_]
    classes: Mapping[str, npt.NDArray[np.object_]]

    @classmethod
    def plain(cls, log_errors: Sequence[float], assumed_inputs: Sequence[int]) -> Residuals:
        """Return errors of runs that are near to others and of one source."""
        count = len(log_errors)
        return cls(
            log_errors=np.asarray(log_errors, dtype=np.float64),
            assumed_inputs=np.asarray(assumed_inputs, dtype=np.int64),
            lacks=np.zeros((count, len(ASPECTS)), dtype=np.bool_),
            sources=np.array(["all"] * count, dtype=object),
            classes={},
        )

    @property
    def weights(self) -> FloatColumn:
        """Weight of every run, their sum 1: a source of n runs weighs as the root of n."""
        _, place, counts = np.unique(self.sources.astype(str), return_inverse=True, return_counts=True)
        weights = counts[place] ** -0.5
        found: FloatColumn = weights / weights.sum()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSpread:
    """Standard deviations of ln(measured / predicted), as `opsk.costmodel.efficiency.efficiency.Spread` has them.

    ``new`` is what is added, by the aspect that is missing.
    """

    log_sigma: float
    assumed_log_sigma: float
    new: Mapping[str, float]

    def log_sigmas(self, errors: Residuals) -> FloatColumn:
        """Return the standard deviation of every run."""
        added = max(self.assumed_log_sigma**2 - self.log_sigma**2, 0.0)
        new = np.array([self.new[name] for name in ASPECTS])
        variance = self.log_sigma**2 + added * share_of_added_variance(errors.assumed_inputs) + errors.lacks @ new**2
        found: FloatColumn = np.sqrt(variance)
        return found

    def held(self, errors: Residuals) -> BoolColumn:
        """Return which runs lie in their range."""
        return np.abs(errors.log_errors) <= COVERED_SIGMAS * self.log_sigmas(errors)


def fitted_spread(errors: Residuals) -> FittedSpread:
    """Return the spread with which ranges hold `COVERAGE` of the errors.

    Two numbers after two others are set to their best, over and over; each has few values worth telling apart.
    """
    parts = np.column_stack(
        [np.ones(len(errors.log_errors)), share_of_added_variance(errors.assumed_inputs), errors.lacks]
    )
    weights, needed = errors.weights, np.abs(errors.log_errors)
    members, least = _classes(errors)
    found = np.full(parts.shape[1], _BELIEVED)
    told = np.flatnonzero(parts.any(axis=0)).tolist()
    for _ in range(_SWEEPS):
        before = found.copy()
        for places in combinations(told, 2) if len(told) > 1 else [(0,)]:
            values = _grid(places)
            rest = parts @ found**2 - parts[:, places] @ found[list(places)] ** 2
            half = COVERED_SIGMAS * np.sqrt(np.maximum(rest + values**2 @ parts[:, places].T, 1e-12))
            scores = _scores(half, needed, weights, members, least)
            for place, column in zip(places, values.T, strict=True):
                scores += _BELIEF * (column / _BELIEVED - 1.0) ** 2 if place else 0.0
            found[list(places)] = values[int(np.argmin(scores))]
        if np.array_equal(found, before):
            break
    return FittedSpread(
        log_sigma=float(found[0]),
        assumed_log_sigma=float(np.hypot(found[0], found[1])),
        new=dict(zip(ASPECTS, found[2:].tolist(), strict=True)),
    )


def _grid(places: Sequence[int]) -> FloatColumn:
    """Return the values of some numbers that are tried together, shape (tries, numbers); number 0 is the base."""
    axes = np.meshgrid(*(_ADDITIONS if place else _BASES for place in places), indexing="ij")
    return np.column_stack([axis.ravel() for axis in axes])


def _scores(
    half: FloatColumn, needed: FloatColumn, weights: FloatColumn, members: FloatColumn, least: FloatColumn
) -> FloatColumn:
    """Return the mean score of ranges, one entry for each row of their half widths."""
    outside = needed - half
    score = np.where(outside > 0, COVERAGE * outside, (COVERAGE - 1.0) * outside) @ weights
    shares = (outside <= 0) @ members
    short = np.maximum(least - shares, 0.0).sum(axis=1)
    found: FloatColumn = score + _SHORT_OF_CLASS * short
    return found


def _classes(errors: Residuals) -> tuple[FloatColumn, FloatColumn]:
    """Return the runs of every class of many, each divided by their number, and what share must be held of it.

    The first has shape (runs, classes).
    """
    is_stated = errors.assumed_inputs == 0
    sets = [(is_stated, LEAST_KIND_COVERAGE), (~is_stated, LEAST_KIND_COVERAGE)]
    sets += [
        (column == name, LEAST_CLASS_COVERAGE) for column in errors.classes.values() for name in sorted(set(column))
    ]
    many = [(chosen / chosen.sum(), least) for chosen, least in sets if chosen.sum() >= CLASS_RUNS]
    if not many:
        return np.zeros((len(errors.log_errors), 0)), np.zeros(0)
    return np.column_stack([shares for shares, _ in many]), np.array([least for _, least in many])


def _held_of(errors: Residuals, held: BoolColumn) -> Iterator[tuple[str, BoolColumn]]:
    """Yield the classes of runs, which of their runs are held."""
    is_stated = errors.assumed_inputs == 0
    yield from (("overall", held), ("stated", held[is_stated]), ("assumed", held[~is_stated]))
    for column in errors.classes.values():
        for name in sorted(set(column)):
            own = held[column == name]
            if len(own) >= CLASS_RUNS:
                yield str(name), own


def coverage(errors: Residuals, spread: FittedSpread) -> dict[str, float]:
    """Return the share of runs that lie in their range: of all, and of every class of many."""
    return {name: float(np.mean(own)) for name, own in _held_of(errors, spread.held(errors)) if len(own)}


def coverage_unseen(errors: Residuals) -> float | None:
    """Return the share of runs in ranges whose widths were found without their own source; ``None`` of one source."""
    names = sorted(set(errors.sources))
    if len(names) < 2:
        return None
    held = np.zeros(len(errors.log_errors), dtype=np.bool_)
    for name in names:
        own = errors.sources == name
        held[own] = fitted_spread(part_of(errors, ~own)).held(errors)[own]
    return float(np.mean(held))


def part_of(errors: Residuals, chosen: BoolColumn) -> Residuals:
    """Return the residuals of some runs."""
    return Residuals(
        log_errors=errors.log_errors[chosen],
        assumed_inputs=errors.assumed_inputs[chosen],
        lacks=errors.lacks[chosen],
        sources=errors.sources[chosen],
        classes={name: column[chosen] for name, column in errors.classes.items()},
    )
