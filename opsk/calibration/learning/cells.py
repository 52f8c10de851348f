"""Defines the offsets that a site's jobs share: of a software family, and of each cell of it.

A cell is software, chip generation, kind and size of the model (`opsk.costmodel.efficiency.cases.Case.cell`). Its
offset is drawn from the family's, which is drawn from the one that opsk ships. Mixed effects of this kind need no
tuning: cells of many jobs get their own value, those of few the family's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.efficiency.cases import Case
from opsk.costmodel.table import FloatColumn

CELL_LOG_SIGMA = 0.15
"""Standard deviation of a cell's offset around its family's: what the median error of published runs of one source
still is after the source's own offset was taken out (docs/howto/calibrate.md)."""


@dataclass(frozen=True, kw_only=True)
class SiteOffsets:
    """The offsets of families and cells.

    Parameters
    ----------
    families, cells
        Names, in order; together they are the columns of ``acting``.
    acting
        Which offset applies to which job, times its standard deviation, shape (jobs, offsets).
    """

    families: tuple[str, ...]
    cells: tuple[str, ...]
    acting: FloatColumn

    @classmethod
    def over(cls, cases: Sequence[Case], *, family_log_sigma: float, cell_log_sigma: float) -> SiteOffsets:
        """Return the offsets of jobs of these cases."""
        families = tuple(sorted({case.software for case in cases}))
        cells = tuple(sorted({case.cell for case in cases} - {""}))
        acting = np.array(
            [
                [
                    *(family_log_sigma * (case.software == family) for family in families),
                    *(cell_log_sigma * (case.cell == cell) for cell in cells),
                ]
                for case in cases
            ]
        ).reshape(len(cases), len(families) + len(cells))
        return cls(families=families, cells=cells, acting=acting)

    def scales(self, family_log_sigma: float, cell_log_sigma: float) -> FloatColumn:
        """Return the standard deviation of every offset."""
        return np.array([family_log_sigma] * len(self.families) + [cell_log_sigma] * len(self.cells))

    def select(self, name: str) -> FloatColumn:
        """Return which offsets add up to that of a family or of a cell, by its name: 0 or 1."""
        names = (*self.families, *self.cells)
        chosen = np.zeros(len(names))
        chosen[[names.index(part) for part in {name, get_family(name)}]] = 1.0
        return chosen


def get_family(name: str) -> str:
    """Return the family of a cell, or of a family itself."""
    return name.partition("/")[0]
