"""Finds GPUs whose clocks are held down, by what, and how far below those of healthy GPUs they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from opsk.diagnosis.losses.observation import GpuActivity
from opsk.diagnosis.losses.robust import find_outliers
from opsk.diagnosis.losses.situation import Gpu, Situation

USUAL_CLOCK = 0.85
"""SM clock under training load as part of the largest, where no healthy GPU of the job shows it [ratio].

An H100 SXM under tensor load at its own power limit runs at 1.4 to 1.75 GHz of 1.98.
"""
CLOCK_PER_POWER = 0.4
"""Clock goes with the power limit to this power: power is about voltage squared times clock, and voltage rises with it.

2.5 for the exponent of power over clock is between 1 (voltage at its floor) and 3 (voltage in proportion).
"""
LOST_WHILE_HELD = 0.25
"""Clock that a GPU loses while it is held down, where its clock is unknown [ratio]; a rough number.

Hardware slowdowns halve the clock at least (nvidia-smi's manual); software's take as much as keeps the temperature.
"""
_CHIP_SPREAD = 0.03
"""Clocks of healthy chips differ by this at one power limit: smaller differences are ignored [ratio]."""
_BITES_FROM = 0.1
_MAX_LOWERED = 0.97
_BOUND = 0.3


def throttled_share(gpu: GpuActivity, names: Callable[[str], bool]) -> float:
    """Return the share of time in which one of some reasons held the clocks down."""
    return max((share for reason, share in gpu.throttled.items() if names(reason)), default=0.0)


def is_thermal(reason: str) -> bool:
    """Return whether a reason is heat."""
    return "thermal" in reason or "temperature" in reason


def is_power(reason: str) -> bool:
    """Return whether a reason is a power limit or a weak supply."""
    return "power" in reason


def is_brake(reason: str) -> bool:
    """Return whether a reason is an alarm of the power supply, which no healthy node has."""
    return "brake" in reason


def find_hot(situation: Situation, minimum: float) -> dict[Gpu, float]:
    """Return the GPUs that heat holds down for at least a share of time, with that share."""
    shares = situation.values(_heat_share)
    return {key: share for key, share in shares.items() if share >= minimum}


def _heat_share(gpu: GpuActivity) -> float:
    """Return the share of time held down by heat; a slowdown by the hardware is heat where the GPU is hot."""
    share = throttled_share(gpu, is_thermal)
    if is_hot(gpu):
        share = max(share, throttled_share(gpu, lambda reason: reason == "hw_slowdown"))
    return share


def is_hot(gpu: GpuActivity) -> bool:
    """Return whether a GPU is within 3 degrees of where it slows down."""
    return (
        gpu.temperature_c is not None
        and gpu.slowdown_at_c is not None
        and (gpu.temperature_c >= gpu.slowdown_at_c - 3.0)
    )


def find_power_limited(situation: Situation) -> dict[Gpu, float]:
    """Return the GPUs that run slower for lack of power than healthy ones do, with the share of time.

    That a power limit holds clocks down is usual under load and in every prediction. It counts where the limit is
    below the one that the GPU starts with, where the supply brakes, and where the clock is odd among equals'.
    """
    shares = situation.values(lambda gpu: throttled_share(gpu, is_power))
    slow = find_low_clocks(situation)
    return {
        key: share
        for key, share in shares.items()
        if (share >= _BITES_FROM and power_limit_ratio(situation.gpus[key]) < _MAX_LOWERED)
        or (share >= _BOUND and key in slow)
        or throttled_share(situation.gpus[key], is_brake) >= _BITES_FROM
    }


def power_limit_ratio(gpu: GpuActivity) -> float:
    """Return the power limit as part of the one that the GPU starts with; 1 where it is unknown."""
    if not gpu.power_limit_w or not gpu.power_default_limit_w:
        return 1.0
    return min(gpu.power_limit_w / gpu.power_default_limit_w, 1.0)


def find_low_clocks(situation: Situation) -> dict[Gpu, float]:
    """Return the GPUs whose clock is odd and low among their peers', with how far below the median [ratio]."""
    clocks = situation.values(lambda gpu: gpu.clock)
    return find_outliers(situation.group_peers(clocks), high=False, minimum=_CHIP_SPREAD)


def compute_slowness(
    situation: Situation, held: Mapping[Gpu, float], usual: Callable[[GpuActivity], float]
) -> dict[Gpu, float]:
    """Return how much longer the held GPUs need for their work than healthy ones: clock over clock, less one.

    Where the clock is unknown, the share of time counts, with the usual loss of clock by a slowdown.

    Parameters
    ----------
    usual
        The clock that a held GPU would have, where no other GPU of the job is healthy enough to show it.
    """
    sound = [gpu.clock for key, gpu in situation.gpus.items() if key not in held and gpu.clock]
    reference = median(sound) if len(sound) >= 2 else None
    slowness: dict[Gpu, float] = {}
    for key, share in held.items():
        gpu = situation.gpus[key]
        if gpu.clock is None:
            slowness[key] = (1.0 - share * LOST_WHILE_HELD) ** -1 - 1.0
        elif gpu.clock > 0:
            clock = reference if reference is not None else usual(gpu)
            slowness[key] = max(clock / gpu.clock - 1.0, 0.0)
    return {key: excess for key, excess in slowness.items() if excess >= _CHIP_SPREAD}


def median_clock(situation: Situation, held: Mapping[Gpu, float]) -> float:
    """Return the median clock of some GPUs [ratio of the largest]; 0 where none is known."""
    clocks = [clock for key in held if (clock := situation.gpus[key].clock) is not None]
    return median(clocks) if clocks else 0.0
