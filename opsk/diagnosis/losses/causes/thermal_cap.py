"""Does heat hold clocks down? Share of time x loss of clock x share of the step that computes; the slowest decides."""

from __future__ import annotations

from opsk.diagnosis.losses.clocks import USUAL_CLOCK, hot, is_hot, mean_clock, slowness
from opsk.diagnosis.losses.situation import Situation, Suspicion, place_of
from opsk.diagnosis.losses.values import Cause

_NOTICED = 0.03


def thermal_cap(situation: Situation) -> Suspicion | None:
    """Return what heat takes; no sound node is ever slowed down by it."""
    held = hot(situation, _NOTICED)
    slow = slowness(situation, held, lambda gpu: max(USUAL_CLOCK, gpu.clock or 0.0))
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    degrees = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
    return Suspicion(
        cause=Cause.THERMAL_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=min(0.7 + 0.2 * min(2.0 * share, 1.0) + 0.05 * is_hot(gpu), 0.95),
        where=place_of(situation, slow),
        text=f"heat holds clocks down for {share:.0%} of the time{degrees}: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": mean_clock(situation, slow),
            "slower_ratio": slow[worst],
            "gpus": float(len(slow)),
            **({} if gpu.temperature_c is None else {"temperature_c": gpu.temperature_c}),
        },
        is_slowest=True,
    )
