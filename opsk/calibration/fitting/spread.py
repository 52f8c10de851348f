"""Fits the widths of ranges so that they hold most measured runs of sources that nobody had seen, or a fit did not use.

The variance of a prediction is a base, a term for assumed inputs, and a term for each aspect in which no measured run
is near (`opsk.costmodel.efficiency.cases`). They are found by quantile regression, which minimises the mean score of
the ranges (width, and 1 / (1 - coverage) times what lies outside); its optimum holds the required share, whatever the
tails of the errors. First predictions of sources that nobody had seen count as much as all sources that were left out
of a fit, but not of the model's development. No class of the latter may be held much less often than all.
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

COVERAGE = 0.9
"""Share of the errors that ranges hold, a source of n runs counting as the root of n."""
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
_PRIOR_WEIGHT = 5e-4
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
    unseen_weights
        Weight of the first prediction of a source that nobody had seen; 0 for one left out of a fit.
    """

    log_errors: FloatColumn
    assumed_inputs: IntColumn
    lacks: BoolColumn
    sources: npt.NDArray[np.object_]
    classes: Mapping[str, npt.NDArray[np.object_]]
    unseen_weights: FloatColumn

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
            unseen_weights=np.zeros(count),
        )

    @property
    def is_unseen(self) -> BoolColumn:
        """Whether each is of a source that nobody had seen."""
        result: BoolColumn = self.unseen_weights > 0
        return result

    @property
    def weights(self) -> FloatColumn:
        """Weight of every run, their sum 1: a source of n runs weighs as the root of n.

        Sources never seen weigh as much as all others together.
        """
        shares = np.zeros(len(self.sources))
        for chosen in (self.is_unseen, ~self.is_unseen):
            names = self.sources[chosen].astype(str)
            _, source_index, counts = np.unique(names, return_inverse=True, return_counts=True)
            weights = counts[source_index] ** -0.5 * np.where(self.is_unseen, self.unseen_weights, 1.0)[chosen]
            shares[chosen] = weights / weights.sum() if len(weights) else 0.0
        result: FloatColumn = shares / shares.sum()
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
    is_stated, is_seen = errors.assumed_inputs == 0, ~errors.is_unseen
    sets = [(is_seen & is_stated, MIN_KIND_COVERAGE), (is_seen & ~is_stated, MIN_KIND_COVERAGE)]
    sets += [
        (is_seen & (column == name), MIN_CLASS_COVERAGE)
        for column in errors.classes.values()
        for name in sorted(set(column))
    ]
    many = [(chosen / chosen.sum(), min_share) for chosen, min_share in sets if chosen.sum() >= CLASS_RUNS]
    if not many:
        return np.zeros((len(errors.log_errors), 0)), np.zeros(0)
    return np.column_stack([shares for shares, _ in many]), np.array([min_share for _, min_share in many])


def _split_by_class(errors: Residuals, covered: BoolColumn) -> Iterator[tuple[str, BoolColumn]]:
    """Yield the classes of runs, and which of their runs are covered; those never seen are classes of their own."""
    is_stated, is_seen = errors.assumed_inputs == 0, ~errors.is_unseen
    for name, chosen in (("overall", is_seen), ("unseen", errors.is_unseen)):
        prefix = "" if name == "overall" else f"{name}, "
        yield name, covered[chosen]
        yield f"{prefix}stated", covered[chosen & is_stated]
        yield f"{prefix}assumed", covered[chosen & ~is_stated]
    for column in errors.classes.values():
        for name in sorted(set(column)):
            in_class = covered[is_seen & (column == name)]
            if len(in_class) >= CLASS_RUNS:
                yield str(name), in_class


def coverage(errors: Residuals, spread: FittedSpread) -> dict[str, float]:
    """Return the share of runs within their range: of all, and of every large class."""
    return _compute_shares(errors, spread.covers(errors))


def _compute_shares(errors: Residuals, covered: BoolColumn) -> dict[str, float]:
    """Return the share of covered runs of every class that has any."""
    return {name: float(np.mean(inside)) for name, inside in _split_by_class(errors, covered) if len(inside)}


FOLDS = 10
"""Sources are left out of the widths in so many groups."""


def coverage_unseen(errors: Residuals) -> dict[str, float] | None:
    """Return the share of runs in ranges whose widths were fitted without their source; ``None`` with one source."""
    names = sorted(set(errors.sources))
    if len(names) < 2:
        return None
    covered = np.zeros(len(errors.log_errors), dtype=np.bool_)
    for fold in range(min(FOLDS, len(names))):
        is_out = np.isin(errors.sources, names[fold::FOLDS])
        covered[is_out] = fit_spread(select_residuals(errors, ~is_out)).covers(errors)[is_out]
    return _compute_shares(errors, covered)


def select_residuals(errors: Residuals, chosen: BoolColumn) -> Residuals:
    """Return the residuals of some runs."""
    return Residuals(
        log_errors=errors.log_errors[chosen],
        assumed_inputs=errors.assumed_inputs[chosen],
        lacks=errors.lacks[chosen],
        sources=errors.sources[chosen],
        classes={name: column[chosen] for name, column in errors.classes.items()},
        unseen_weights=errors.unseen_weights[chosen],
    )
