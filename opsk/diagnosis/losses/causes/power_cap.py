"""Estimates the time that a power limit costs, from clocks against those of GPUs that have all their power."""

from __future__ import annotations

from opsk.diagnosis.losses.clocks import (
    CLOCK_PER_POWER,
    compute_slowness,
    find_hot,
    find_power_limited,
    is_brake,
    median_clock,
    power_limit_ratio,
    throttled_share,
)
from opsk.diagnosis.losses.observation import GpuActivity
from opsk.diagnosis.losses.situation import Situation, Suspicion, format_place
from opsk.diagnosis.losses.values import Cause

_NOTICED_HEAT = 0.03


def find_power_cap(situation: Situation) -> Suspicion | None:
    """Return the time lost to lack of power; GPUs that heat slows down belong to that cause."""
    held = find_power_limited(situation)
    for key in find_hot(situation, _NOTICED_HEAT):
        held.pop(key, None)
    slow = compute_slowness(situation, held, _clock_at_full_power)
    if not slow:
        return None
    worst = max(slow, key=lambda key: (slow[key], key))
    gpu, share = situation.gpus[worst], held[worst]
    limit, brakes = power_limit_ratio(gpu), throttled_share(gpu, is_brake) > 0
    why = "the power supply brakes" if brakes else "its power limit holds its clock down"
    if limit < 1.0 and not brakes:
        why = (
            f"a power limit of {gpu.power_limit_w:.0f} W instead of {gpu.power_default_limit_w:.0f} W holds clocks down"
        )
    return Suspicion(
        cause=Cause.POWER_CAP,
        seconds=situation.slowed_s(slow[worst]),
        confidence=0.9 if brakes or limit < 1.0 else 0.7,
        where=format_place(situation, slow),
        text=f"{why} for {share:.0%} of the time: {slow[worst]:.0%} more time for its work",
        numbers={
            "throttled_ratio": share,
            "clock_ratio": median_clock(situation, slow),
            "slower_ratio": slow[worst],
            "power_limit_ratio": limit,
            "gpus": float(len(slow)),
        },
        is_slowest=True,
    )


def _clock_at_full_power(gpu: GpuActivity) -> float:
    """Return the clock that a GPU would have at the limit that it starts with [ratio of the largest]."""
    clock = gpu.clock or 0.0
    return float(min(clock * power_limit_ratio(gpu) ** -CLOCK_PER_POWER, max(clock, 1.0)))
