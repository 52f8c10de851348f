"""Estimates the time that heat costs: share of time x loss of clock x computing share, of the slowest GPU."""

from __future__ import annotations

from opsk.diagnosis.losses.clocks import USUAL_CLOCK, compute_slowness, find_hot, is_hot, median_clock
from opsk.diagnosis.losses.situation import Situation, Suspicion, format_place
from opsk.diagnosis.losses.values import Cause

_NOTICED = 0.03


def find_thermal_cap(situation: Situation) -> Suspicion | None:
    """Return the time lost to heat, which never slows down a healthy node."""
    held = find_hot(situation, _NOTICED)
    slow = compute_slowness(situation, held, lambda gpu: max(USUAL_CLOCK, gpu.clock or 0.0))
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    degrees = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
    return Suspicion(
        cause=Cause.THERMAL_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=min(0.7 + 0.2 * min(2.0 * share, 1.0) + 0.05 * is_hot(gpu), 0.95),
        where=format_place(situation, slow),
        text=f"heat holds clocks down for {share:.0%} of the time{degrees}: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": median_clock(situation, slow),
            "slower_ratio": slow[worst],
            "gpus": float(len(slow)),
            **({} if gpu.temperature_c is None else {"temperature_c": gpu.temperature_c}),
        },
        is_slowest=True,
    )
