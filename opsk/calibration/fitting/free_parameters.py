"""Selects the parameters that a fit moves; the others stay at their prior, or follow the shared value of their pool.

A fit works on the free parameters alone. One that is not free and belongs to a pool follows the shared value where that
is free; every other stays at the centre of its prior. So a number is fitted only where runs determine it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from opsk.calibration.fitting.parameters import ParameterSpace
from opsk.costmodel.table import FloatColumn

IDENTIFIED = 0.5
"""A parameter is identified when the runs make its posterior at most this share as wide as its prior."""
MAX_FITTED = 60
"""Maximum number of fitted parameters: those that the runs narrow most."""


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
