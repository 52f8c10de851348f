"""Defines the offsets of sources and software families: how much slower their runs are than predicted.

An offset is a part of ln(predicted / measured) that is common to many runs. Offsets are drawn from each other: that of
a source and a family from the family's, that from a value that all share, that from zero. Predictions use the family's;
a site that measured runs of its own uses the one that these show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.table import FloatColumn

SHARED_LOG_SIGMA = 0.05
"""Prior standard deviation of the offset of all software families, and of one of them. Chosen by hand."""
SOURCE_LOG_SIGMA = 0.2
"""Prior standard deviation of offsets of sources: release, clocks, data loading. Chosen by hand; a fit estimates it."""
_PRIOR_SOURCES = 4.0
"""Weight of the prior, in sources."""


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
    """The offsets that apply to some runs.

    Parameters
    ----------
    keys
        Source and family of software of every offset, those shared by sources first.
    acting
        Which offset applies to which run, shape (runs, offsets): 0 or 1.
    scales
        Standard deviation of each around its parent.
    """

    keys: tuple[tuple[str, str], ...]
    acting: FloatColumn
    scales: FloatColumn

    @classmethod
    def over(cls, keys: Sequence[tuple[str, str]], used: Sequence[bool], *, log_sigma: float, is_site: bool) -> Offsets:
        """Return the offsets for runs of these sources and families; ``used`` marks the runs that determine any.

        A site's runs are all of one source, whose offsets are drawn from the given ones of the families.
        """
        source_keys = sorted({key for key, is_used in zip(keys, used, strict=True) if is_used})
        families = sorted({software for _, software in source_keys})
        shared = [] if is_site else [("", ""), *(("", family) for family in families)]
        columns = [*shared, *(("site", family) for family in families)] if is_site else [*shared, *source_keys]
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
        result: FloatColumn = self.acting * self.scales
        return result

    @property
    def log_sigma(self) -> float:
        """Standard deviation of a source's offset."""
        source_scales = [scale for (source, _), scale in zip(self.keys, self.scales, strict=True) if source]
        return float(source_scales[0]) if source_scales else SOURCE_LOG_SIGMA

    def rescale(self, log_sigma: float) -> Offsets:
        """Return the same with another standard deviation of the sources' offsets."""
        is_source = np.array([bool(source) for source, _ in self.keys])
        return replace(self, scales=np.where(is_source, log_sigma, self.scales))

    def estimate_log_sigma(self, vector: FloatColumn, variances: FloatColumn, before: float) -> float:
        """Estimate the standard deviation of sources' offsets from their values and variances.

        Parameters
        ----------
        vector, variances
            Value and variance of each offset, in its standard deviations.
        before
            Prior value.
        """
        is_source = np.array([bool(source) for source, _ in self.keys])
        squares = (self.scales**2 * (vector**2 + variances))[is_source]
        return float(np.sqrt((_PRIOR_SOURCES * before**2 + squares.sum()) / (_PRIOR_SOURCES + len(squares))))

    def describe(self, vector: FloatColumn, covariance: FloatColumn, used: FloatColumn) -> tuple[Offset, ...]:
        """Return every offset, summed with its parents.

        Parameters
        ----------
        vector, covariance
            The offsets in units of their standard deviations, and their covariance.
        used
            Weights of the runs.
        """
        place = {key: index for index, key in enumerate(self.keys)}
        offsets = []
        for source, software in self.keys:
            drawn = {("", ""), ("", software), (source, software)} & place.keys()
            chosen = np.zeros(len(self.keys))
            for key in drawn:
                chosen[place[key]] = self.scales[place[key]]
            offsets.append(
                Offset(
                    source=source,
                    software=software,
                    log=float(chosen @ vector),
                    log_sigma=float(np.sqrt(chosen @ covariance @ chosen)),
                    runs=int(self.acting[used > 0, place[source, software]].sum()),
                )
            )
        return tuple(offsets)


def merge_offsets(
    base: Mapping[str, SoftwareOffset], fitted: Sequence[Offset], *, is_site: bool, log_sigma: float
) -> dict[str, SoftwareOffset]:
    """Return the offsets that predictions use, of all families.

    Parameters
    ----------
    base
        The existing offsets: a fit to a site's runs adds to their times, and preserves their memory.
    found
        The offsets of a fit.
    is_site
        Whether the next run is of the same site; else it is of a new source, whose offset is unknown.
    log_sigma
        Standard deviation of the offset of a source.
    """
    offsets = dict(base)
    for item in fitted:
        if bool(item.source) == is_site:
            before = find_offset(base, item.software) or SoftwareOffset()
            sigma = item.log_sigma if is_site else float(np.hypot(item.log_sigma, log_sigma))
            time_log = item.log + (before.time_log if is_site else 0.0)
            offsets[item.software] = replace(before, time_log=time_log, time_log_sigma=sigma)
    return offsets
