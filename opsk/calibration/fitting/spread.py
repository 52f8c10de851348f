"""Fits the widths of ranges so that they hold most measured runs of sources that a fit did not use.

The variance of a prediction is a base, a term for assumed inputs, and a term for each aspect in which no measured run
is near (`opsk.costmodel.efficiency.cases`). They are found by quantile regression, which minimises the mean score of
the ranges (width, and 1 / (1 - coverage) times what lies outside); its optimum holds the required share, whatever the
tails of the errors. No class of runs may be held much less often than all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from opsk.costmodel.efficiency.cases import ASPECTS
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS, share_of_added_variance

COVERAGE = 0.88
"""Share of the errors of sources left out that ranges hold, a source of n runs counting as the root of n."""
MIN_CLASS_COVERAGE = 0.74
"""Covered share of every class of many runs; the aim is 70 %, with a margin for other runs."""
MIN_KIND_COVERAGE = 0.84
"""The same of all runs whose every input is stated, and of all others: the aim is 80 %."""
CLASS_RUNS = 15
"""A class of fewer runs determines no share."""
MIN_LOG_SIGMA = 0.02
"""Repeated runs of one plan differ by about this."""
_CLASS_PENALTY = 1.0
"""Penalty of a class that is covered too rarely, in the unit of the mean score of ln ratios."""
_PRIOR_WEIGHT = 1e-3
"""Penalty of an addition twice as large as its prior, in the same unit: it decides only where runs are few."""
_SWEEPS = 6
_BASES = np.arange(MIN_LOG_SIGMA, 0.6, 0.01)
_ADDITIONS = np.arange(0.0, 0.9, 0.04)
_PRIOR_ADDITION = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Errors ln(predicted / measured) of runs, and the properties that decide their spread.

    Parameters
    ----------
    assumed_inputs
        Number of assumed inputs of each.
    lacks
        Which of `ASPECTS` no run of another source was near in, shape (runs, aspects).
    sources
        Source of each.
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
        """Return errors of runs that are similar to others and of one source."""
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
        _, source_index, counts = np.unique(self.sources.astype(str), return_inverse=True, return_counts=True)
        weights = counts[source_index] ** -0.5
        result: FloatColumn = weights / weights.sum()
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSpread:
    """Standard deviations of ln(measured / predicted), as `opsk.costmodel.efficiency.efficiency.Spread` has them.

    ``new`` is the addition, by the missing aspect.
    """

    log_sigma: float
    assumed_log_sigma: float
    new: Mapping[str, float]

    def log_sigmas(self, errors: Residuals) -> FloatColumn:
        """Return the standard deviation of every run."""
        added = max(self.assumed_log_sigma**2 - self.log_sigma**2, 0.0)
        new = np.array([self.new[name] for name in ASPECTS])
        variance = self.log_sigma**2 + added * share_of_added_variance(errors.assumed_inputs) + errors.lacks @ new**2
        result: FloatColumn = np.sqrt(variance)
        return result

    def covers(self, errors: Residuals) -> BoolColumn:
        """Return which runs lie in their range."""
        return np.abs(errors.log_errors) <= COVERED_SIGMAS * self.log_sigmas(errors)


def fit_spread(errors: Residuals) -> FittedSpread:
    """Fit the spread with which ranges hold `COVERAGE` of the errors.

    Pairs of numbers are set to their best values in turn, repeatedly, on a coarse grid.
    """
    parts = np.column_stack(
        [np.ones(len(errors.log_errors)), share_of_added_variance(errors.assumed_inputs), errors.lacks]
    )
    weights, needed = errors.weights, np.abs(errors.log_errors)
    members, min_shares = _find_classes(errors)
    sigmas = np.full(parts.shape[1], _PRIOR_ADDITION)
    determined = np.flatnonzero(parts.any(axis=0)).tolist()
    for _ in range(_SWEEPS):
        before = sigmas.copy()
        for indices in combinations(determined, 2) if len(determined) > 1 else [(0,)]:
            values = _build_grid(indices)
            rest = parts @ sigmas**2 - parts[:, indices] @ sigmas[list(indices)] ** 2
            half = COVERED_SIGMAS * np.sqrt(np.maximum(rest + values**2 @ parts[:, indices].T, 1e-12))
            scores = _compute_scores(half, needed, weights, members, min_shares)
            for index, column in zip(indices, values.T, strict=True):
                scores += _PRIOR_WEIGHT * (column / _PRIOR_ADDITION - 1.0) ** 2 if index else 0.0
            sigmas[list(indices)] = values[int(np.argmin(scores))]
        if np.array_equal(sigmas, before):
            break
    return FittedSpread(
        log_sigma=float(sigmas[0]),
        assumed_log_sigma=float(np.hypot(sigmas[0], sigmas[1])),
        new=dict(zip(ASPECTS, sigmas[2:].tolist(), strict=True)),
    )


def _build_grid(indices: Sequence[int]) -> FloatColumn:
    """Return the grid of values of some numbers, shape (trials, numbers); number 0 is the base."""
    axes = np.meshgrid(*(_ADDITIONS if index else _BASES for index in indices), indexing="ij")
    return np.column_stack([axis.ravel() for axis in axes])


def _compute_scores(
    half: FloatColumn, needed: FloatColumn, weights: FloatColumn, members: FloatColumn, min_shares: FloatColumn
) -> FloatColumn:
    """Return the mean score of ranges, one entry for each row of their half widths."""
    outside = needed - half
    score = np.where(outside > 0, COVERAGE * outside, (COVERAGE - 1.0) * outside) @ weights
    shares = (outside <= 0) @ members
    short = np.maximum(min_shares - shares, 0.0).sum(axis=1)
    result: FloatColumn = score + _CLASS_PENALTY * short
    return result


def _find_classes(errors: Residuals) -> tuple[FloatColumn, FloatColumn]:
    """Return the members of every large class, divided by their number, and the share that must be covered.

    The first has shape (runs, classes).
    """
    is_stated = errors.assumed_inputs == 0
    sets = [(is_stated, MIN_KIND_COVERAGE), (~is_stated, MIN_KIND_COVERAGE)]
    sets += [(column == name, MIN_CLASS_COVERAGE) for column in errors.classes.values() for name in sorted(set(column))]
    many = [(chosen / chosen.sum(), min_share) for chosen, min_share in sets if chosen.sum() >= CLASS_RUNS]
    if not many:
        return np.zeros((len(errors.log_errors), 0)), np.zeros(0)
    return np.column_stack([shares for shares, _ in many]), np.array([min_share for _, min_share in many])


def _split_by_class(errors: Residuals, covered: BoolColumn) -> Iterator[tuple[str, BoolColumn]]:
    """Yield the classes of runs, and which of their runs are covered."""
    is_stated = errors.assumed_inputs == 0
    yield from (("overall", covered), ("stated", covered[is_stated]), ("assumed", covered[~is_stated]))
    for column in errors.classes.values():
        for name in sorted(set(column)):
            in_class = covered[column == name]
            if len(in_class) >= CLASS_RUNS:
                yield str(name), in_class


def coverage(errors: Residuals, spread: FittedSpread) -> dict[str, float]:
    """Return the share of runs within their range: of all, and of every large class."""
    return {
        name: float(np.mean(in_class))
        for name, in_class in _split_by_class(errors, spread.covers(errors))
        if len(in_class)
    }


def coverage_unseen(errors: Residuals) -> float | None:
    """Return the share of runs in ranges whose widths were fitted without their source; ``None`` with one source."""
    names = sorted(set(errors.sources))
    if len(names) < 2:
        return None
    covered = np.zeros(len(errors.log_errors), dtype=np.bool_)
    for name in names:
        is_source = errors.sources == name
        covered[is_source] = fit_spread(select_residuals(errors, ~is_source)).covers(errors)[is_source]
    return float(np.mean(covered))


def select_residuals(errors: Residuals, chosen: BoolColumn) -> Residuals:
    """Return the residuals of some runs."""
    return Residuals(
        log_errors=errors.log_errors[chosen],
        assumed_inputs=errors.assumed_inputs[chosen],
        lacks=errors.lacks[chosen],
        sources=errors.sources[chosen],
        classes={name: column[chosen] for name, column in errors.classes.items()},
    )
