"""Does a power limit hold clocks down more than is usual? Clocks against those of GPUs that have all their power."""

from __future__ import annotations

from opsk.diagnosis.losses.clocks import (
    CLOCK_PER_POWER,
    hot,
    is_brake,
    lowered,
    mean_clock,
    share_of,
    short_of_power,
    slowness,
)
from opsk.diagnosis.losses.observation import GpuActivity
from opsk.diagnosis.losses.situation import Situation, Suspicion, place_of
from opsk.diagnosis.losses.values import Cause

_NOTICED_HEAT = 0.03


def power_cap(situation: Situation) -> Suspicion | None:
    """Return what lack of power takes; GPUs that heat slows down are left to that cause."""
    held = short_of_power(situation)
    for key in hot(situation, _NOTICED_HEAT):
        held.pop(key, None)
    slow = slowness(situation, held, _with_all_its_power)
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    limit, brakes = lowered(gpu), share_of(gpu, is_brake) > 0
    why = "the power supply brakes" if brakes else "its power limit holds its clock down"
    if limit < 1.0 and not brakes:
        why = (
            f"a power limit of {gpu.power_limit_w:.0f} W instead of {gpu.power_default_limit_w:.0f} W holds clocks down"
        )
    return Suspicion(
        cause=Cause.POWER_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=0.9 if brakes or limit < 1.0 else 0.7,
        where=place_of(situation, slow),
        text=f"{why} for {share:.0%} of the time: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": mean_clock(situation, slow),
            "slower_ratio": slow[worst],
            "power_limit_ratio": limit,
            "gpus": float(len(slow)),
        },
        is_slowest=True,
    )


def _with_all_its_power(gpu: GpuActivity) -> float:
    """Return the clock that a GPU would have at the limit that it starts with [ratio of the largest]."""
    clock = gpu.clock or 0.0
    return float(min(clock * lowered(gpu) ** -CLOCK_PER_POWER, max(clock, 1.0)))
