"""Defines the offsets that a site's jobs share: of a software family, and of narrower and narrower cells of it.

A cell is software and chip generation; then also kind of model, axes and recomputation; then also size of the model
(`opsk.costmodel.efficiency.cases.Case.cells`). Each offset is drawn from that of the wider cell, the widest from the
family's, which is drawn from the one that opsk ships. Mixed effects of this kind need no tuning: cells of many jobs get
their own value, those of few that of the wider one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.efficiency.cases import Case
from opsk.costmodel.table import FloatColumn

LEVEL_LOG_SIGMAS = (0.07, 0.1, 0.07)
"""Standard deviation of the offset of each level of cells around the wider one's, from wide to narrow.

Chosen by a prototype on the sources of ``benchmarks.learning.site_learning`` among eight triples of 0.05 to 0.2, whose
results differ by less than 0.03 of the error: that there are levels matters, their widths hardly do."""
_LEVEL_JOBS = 4.0
"""Weight of that standard deviation, in cells, where a site's own cells show how far they differ."""
_DEPTHS = (1, 2, 4, 5)
"""Parts of a name, by level: family, chip generation, kind and layout, size."""


@dataclass(frozen=True, kw_only=True)
class SiteOffsets:
    """The offsets of families and cells.

    Parameters
    ----------
    names
        Of families and cells, the wider before the narrower: the columns of ``acting``.
    scales
        Standard deviation of each around the wider one.
    acting
        Which offset applies to which job, times its standard deviation, shape (jobs, offsets).
    """

    names: tuple[str, ...]
    scales: FloatColumn
    acting: FloatColumn

    @classmethod
    def over(cls, cases: Sequence[Case], *, family_log_sigma: float) -> SiteOffsets:
        """Return the offsets of jobs of these cases."""
        members = [{case.software, *case.cells} for case in cases]
        names = tuple(sorted({name for own in members for name in own}, key=lambda name: (find_level(name), name)))
        by_level = (family_log_sigma, *LEVEL_LOG_SIGMAS)
        scales = np.array([by_level[find_level(name)] for name in names])
        present = np.array([[name in own for name in names] for own in members], dtype=np.float64)
        return cls(names=names, scales=scales, acting=present.reshape(len(cases), len(names)) * scales)

    def select(self, name: str) -> FloatColumn:
        """Return which offsets add up to that of a family or of a cell, by its name: 0 or 1."""
        wider = set(list_wider(name))
        return np.array([float(other in wider) for other in self.names])

    def estimate_narrower_log_sigmas(self, vector: FloatColumn) -> FloatColumn:
        """Return how far a cell of this level and one that no job has shown yet may differ, by level.

        Parameters
        ----------
        vector
            Every offset, in its standard deviations.
        """
        levels = np.array([find_level(name) for name in self.names], dtype=np.int64)
        squares = (self.scales * vector) ** 2
        variances = [
            (_LEVEL_JOBS * prior**2 + squares[levels == level].sum()) / (_LEVEL_JOBS + np.sum(levels == level))
            for level, prior in enumerate(LEVEL_LOG_SIGMAS, start=1)
        ]
        result: FloatColumn = np.sqrt(np.cumsum([0.0, *reversed(variances)])[::-1])
        return result


def find_level(name: str) -> int:
    """Return the level of a name: 0 is a family."""
    return _DEPTHS.index(name.count("/") + 1)


def list_wider(name: str) -> list[str]:
    """Return the names of a cell and of all wider ones, the family first."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in _DEPTHS if depth <= len(parts)]


def find_wider(name: str) -> str:
    """Return the name of the next wider cell, or of the family; empty for a family."""
    return "" if find_level(name) == 0 else list_wider(name)[-2]


def get_family(name: str) -> str:
    """Return the family of a cell, or of a family itself."""
    return name.partition("/")[0]
