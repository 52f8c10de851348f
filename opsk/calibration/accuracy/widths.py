"""Fits widths of ranges to errors of sources left out and of first looks, and what of them an offset takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opsk.calibration.accuracy.first_looks import find_offset_share
from opsk.calibration.fitting.spread import FittedSpread, Residuals, fit_spread
from opsk.costmodel.efficiency.cases import SoftwareOffset
from opsk.costmodel.efficiency.efficiency import Spread


def fit_widths(
    base: Spread, time: Residuals | None, memory: Residuals, *, time_offset: float, memory_offset: float
) -> Spread:
    """Return the spread that fits errors of times and of memory.

    Parameters
    ----------
    base
        What stays where nothing was left out, or measured.
    time_offset, memory_offset
        Standard deviations of the offset of a source, as the table shows them; first looks show them better.
    """
    spread = _build_spread(
        base, None if time is None else fit_spread(time), fit_spread(memory) if len(memory.log_errors) else None
    )
    return replace(
        spread,
        time_offset_log_sigma=_scale_offset(spread.time_log_sigma, time, time_offset),
        memory_offset_log_sigma=_scale_offset(spread.memory_log_sigma, memory, memory_offset),
    )


def _build_spread(base: Spread, time: FittedSpread | None, memory: FittedSpread | None) -> Spread:
    """Return the spread that fits the errors of sources left out."""
    values: dict[str, float] = {}
    for name, fitted in (("time", time), ("memory", memory)):
        if fitted is not None:
            values[f"{name}_log_sigma"] = fitted.log_sigma
            values[f"{name}_assumed_log_sigma"] = fitted.assumed_log_sigma
            values |= {f"{name}_new_{aspect}_log_sigma": sigma for aspect, sigma in fitted.new.items()}
    return replace(base, **values)


def _scale_offset(log_sigma: float, errors: Residuals | None, default: float) -> float:
    """Return the part of a spread that a new source's runs have in common: by first looks, else the default."""
    share = None if errors is None else find_offset_share(errors)
    return default if share is None else float(log_sigma * share**0.5)


def widen_offsets(offsets: Mapping[str, SoftwareOffset], before: float, now: float) -> dict[str, SoftwareOffset]:
    """Return offsets of families as they are known of a new source, whose own offset is as wide as it is now."""
    return {
        name: replace(offset, time_log_sigma=float(max(offset.time_log_sigma**2 - before**2 + now**2, now**2) ** 0.5))
        for name, offset in offsets.items()
    }
