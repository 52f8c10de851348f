"""The slowdown of 1 + u agrees with an event-by-event simulation of jobs on one link.

Every job computes for a while and then sends for one second at the link's full rate; who is on the link at one moment
gets as much as everybody else there. Times of computing vary at random around their mean, so that jobs drift past each
other.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from opsk.planning.interference.contention import interference
from opsk.planning.interference.load import Load, LoadKind
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.step_model import COMMUNICATION_ONLY
from opsk.planning.routing.traffic import AXES

EVENTS = 60_000


def simulated_s(computing_s: list[float]) -> list[float]:
    """Return each job's mean time of sending one second's worth."""
    dice = random.Random(1)
    jobs = range(len(computing_s))
    left = [dice.expovariate(1 / mean) if mean else 1.0 for mean in computing_s]
    sends = [mean == 0 for mean in computing_s]
    spent, times = [0.0] * len(jobs), [0] * len(jobs)
    for _ in range(EVENTS):
        share = 1.0 / max(sum(sends), 1)
        due = [left[job] / (share if sends[job] else 1.0) for job in jobs]
        passed = min(due)
        for job in jobs:
            left[job] -= passed * (share if sends[job] else 1.0)
            spent[job] += passed * sends[job]
        job = due.index(passed)
        times[job] += sends[job]
        sends[job] = not sends[job] or computing_s[job] == 0
        left[job] = 1.0 if sends[job] else dice.expovariate(1 / computing_s[job])
    return [one / count for one, count in zip(spent, times, strict=True)]


def load(name: str, computing_s: float) -> Load:
    burst = np.zeros((len(AXES), 1))
    burst[AXES.index("dp")] = 1.0
    step = replace(COMMUNICATION_ONLY, other_s=computing_s, is_whole=True)
    return Load(
        name=name, kind=LoadKind.PLAN, links=np.array([0]), burst=burst, axis_s=burst[:, 0],
        utilisation=np.array([1.0 / (1.0 + computing_s)]), step=step, step_s=1.0 + computing_s,
    )  # fmt: skip


def predicted_s(computing_s: list[float]) -> float:
    """Return how long the first job's sending takes beside the others."""
    candidate, *others = [load(str(number), mean) for number, mean in enumerate(computing_s)]
    return interference(candidate, RunningLoads.of(1, others)).axes["dp"].shared_s


@pytest.mark.parametrize("computing_s", [[0.0, 1.0], [0.0, 3.0], [0.0, 9.0], [0.0, 0.0]])
def test_beside_one_job_it_is_exact_for_who_sends_all_the_time(computing_s: list[float]) -> None:
    """60,000 events leave about a percent of noise."""
    assert simulated_s(computing_s)[0] == pytest.approx(predicted_s(computing_s), rel=0.02)


@pytest.mark.parametrize(
    "computing_s",
    [[1.0, 1.0], [3.0, 1.0], [9.0, 3.0], [4.0, 9.0, 9.0], [0.0, 9.0, 9.0, 4.0], [0.0] * 4, [3.0] * 4, [9.0] * 8],
)
def test_beside_several_it_is_near(computing_s: list[float]) -> None:
    """How running jobs hold each other up is taken from their duty cycles alone: with eight, 8 % too little."""
    assert simulated_s(computing_s)[0] == pytest.approx(predicted_s(computing_s), rel=0.1)
