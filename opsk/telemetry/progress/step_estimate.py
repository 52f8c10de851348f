"""Estimates the step time of a training job from the period of its GPU and network counters, where no log has it.

Synchronous training does the same in each step: bytes on the network come and go with it, and so do power and activity
of GPUs. The period of such a series is the step time, or that of the micro-batches within one, or of a few steps. A
period is reported only if it stands out, several series share it, and it was seen several times; the token rate follows
from it where the batch is known. The source of the result is ``counters``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SOURCE = "counters"
MIN_SAMPLES = 32
MIN_PERIODS = 4
"""The minimum of periods in a series; fewer are not reliable."""
MIN_SAMPLES_PER_PERIOD = 4
"""Faster changes cannot be distinguished from slower ones (Nyquist, with room for jitter)."""
MIN_CORRELATION = 0.5
"""Of a series with itself one period later."""
AGREE = 0.1
"""Series agree whose periods differ by less than this [ratio]."""
_HARMONICS = 6
_PEAK_RATIO = 0.85
_LEVEL = 1e-9
"""What varies by less than this part of its largest value is level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A counter's rate over time: ``at_s`` ascending [s], ``values`` in any unit; NaN is not known.

    Values are means over the time between two of them. Of values of single moments, what changes faster than they are
    taken looks like a slow change, and would be reported as a long step.
    """

    at_s: Sequence[float] | NDArray[np.float64]
    values: Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period that was found.

    Parameters
    ----------
    step_s
        How long it is [s].
    confidence
        Correlation of the series with itself one period later, times the share of series that agree [ratio].
    series
        How many agree.
    tokens_per_s
        Of the whole job, where the tokens of a step are known.
    """

    step_s: float
    confidence: float
    series: int = 1
    tokens_per_s: float | None = None
    source: str = SOURCE


def estimate_step(series_list: Sequence[Series], *, tokens_a_step: float | None = None) -> Period | None:
    """Return the step time that counters show; ``None`` where none stands out.

    Parameters
    ----------
    series_list
        Series of one job: utilisation or power of its GPUs, bytes of its ports.
    tokens_a_step
        Global batch times sequence length, where the plan is known [tokens].
    """
    periods = [period for series in series_list if (period := estimate_period(series)) is not None]
    if not periods:
        return None
    middle_s = float(np.median([step_s for step_s, _ in periods]))
    agreeing = [(step_s, strength) for step_s, strength in periods if abs(step_s - middle_s) <= AGREE * middle_s]
    if 2 * len(agreeing) <= len(series_list):
        return None
    step_s = float(np.median([step_s for step_s, _ in agreeing]))
    strength = float(np.median([strength for _, strength in agreeing]))
    return Period(
        step_s=step_s,
        confidence=min(1.0, strength * len(agreeing) / len(series_list)),
        series=len(agreeing),
        tokens_per_s=tokens_a_step / step_s if tokens_a_step else None,
    )


def estimate_period(series: Series) -> tuple[float, float] | None:
    """Return the period of one series [s] and its correlation with itself one period later; ``None`` without any."""
    evenly = _resample(series)
    if evenly is None:
        return None
    values, every_s = evenly
    centred = _remove_trend(values)
    spread = float(np.sqrt(np.mean(centred**2)))
    if not math.isfinite(spread) or spread <= _LEVEL:
        return None
    correlation = _compute_autocorrelation(centred)
    lag = _find_first_strong_peak(correlation)
    if lag is None:
        return None
    return _refine_period(correlation, lag) * every_s, float(min(1.0, correlation[lag]))


def _resample(series: Series) -> tuple[NDArray[np.float64], float] | None:
    """Return the values at equal distances, and the distance [s]; short gaps are bridged, long ones are not."""
    at_s = np.asarray(series.at_s, dtype=np.float64)
    values = np.asarray(series.values, dtype=np.float64)
    if at_s.shape != values.shape or at_s.ndim != 1:
        return None
    known = np.isfinite(at_s) & np.isfinite(values)
    at_s, values = at_s[known], values[known]
    if len(at_s) < MIN_SAMPLES:
        return None
    gaps = np.diff(at_s)
    every_s = float(np.median(gaps))
    if not (gaps > 0).all() or every_s <= 0 or gaps.max() > 3 * every_s:
        return None
    grid = at_s[0] + every_s * np.arange(int((at_s[-1] - at_s[0]) / every_s + 1e-6) + 1)
    return np.interp(grid, at_s, values), every_s


def _remove_trend(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values, of 1 at most, less a straight line through them: what grows slowly has no period."""
    index = np.arange(len(values)) - (len(values) - 1) / 2
    scale = float(np.abs(values).max()) or 1.0
    level = values / scale
    level = level - level.mean()
    return np.asarray(level - index * float(index @ level) / float(index @ index), dtype=np.float64)


def _compute_autocorrelation(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlation of a series with itself at each lag that has enough periods, by the parts that overlap."""
    count = len(centred)
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    products = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count]
    squares = np.concatenate(([0.0], np.cumsum(centred**2)))
    lags = np.arange(count // MIN_PERIODS + 1)
    energy = np.sqrt((squares[count - lags] - squares[0]) * (squares[count] - squares[lags]))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(energy > 0, products[: len(lags)] / energy, 0.0)


def _find_first_strong_peak(correlation: NDArray[np.float64]) -> int | None:
    """Return the shortest lag whose peak is about as high as the highest: later ones are its multiples."""
    inner = np.arange(2, len(correlation) - 1)
    is_peak = (correlation[inner] >= correlation[inner - 1]) & (correlation[inner] > correlation[inner + 1])
    peaks = inner[is_peak]
    # what falls off from the start is no peak: a period comes after the series was unlike itself
    unlike = np.flatnonzero(correlation < MIN_CORRELATION / 2)
    peaks = peaks[peaks > unlike[0]] if len(unlike) else peaks[:0]
    if not len(peaks) or correlation[peaks].max() < MIN_CORRELATION:
        return None
    # a summit between two samples is higher than both: by up to half of what the flank falls in one sample
    flank = correlation[peaks] - np.minimum(correlation[peaks - 1], correlation[peaks + 1])
    summit = np.minimum(1.0, correlation[peaks] + flank / 2)
    strong = (correlation[peaks] >= MIN_CORRELATION) & (summit >= _PEAK_RATIO * correlation[peaks].max())
    first = int(peaks[strong][0])
    return first if first >= MIN_SAMPLES_PER_PERIOD else None


def _refine_period(correlation: NDArray[np.float64], lag: int) -> float:
    """Return the period in samples, more exactly: by the last of its multiples that stand out, each by a parabola."""
    period = _interpolate_peak(correlation, lag)
    for multiple in range(2, _HARMONICS + 1):
        near = round(period * multiple)
        reach = max(1, lag // 4)
        low, high = near - reach, near + reach + 1
        if high >= len(correlation):
            break
        peak = low + int(np.argmax(correlation[low:high]))
        if correlation[peak] < MIN_CORRELATION:
            break
        period = _interpolate_peak(correlation, peak) / multiple
    return period


def _interpolate_peak(values: NDArray[np.float64], peak: int) -> float:
    """Return where a parabola through a peak and its neighbours is highest."""
    left, top, right = values[peak - 1 : peak + 2]
    bend = left - 2 * top + right
    return peak if bend >= 0 else float(peak + 0.5 * (left - right) / bend)
