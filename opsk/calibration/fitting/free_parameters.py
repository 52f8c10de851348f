"""Which parameters does a fit move, and where do the others stay: at their prior, or at what their family shares?

A fit works on the free parameters alone. One that is not free and belongs to a pool follows the shared value where that
is free; every other stays at the centre of its prior. So a number is fitted only where runs tell it.
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
MOST_FITTED = 60
"""Parameters that are fitted at the most: those that the runs narrow most."""


@dataclass(frozen=True, kw_only=True)
class FreeParameters:
    """The parameters of ``space`` that move by themselves: ``free`` has their places, in order."""

    space: ParameterSpace
    free: tuple[int, ...]

    def without(self, place: int) -> FreeParameters:
        """Return the same with one parameter less."""
        return FreeParameters(space=self.space, free=tuple(other for other in self.free if other != place))

    def __len__(self) -> int:
        """Return the number of free parameters."""
        return len(self.free)

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """For every parameter the free one that it is or follows, as a place in ``free``; -1 stays at its prior."""
        column = {place: index for index, place in enumerate(self.free)}
        return tuple(
            column.get(place, column.get(parent, -1) if parent >= 0 else -1)
            for place, parent in enumerate(self.space.parents)
        )

    @cached_property
    def followed(self) -> FloatColumn:
        """How every parameter moves with the free ones, shape (parameters, free): 0 or 1."""
        found = np.zeros((len(self.space), len(self.free)))
        for place, leader in enumerate(self.leaders):
            if leader >= 0:
                found[place, leader] = 1.0
        return found

    @cached_property
    def fixed(self) -> FloatColumn:
        """The coordinates of those that follow nothing; 0 for the others."""
        return np.where(np.array(self.leaders) >= 0, 0.0, self.space.centre())

    def whole(self, vector: FloatColumn) -> FloatColumn:
        """Return the coordinates of all parameters."""
        found: FloatColumn = self.fixed + self.followed @ vector
        return found

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
        found: FloatColumn = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
        return found

    def bounds(self) -> tuple[FloatColumn, FloatColumn]:
        """Return the least and the greatest coordinates of the free parameters."""
        low, high = self.space.bounds()
        return self.part(low), self.part(high)


def narrowed(parameters: FreeParameters, evidence: FloatColumn, nuisance_prior: FloatColumn) -> FloatColumn:
    """Return how wide each free parameter still is over its prior [ratio].

    Parameters
    ----------
    parameters
        The free parameters.
    evidence
        What the runs tell of all parameters of the space and then of offsets: the curvature of their errors.
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
    found: FloatColumn = after / parameters.prior_widths()
    return found


def identified(
    parameters: FreeParameters,
    evidence: FloatColumn,
    nuisance_prior: FloatColumn,
    *,
    share: float = IDENTIFIED,
    most: int = MOST_FITTED,
) -> FreeParameters:
    """Return the parameters that stay free: one after another the least known goes back to its prior.

    One at a time, for two that the runs tell only together are both known badly until one of them is given.
    """
    while len(parameters):
        ratios = narrowed(parameters, evidence, nuisance_prior)
        worst = int(np.argmax(ratios))
        if ratios[worst] <= share and len(parameters) <= most:
            break
        parameters = parameters.without(parameters.free[worst])
    return parameters


def all_free(space: ParameterSpace, places: Iterable[int] | None = None) -> FreeParameters:
    """Return the space with every parameter free, or those at some places."""
    return FreeParameters(space=space, free=tuple(range(len(space)) if places is None else sorted(places)))
