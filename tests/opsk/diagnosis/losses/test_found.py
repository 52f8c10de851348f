"""Is the right cause found first, at the right place, and none where nothing is wrong? Over simulated jobs.

Every job is played out rank by rank in `tests.fakes.losing_jobs`, which knows nothing of the analysis; the analysis is
not told what was put in. Causes take 6 to 35 % of a sound step, the prediction is off by 8 % (standard deviation).
"""

from __future__ import annotations

from itertools import combinations

import pytest

from opsk.diagnosis.losses.losses import compute_losses
from opsk.diagnosis.losses.values import Cause, Finding, Losses
from tests.fakes.losing_causes import HURT, simulated
from tests.fakes.losing_jobs import Injected, Simulated
from tests.fakes.observed_jobs import observed

JOBS = 40
SOUND_JOBS = 150


def named(losses: Losses) -> list[Finding]:
    return [finding for finding in losses.findings if finding.cause is not Cause.UNKNOWN]


def place(job: Simulated, injected: Injected) -> str:
    """Return where the cause is, in the words that findings use."""
    if injected.cause == "congested_link":
        return f"leaf leaf{injected.part}" if injected.node < 0 else f"{job.nodes[injected.node]} mlx5_{injected.part}"
    if injected.cause in ("straggler", "thermal_cap", "power_cap"):
        if injected.node < 0:
            return "all nodes"
        rank = f" (rank {8 * injected.node + injected.part})"
        return job.nodes[injected.node] + ("" if injected.part < 0 else f" gpu {injected.part}{rank}")
    return ""


@pytest.mark.parametrize("cause", sorted(HURT))
def test_the_injected_cause_is_found_first_and_at_its_place(cause: str) -> None:
    """At least 95 of 100 by the issue's own goal; places likewise."""
    right = placed = 0
    for seed in range(JOBS):
        job = simulated(seed, cause)
        found = named(compute_losses(observed(job)))
        if found and found[0].cause.value == cause:
            right += 1
            placed += found[0].where == place(job, job.truth[0])
    assert right >= 0.95 * JOBS, f"{right} of {JOBS}"
    assert placed >= 0.95 * JOBS, f"{placed} of {JOBS} at the right place"


def test_of_sound_jobs_nothing_is_blamed() -> None:
    """With throttling by their own power limit, rare stalls, short checkpoints and hidden congestion: at most 2 %."""
    blamed = [seed for seed in range(SOUND_JOBS) if named(compute_losses(observed(simulated(seed))))]
    assert len(blamed) <= 0.02 * SOUND_JOBS, blamed


def test_of_two_causes_one_is_first_and_mostly_both_are_found() -> None:
    """Where all wait for the slowest, a GPU that is slow for a second reason may hide behind a slower one."""
    first = both = count = 0
    for number, pair in enumerate(combinations(sorted(HURT), 2)):
        for seed in range(3):
            found = [
                finding.cause.value
                for finding in named(compute_losses(observed(simulated(1000 * number + seed, *pair))))
            ]
            count += 1
            first += bool(found) and found[0] in pair
            both += set(pair) <= set(found)
    assert first >= 0.95 * count, f"{first} of {count}"
    assert both >= 0.85 * count, f"{both} of {count}"


@pytest.mark.parametrize("cause", ["checkpointing", "thermal_cap", "power_cap", "data_loading"])
def test_what_a_cause_is_said_to_take_is_near_what_it_takes(cause: str) -> None:
    """Within a third; slow loading for six jobs of seven, for its pauses are measured 3 to 41 % too short."""
    near = 0
    for seed in range(JOBS):
        job = simulated(seed, cause)
        losses = compute_losses(observed(job))
        found = [finding for finding in named(losses) if finding.cause.value == cause]
        assert losses.mean_step_s is not None
        near += bool(found) and abs(found[0].share * losses.mean_step_s / job.truth[0].seconds - 1) < 1 / 3
    assert near >= JOBS * (6 / 7 if cause == "data_loading" else 1), f"{near} of {JOBS}"


def test_without_activity_of_multiprocessors_nothing_wrong_is_blamed_for_a_slow_gpu() -> None:
    """Older GPUs do not tell it: a GPU slow at a sound clock is then not found, but nobody else is blamed."""
    hidden = ("sm_active", "tensor_active")
    for seed in range(JOBS):
        found = named(compute_losses(observed(simulated(seed, "straggler"), without=hidden)))
        assert {finding.cause for finding in found} <= {Cause.STRAGGLER}
