"""Defines the input of all causes: the observation, its step times, and which clocks are held down, by what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from opsk.diagnosis.losses.observation import COMPUTING, GpuActivity, Observation
from opsk.diagnosis.losses.step_times import StepTimes, find_outliers
from opsk.diagnosis.losses.values import Cause

Gpu = tuple[str, int]
"""Node and index."""
USUAL_COMPUTING = 0.75
"""Part of a step that computes, without a prediction [ratio]."""
_MAX_COMPUTING = 0.95
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """The time of a step that one cause takes, on its own.

    Parameters
    ----------
    seconds
        Part of the mean step that it takes [s].
    is_slowest
        Whether all wait for the slowest, so that of several such causes only the worst shows.
    is_predicted
        Whether it compares predictions rather than measurements.
    """

    cause: Cause
    seconds: float
    confidence: float
    where: str = ""
    text: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    is_slowest: bool = False
    is_predicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The observation, its step times, and its GPUs by place."""

    seen: Observation
    steps: StepTimes
    gpus: Mapping[Gpu, GpuActivity]

    @property
    def computing_s(self) -> float:
        """Time of a healthy step in which the slowest GPU's speed sets the pace: computation and the bubble [s]."""
        predicted, max_s = self.seen.prediction, _MAX_COMPUTING * self.steps.typical_s
        parts = predicted.components if predicted is not None else {}
        known = sum(parts.get(name, 0.0) for name in (*COMPUTING, "bubble"))
        return min(known, max_s) if known else USUAL_COMPUTING * self.steps.typical_s

    def slowed_s(self, excess: float) -> float:
        """Return the time of a step that a GPU takes which needs ``excess`` more for its work [s].

        Computation that fills no more than the step did cannot have been longer before it was slowed.
        """
        return min(self.computing_s, _MAX_COMPUTING * self.steps.typical_s / (1.0 + excess)) * excess

    def values(self, read: Callable[[GpuActivity], float | None]) -> dict[Gpu, float]:
        """Return one value of all GPUs that have it."""
        return {key: value for key, gpu in self.gpus.items() if (value := read(gpu)) is not None}

    def group_peers(self, values: Mapping[Gpu, float]) -> list[dict[Gpu, float]]:
        """Return the values by group of GPUs with the same work."""
        groups: defaultdict[int, dict[Gpu, float]] = defaultdict(dict)
        for key, value in values.items():
            groups[self.gpus[key].equals][key] = value
        return list(groups.values())


def build_situation(seen: Observation, steps: StepTimes) -> Situation:
    """Return the input of all causes."""
    ordered = sorted(seen.gpus, key=lambda gpu: (gpu.node, gpu.index))
    return Situation(seen=seen, steps=steps, gpus={(gpu.node, gpu.index): gpu for gpu in ordered})


def group_by_node(values: Mapping[Gpu, float]) -> dict[str, list[float]]:
    """Return values of GPUs by node."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for (node, _), value in values.items():
        groups[node].append(value)
    return dict(groups)


def format_place(situation: Situation, odd: Mapping[Gpu, float]) -> str:
    """Return where the odd GPUs are, as text: one GPU, a node, or how many; the worst one is named."""
    if not odd:
        return ""
    everyone = group_by_node(dict.fromkeys(situation.gpus, 0.0))
    nodes = group_by_node(odd)
    whole = [node for node, values in nodes.items() if len(values) >= 2 and 2 * len(values) > len(everyone[node])]
    if len(whole) == len(everyone) > 1:
        return "all nodes"
    worst = max(odd, key=lambda key: (odd[key], key))
    if worst[0] in whole:
        return worst[0] if len(nodes) == 1 else f"{worst[0]} and {len(nodes) - 1} other nodes"
    gpu = situation.gpus[worst]
    name = f"{worst[0]} gpu {worst[1]}" + ("" if gpu.rank is None else f" (rank {gpu.rank})")
    return name if len(odd) == 1 else f"{name} and {len(odd) - 1} others"


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
