"""What do all causes look at? The observation with its step times, and what part of a step the GPUs' clocks decide."""

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
"""Part of a step that computes, where no prediction says [ratio]."""
_MOST_COMPUTING = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What one cause takes of a step, on its own.

    Parameters
    ----------
    seconds
        Part of the mean step that it takes [s].
    is_slowest
        Whether all wait for the slowest, so that of several such causes only the worst shows.
    is_predicted
        Whether it compares predictions rather than tells what was measured.
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
        """Time of a sound step in which the slowest GPU's speed sets the pace: computation and the bubble [s]."""
        predicted, most = self.seen.prediction, _MOST_COMPUTING * self.steps.typical_s
        parts = predicted.components if predicted is not None else {}
        known = sum(parts.get(name, 0.0) for name in (*COMPUTING, "bubble"))
        return min(known, most) if known else USUAL_COMPUTING * self.steps.typical_s

    def slowed_s(self, excess: float) -> float:
        """Return what a GPU that needs ``excess`` more for its work takes of a step [s].

        Computation that fills no more than the step did cannot have been longer before it was slowed.
        """
        return min(self.computing_s, _MOST_COMPUTING * self.steps.typical_s / (1.0 + excess)) * excess

    def values(self, read: Callable[[GpuActivity], float | None]) -> dict[Gpu, float]:
        """Return one value of all GPUs that have it."""
        return {key: value for key, gpu in self.gpus.items() if (value := read(gpu)) is not None}

    def of_equals(self, values: Mapping[Gpu, float]) -> list[dict[Gpu, float]]:
        """Return the values by group of GPUs with the same work."""
        groups: defaultdict[int, dict[Gpu, float]] = defaultdict(dict)
        for key, value in values.items():
            groups[self.gpus[key].equals][key] = value
        return list(groups.values())


def situation_of(seen: Observation, steps: StepTimes) -> Situation:
    """Return what causes look at."""
    ordered = sorted(seen.gpus, key=lambda gpu: (gpu.node, gpu.index))
    return Situation(seen=seen, steps=steps, gpus={(gpu.node, gpu.index): gpu for gpu in ordered})


def by_node(values: Mapping[Gpu, float]) -> dict[str, list[float]]:
    """Return values of GPUs by node."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for (node, _), value in values.items():
        found[node].append(value)
    return dict(found)


def place_of(situation: Situation, found: Mapping[Gpu, float]) -> str:
    """Return where the odd GPUs are, in people's words: one GPU, a node, or how many; the worst one is named."""
    if not found:
        return ""
    everyone = by_node(dict.fromkeys(situation.gpus, 0.0))
    nodes = by_node(found)
    whole = [node for node, values in nodes.items() if len(values) >= 2 and 2 * len(values) > len(everyone[node])]
    if len(whole) == len(everyone) > 1:
        return "all nodes"
    worst = max(found, key=lambda key: (found[key], key))
    if worst[0] in whole:
        return worst[0] if len(nodes) == 1 else f"{worst[0]} and {len(nodes) - 1} other nodes"
    gpu = situation.gpus[worst]
    name = f"{worst[0]} gpu {worst[1]}" + ("" if gpu.rank is None else f" (rank {gpu.rank})")
    return name if len(found) == 1 else f"{name} and {len(found) - 1} others"
