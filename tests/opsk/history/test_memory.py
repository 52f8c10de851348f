"""Is memory estimated from runs with the same settings, along a line that runs show, and not at all without them?"""

from __future__ import annotations

import pytest

from opsk.history.memory import MemoryEstimate, estimate_memory
from opsk.history.runs import PastRun
from opsk.units import GIB


def run(number: int, gib: float, **settings: str) -> PastRun:
    return PastRun(
        job=str(number), ended_at_s=float(-number), settings=settings, gpu_type="h100", gpus=8,
        memory_peak_bytes=gib * GIB, observed_s=600.0, state="COMPLETED",
    )  # fmt: skip


def estimate(runs: list[PastRun], **settings: str) -> MemoryEstimate | None:
    return estimate_memory(runs, settings)


def test_the_same_settings_need_the_median_of_the_last_five() -> None:
    result = estimate([run(number, gib, batch="4") for number, gib in enumerate((61, 59, 61.5, 61, 60, 20))], batch="4")
    assert result is not None
    assert (result.low_bytes, result.expected_bytes, result.high_bytes) == (59 * GIB, 61 * GIB, 61.5 * GIB)


def test_memory_follows_a_setting_that_was_run_with_two_values() -> None:
    """2.1 GiB and 7.4 GiB a sample: 61.3 GiB at 8 samples."""
    result = estimate([run(1, 2.1 + 4 * 7.4, batch="4"), run(2, 2.1 + 2 * 7.4, batch="2")], batch="8")
    assert result is not None
    assert result.expected_bytes == pytest.approx(61.3 * GIB)
    assert (result.scaled_by, result.constant_bytes, result.bytes_per_unit) == (
        "batch", pytest.approx(2.1 * GIB), pytest.approx(7.4 * GIB)
    )  # fmt: skip
    assert [(each.name, each.before, each.after) for each in result.changes] == [("batch", "4", "8")]


@pytest.mark.parametrize(
    ("runs", "settings"),
    [
        ([run(1, 30, batch="4")], {"batch": "8"}),
        ([run(1, 30, batch="4"), run(2, 20, batch="2")], {"batch": "64"}),
        ([run(1, 30, batch="4"), run(2, 20, batch="8")], {"batch": "16"}),
        ([run(1, 10, n="1"), run(2, 40, n="2"), run(3, 45, n="3")], {"n": "4"}),
        ([run(1, 30, model="big")], {"model": "small"}),
    ],
    ids=["one value", "far beyond", "falls", "no line", "a word"],
)
def test_a_change_that_no_runs_explain_has_no_estimate(runs: list[PastRun], settings: dict[str, str]) -> None:
    result = estimate_memory(runs, settings)
    assert result is not None
    assert (result.expected_bytes, len(result.changes)) == (None, 1)


def test_a_setting_that_changed_alone_without_effect_is_harmless() -> None:
    result = estimate([run(1, 30, heads="4"), run(2, 30.1, heads="8")], heads="16")
    assert result is not None
    assert result.expected_bytes == pytest.approx(30 * GIB, rel=0.01)


def test_a_rate_is_harmless_until_runs_show_otherwise() -> None:
    assert (result := estimate([run(1, 30, rate="0.1")], rate="0.2")) is not None
    assert result.expected_bytes == 30 * GIB
    assert (result := estimate([run(1, 30, rate="0.1"), run(2, 50, rate="0.5")], rate="0.7")) is not None
    assert result.expected_bytes != 30 * GIB


def test_runs_that_failed_or_were_hardly_observed_show_no_memory() -> None:
    short = PastRun(job="1", ended_at_s=0, memory_peak_bytes=GIB, observed_s=5.0, state="COMPLETED")
    failed = PastRun(job="2", ended_at_s=0, memory_peak_bytes=GIB, observed_s=500.0, state="FAILED")
    assert estimate_memory([short, failed], {}) is None
