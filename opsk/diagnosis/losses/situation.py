"""Defines the input of all causes: the observation, its step times, and the part of a step that GPU clocks decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opsk.diagnosis.losses.observation import COMPUTING, GpuActivity, Observation
from opsk.diagnosis.losses.step_times import StepTimes
from opsk.diagnosis.losses.values import Cause

Gpu = tuple[str, int]
"""Node and index."""

USUAL_COMPUTING = 0.75
"""Part of a step that computes, without a prediction [ratio]."""
_MAX_COMPUTING = 0.95


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
