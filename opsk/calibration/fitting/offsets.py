"""How much slower than its physics does a source run: what all sources share, a family of software, the source itself?

An offset is a part of ln(predicted / measured) that is common to many runs. Offsets are drawn from each other: that of
a source and a family from the family's, that from what all share, that from nothing. Predictions use the family's; a
site that measured runs of its own uses the one that these show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.efficiency.software_offset import SoftwareOffset, offset_of
from opsk.costmodel.table import FloatColumn

SHARED_LOG_SIGMA = 0.05
"""What all families of software, and then one of them, are off before any source is seen. Chosen by hand."""
SOURCE_LOG_SIGMA = 0.2
"""Offsets of sources before any is seen: another release, clocks, data loading. Chosen by hand; a fit estimates it."""
_KNOWN = 4.0
"""Sources that this guess is worth beside those of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """How much slower than predicted runs are: ln(measured / predicted); empty names stand for all."""

    source: str
    software: str
    log: float
    log_sigma: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """The offsets that act on some runs.

    Parameters
    ----------
    keys
        Source and family of software of every offset, those shared by sources first.
    acting
        Which offset acts on which run, shape (runs, offsets): 0 or 1.
    scales
        Standard deviation of each around what it is drawn from.
    """

    keys: tuple[tuple[str, str], ...]
    acting: FloatColumn
    scales: FloatColumn

    @classmethod
    def over(cls, keys: Sequence[tuple[str, str]], used: Sequence[bool], *, log_sigma: float, is_site: bool) -> Offsets:
        """Return the offsets for runs of these sources and families; ``used`` says which runs show any.

        A site's runs are all of one source, whose offsets are drawn from those of the families, which are given.
        """
        own = sorted({key for key, is_used in zip(keys, used, strict=True) if is_used})
        families = sorted({software for _, software in own})
        shared = [] if is_site else [("", ""), *(("", family) for family in families)]
        columns = [*shared, *(("site", family) for family in families)] if is_site else [*shared, *own]
        acting = np.array(
            [
                [(source in ("", key[0]) or is_site) and software in ("", key[1]) for source, software in columns]
                for key in keys
            ],
            dtype=np.float64,
        )
        scales = np.array([log_sigma if source else SHARED_LOG_SIGMA for source, _ in columns])
        return cls(keys=tuple(columns), acting=acting.reshape(len(keys), -1), scales=scales)

    @property
    def columns(self) -> FloatColumn:
        """How each offset, in its standard deviations, moves ln(predicted) of every run."""
        found: FloatColumn = self.acting * self.scales
        return found

    @property
    def log_sigma(self) -> float:
        """Standard deviation of a source's offset."""
        own = [scale for (source, _), scale in zip(self.keys, self.scales, strict=True) if source]
        return float(own[0]) if own else SOURCE_LOG_SIGMA

    def rescaled(self, log_sigma: float) -> Offsets:
        """Return the same with another standard deviation of the sources' offsets."""
        is_own = np.array([bool(source) for source, _ in self.keys])
        return replace(self, scales=np.where(is_own, log_sigma, self.scales))

    def estimated_log_sigma(self, vector: FloatColumn, variances: FloatColumn, before: float) -> float:
        """Return the standard deviation of sources' offsets that their values and variances tell.

        Parameters
        ----------
        vector, variances
            Value and variance of each offset, in its standard deviations.
        before
            What it was taken for before any source was seen.
        """
        is_own = np.array([bool(source) for source, _ in self.keys])
        squares = (self.scales**2 * (vector**2 + variances))[is_own]
        return float(np.sqrt((_KNOWN * before**2 + squares.sum()) / (_KNOWN + len(squares))))

    def described(self, vector: FloatColumn, covariance: FloatColumn, used: FloatColumn) -> tuple[Offset, ...]:
        """Return every offset with those that it is drawn from.

        Parameters
        ----------
        vector, covariance
            The offsets in their standard deviations, and how well they are known.
        used
            Which runs show them.
        """
        place = {key: index for index, key in enumerate(self.keys)}
        found = []
        for source, software in self.keys:
            drawn = {("", ""), ("", software), (source, software)} & place.keys()
            chosen = np.zeros(len(self.keys))
            for key in drawn:
                chosen[place[key]] = self.scales[place[key]]
            found.append(
                Offset(
                    source=source,
                    software=software,
                    log=float(chosen @ vector),
                    log_sigma=float(np.sqrt(chosen @ covariance @ chosen)),
                    runs=int(self.acting[used > 0, place[source, software]].sum()),
                )
            )
        return tuple(found)


def with_offsets(
    base: Mapping[str, SoftwareOffset], found: Sequence[Offset], *, is_site: bool, log_sigma: float
) -> dict[str, SoftwareOffset]:
    """Return the offsets that predictions use, of all families.

    Parameters
    ----------
    base
        What stands already: a fit to a site's runs adds to its times, and keeps its memory.
    found
        The offsets of a fit.
    is_site
        Whether the next run is of the same site; else it is of a source of its own, whose offset nobody knows.
    log_sigma
        Standard deviation of the offset of a source.
    """
    offsets = dict(base)
    for item in found:
        if bool(item.source) == is_site:
            before = offset_of(base, item.software) or SoftwareOffset()
            sigma = item.log_sigma if is_site else float(np.hypot(item.log_sigma, log_sigma))
            time_log = item.log + (before.time_log if is_site else 0.0)
            offsets[item.software] = replace(before, time_log=time_log, time_log_sigma=sigma)
    return offsets
