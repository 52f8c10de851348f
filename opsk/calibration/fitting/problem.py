"""Defines the least-squares problem of a fit: weighted, robust errors, priors of parameters, offsets of sources.

Its vector has the free parameters first, then the offset of each source and family of software, in units of the
offsets' standard deviations.

A fit works on the free parameters alone. One that is not free and belongs to a pool follows the shared value where that
is free; every other stays at the centre of its prior. So a number is fitted only where runs determine it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag
from scipy.optimize import lsq_linear

from opsk.calibration.fitting.parameters import MEMBERED, POOLED, ParameterSpace, group_parameters
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import BoolColumn, FloatColumn

IDENTIFIED = 0.5
"""A parameter is identified when the runs make its posterior at most this share as wide as its prior."""
MAX_FITTED = 60
"""Maximum number of fitted parameters: those that the runs narrow most."""
_INITIAL_DAMPING, _MIN_DAMPING, _MAX_DAMPING = 1e-3, 1e-9, 1e6
_TOLERANCE = 1e-5
"""Share of the cost by which the last step must lower it."""
_MAX_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustProblem:
    """Find the vector with the least ``sum(weights * soft_l1(residuals)) + sum((prior @ vector - offset)^2)``.

    ``residuals`` are in standard deviations of their noise; ``slopes`` is their Jacobian, shape (residuals, vector).
    Soft L1 is 2 (sqrt(1 + r^2) - 1): squares for small residuals, absolute values for large ones.
    """

    residuals: Callable[[FloatColumn], FloatColumn]
    slopes: Callable[[FloatColumn, FloatColumn], FloatColumn]
    weights: FloatColumn
    prior: FloatColumn
    offset: FloatColumn
    low: FloatColumn
    high: FloatColumn

    def cost(self, vector: FloatColumn, residuals: FloatColumn) -> float:
        """Return the cost, which is minimised."""
        robust = 2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)
        return float(self.weights @ robust + np.sum((self.prior @ vector - self.offset) ** 2))

    def curvature(self, residuals: FloatColumn, slopes: FloatColumn) -> FloatColumn:
        """Return half the second derivative of the cost, residuals taken as linear in the vector."""
        result: FloatColumn = slopes.T @ (self.pull(residuals)[:, None] * slopes) + self.prior.T @ self.prior
        return result

    def solve(self, start: FloatColumn) -> tuple[FloatColumn, int]:
        """Return the best vector, and how many steps it took."""
        vector = np.clip(start, self.low, self.high)
        residuals = self.residuals(vector)
        cost, damping = self.cost(vector, residuals), _INITIAL_DAMPING
        for step in range(1, _MAX_STEPS + 1):
            slopes = self.slopes(vector, residuals)
            curvature = self.curvature(residuals, slopes)
            downhill = -(slopes.T @ (self.pull(residuals) * residuals))
            downhill -= self.prior.T @ (self.prior @ vector - self.offset)
            before = cost
            while damping <= _MAX_DAMPING:
                tried = self._move(vector, curvature, downhill, damping)
                tried_residuals = self.residuals(tried)
                tried_cost = self.cost(tried, tried_residuals)
                if tried_cost < cost:
                    vector, residuals, cost = tried, tried_residuals, tried_cost
                    damping = max(damping / 10.0, _MIN_DAMPING)
                    break
                damping *= 10.0
            if before - cost <= _TOLERANCE * before:
                return vector, step
        return vector, _MAX_STEPS

    def pull(self, residuals: FloatColumn) -> FloatColumn:
        """Return the weight of every residual under soft L1."""
        result: FloatColumn = self.weights / np.sqrt(1.0 + residuals**2)
        return result

    def _move(self, vector: FloatColumn, curvature: FloatColumn, downhill: FloatColumn, damping: float) -> FloatColumn:
        """Return the vector after one damped step inside the bounds."""
        factor = np.linalg.cholesky(curvature + damping * np.diag(np.diag(curvature)))
        room_below, room_above = self.low - vector, self.high - vector
        fixed = room_below >= room_above
        step: FloatColumn = lsq_linear(
            factor.T,
            np.linalg.solve(factor, downhill),
            (
                np.where(fixed, -np.inf, np.minimum(room_below, 0.0)),
                np.where(fixed, np.inf, np.maximum(room_above, 0.0)),
            ),
            method="bvls",
        ).x
        result: FloatColumn = np.clip(vector + step, self.low, self.high)
        return result


DIFFERENCE = 1e-2
"""Distance over which slopes are taken: a hundredth of the scale of a logit, a logarithm, or an overlap."""
Noise = Mapping[bool, float]
"""Standard deviation of ln(predicted / measured) of one run, of those with every input stated and of the others."""


class Rows(Protocol):
    """Measured runs that can be predicted with different efficiencies."""

    is_stated: BoolColumn
    weights: FloatColumn
    columns: dict[str, npt.NDArray[Any]]

    def log_errors(self, efficiency: Efficiency) -> FloatColumn:
        """Return ln(predicted / measured) of every run."""


class FitProblem:
    """The problem that a fit minimises, for some runs and free parameters."""

    def __init__(
        self,
        rows: Rows,
        parameters: FreeParameters,
        offsets: FloatColumn,
    ) -> None:
        self.rows, self.parameters, self.offsets = rows, parameters, offsets

    @property
    def space(self) -> ParameterSpace:
        """All parameters, free or not."""
        return self.parameters.space

    def start(self, whole: FloatColumn, offsets: FloatColumn | None = None) -> FloatColumn:
        """Return the vector at given coordinates of all parameters."""
        start_offsets = np.zeros(self.offsets.shape[1]) if offsets is None else offsets
        return np.concatenate([self.parameters.part(whole), start_offsets])

    def split(self, vector: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
        """Return the coordinates of all parameters, and the offsets."""
        size = len(self.parameters)
        return self.parameters.whole(vector[:size]), vector[size:]

    def errors(self, vector: FloatColumn) -> FloatColumn:
        """Return ln(predicted / measured) of every run, without offsets."""
        return self.rows.log_errors(self.space.efficiency(self.split(vector)[0]))

    def errors_with_offsets(self, vector: FloatColumn) -> FloatColumn:
        """Return the same with the offsets of the sources."""
        result: FloatColumn = self.errors(vector) + self.offsets @ self.split(vector)[1]
        return result

    def robust(self, noise: Noise) -> RobustProblem:
        """Return the problem for a noise of single runs."""
        scale = self.noise(noise)
        count = self.offsets.shape[1]
        prior, prior_offset = self.parameters.prior_matrix()
        low, high = self.parameters.bounds()
        free = np.full(count, np.inf)
        return RobustProblem(
            residuals=lambda vector: self.errors_with_offsets(vector) / scale,
            slopes=lambda vector, residuals: self.slopes(vector, residuals * scale) / scale[:, None],
            weights=self.rows.weights,
            prior=block_diag(prior, np.eye(count)),
            offset=np.concatenate([prior_offset, np.zeros(count)]),
            low=np.concatenate([low, -free]),
            high=np.concatenate([high, free]),
        )

    def noise(self, noise: Noise) -> FloatColumn:
        """Return the standard deviation of every run's ln(predicted / measured)."""
        return np.where(self.rows.is_stated, noise[True], noise[False])

    def slopes(self, vector: FloatColumn, moved: FloatColumn) -> FloatColumn:
        """Return the change of every run's ln(predicted) with every entry of the vector, shape (runs, entries)."""
        errors = moved - self.offsets @ self.split(vector)[1]
        parameter_slopes = self.sensitivity(self.split(vector)[0], errors) @ self.parameters.followed
        return np.hstack([parameter_slopes, self.offsets])

    def sensitivity(
        self, whole: FloatColumn, errors: FloatColumn | None = None, *, everything: bool = False
    ) -> FloatColumn:
        """Return the change of every run's ln(predicted) with every parameter, shape (runs, parameters).

        Those that follow no free parameter are left at 0, unless ``everything`` is set.
        """
        before = self.rows.log_errors(self.space.efficiency(whole)) if errors is None else errors
        result = np.zeros((len(before), len(whole)))
        step = np.where(whole + DIFFERENCE > self.space.bounds()[1], -DIFFERENCE, DIFFERENCE)
        for group in group_parameters(self.space):
            if not everything and all(self.parameters.leaders[index] < 0 for index in group):
                continue
            moved = whole.copy()
            moved[list(group)] += step[list(group)]
            change = self.rows.log_errors(self.space.efficiency(moved)) - before
            for index in group:
                result[:, index] = np.where(self.belongs(index), change / step[index], 0.0)
        return result

    def belongs(self, index: int) -> BoolColumn:
        """Return which runs a parameter affects directly; a shared value acts through its members."""
        item = self.space.parameters[index]
        if item.section not in MEMBERED:
            return np.ones(len(self.rows.weights), dtype=np.bool_)
        known = {other.member for other in self.space.parameters if other.section == item.section}
        column = self.rows.columns[item.section]
        if item.member == POOLED:
            return ~np.isin(column.astype(str), sorted(known - {POOLED}))
        return np.asarray(column == item.member)

    def evidence(self, vector: FloatColumn, noise: Noise) -> FloatColumn:
        """Return the information of the runs on all parameters and then on the offsets: half the cost's curvature."""
        whole, _ = self.split(vector)
        problem = self.robust(noise)
        scale = self.noise(noise)
        errors = self.errors(vector)
        slopes = np.hstack([self.sensitivity(whole, errors, everything=True), self.offsets]) / scale[:, None]
        pull = problem.pull(self.errors_with_offsets(vector) / scale)
        result: FloatColumn = slopes.T @ (pull[:, None] * slopes)
        return result


@dataclass(frozen=True, kw_only=True)
class FreeParameters:
    """The free parameters of ``space``: ``free`` has their indices, in order."""

    space: ParameterSpace
    free: tuple[int, ...]

    def without(self, index: int) -> FreeParameters:
        """Return the same without one parameter."""
        return FreeParameters(space=self.space, free=tuple(other for other in self.free if other != index))

    def __len__(self) -> int:
        """Return the number of free parameters."""
        return len(self.free)

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """For every parameter the free one that it is or follows, as an index into ``free``; -1 stays at its prior."""
        column = {place: index for index, place in enumerate(self.free)}
        return tuple(
            column.get(place, column.get(parent, -1) if parent >= 0 else -1)
            for place, parent in enumerate(self.space.parents)
        )

    @cached_property
    def followed(self) -> FloatColumn:
        """How every parameter moves with the free ones, shape (parameters, free): 0 or 1."""
        matrix = np.zeros((len(self.space), len(self.free)))
        for place, leader in enumerate(self.leaders):
            if leader >= 0:
                matrix[place, leader] = 1.0
        return matrix

    @cached_property
    def fixed(self) -> FloatColumn:
        """The coordinates of parameters that follow none; 0 for the others."""
        return np.where(np.array(self.leaders) >= 0, 0.0, self.space.centre())

    def whole(self, vector: FloatColumn) -> FloatColumn:
        """Return the coordinates of all parameters."""
        result: FloatColumn = self.fixed + self.followed @ vector
        return result

    def part(self, whole: FloatColumn) -> FloatColumn:
        """Return the coordinates of the free parameters among all."""
        return np.asarray(whole)[list(self.free)]

    def prior_matrix(self) -> tuple[FloatColumn, FloatColumn]:
        """Return ``A, b`` so that ``A @ vector - b`` is how far each free one is from its prior, in widths.

        Where a shared value is not free, the prior of a member is as wide as both widths together.
        """
        size = len(self.free)
        matrix, offset, centre = np.zeros((size, size)), np.zeros(size), self.space.centre()
        column = {place: index for index, place in enumerate(self.free)}
        for index, place in enumerate(self.free):
            width, parent = self.space.parameters[place].prior.width, self.space.parents[place]
            if parent in column:
                matrix[index, column[parent]] = -1.0 / width
            else:
                width = width if parent < 0 else float(np.hypot(width, self.space.parameters[parent].prior.width))
                offset[index] = centre[place] / width
            matrix[index, index] = 1.0 / width
        return matrix, offset

    def prior_widths(self) -> FloatColumn:
        """Return the width of every free parameter before any run."""
        matrix, _ = self.prior_matrix()
        result: FloatColumn = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
        return result

    def bounds(self) -> tuple[FloatColumn, FloatColumn]:
        """Return the least and the greatest coordinates of the free parameters."""
        low, high = self.space.bounds()
        return self.part(low), self.part(high)


def compute_narrowing(parameters: FreeParameters, evidence: FloatColumn, nuisance_prior: FloatColumn) -> FloatColumn:
    """Return the posterior width of each free parameter over its prior width [ratio].

    Parameters
    ----------
    parameters
        The free parameters.
    evidence
        Information of the runs on all parameters of the space and then on offsets: the curvature of their errors.
    nuisance_prior
        Curvature of the priors of the offsets, which follow the parameters.
    """
    size, all_of = len(parameters), len(parameters.space)
    offsets = evidence.shape[0] - all_of
    moves = np.zeros((all_of + offsets, size + offsets))
    moves[:all_of, :size] = parameters.followed
    moves[all_of:, size:] = np.eye(offsets)
    matrix, _ = parameters.prior_matrix()
    curvature = moves.T @ evidence @ moves
    curvature[:size, :size] += matrix.T @ matrix
    curvature[size:, size:] += nuisance_prior
    after = np.sqrt(np.diag(np.linalg.inv(curvature))[:size])
    result: FloatColumn = after / parameters.prior_widths()
    return result


def select_identified(
    parameters: FreeParameters,
    evidence: FloatColumn,
    nuisance_prior: FloatColumn,
    *,
    share: float = IDENTIFIED,
    maximum: int = MAX_FITTED,
) -> FreeParameters:
    """Return the parameters that stay free; the least determined one is fixed at its prior, one at a time.

    One at a time, because two that the runs determine only together are both uncertain until one of them is fixed.
    """
    while len(parameters):
        ratios = compute_narrowing(parameters, evidence, nuisance_prior)
        worst = int(np.argmax(ratios))
        if ratios[worst] <= share and len(parameters) <= maximum:
            break
        parameters = parameters.without(parameters.free[worst])
    return parameters


def free_all(space: ParameterSpace, places: Iterable[int] | None = None) -> FreeParameters:
    """Return the space with every parameter free, or those at some indices."""
    return FreeParameters(space=space, free=tuple(range(len(space)) if places is None else sorted(places)))
