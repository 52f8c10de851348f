"""Is a step's time found in what GPUs and ports do, and none where there is none?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.telemetry.progress.step_estimate import MIN_SAMPLES, Series, estimate_period, estimate_step

EVERY_S = 1.0


def training(step_s: float, *, count: int = 400, seed: int = 0, noise: float = 0.1, busy: float = 0.6) -> Series:
    """A port's bytes: on for a part of each step, off for the rest, with noise."""
    at_s = EVERY_S * np.arange(count)
    phase = (at_s / step_s) % 1.0
    draw = np.random.default_rng(seed)
    return Series(at_s=at_s, values=5e10 * ((phase < busy) + noise * draw.standard_normal(count)))


@settings(deadline=None)
@given(step_s=st.floats(6.0, 60.0), seed=st.integers(0, 1000), busy=st.floats(0.3, 0.7))
def test_the_period_of_bursts_is_found(step_s: float, seed: int, busy: float) -> None:
    found = estimate_period(training(step_s, seed=seed, busy=busy))
    assert found is not None
    # within a twentieth: the series is sampled at a sixth of the shortest step
    assert found[0] == pytest.approx(step_s, rel=0.05)


@settings(deadline=None)
@given(step_s=st.floats(6.0, 60.0), scale=st.floats(1e-6, 1e15), shift=st.floats(-1e9, 1e9))
def test_units_and_clocks_play_no_part(step_s: float, scale: float, shift: float) -> None:
    series = training(step_s, noise=0.0)
    other = Series(at_s=np.asarray(series.at_s) + round(shift), values=np.asarray(series.values) * scale)
    one, two = estimate_period(series), estimate_period(other)
    assert one is not None
    assert two is not None
    assert two[0] == pytest.approx(one[0], rel=1e-3)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000))
def test_noise_has_no_period(seed: int) -> None:
    draw = np.random.default_rng(seed)
    assert estimate_period(Series(at_s=EVERY_S * np.arange(400), values=draw.standard_normal(400))) is None


@pytest.mark.parametrize("values", [np.zeros(200), np.full(200, 7e9), np.arange(200.0), np.arange(200.0) ** 2])
def test_what_is_level_or_grows_has_no_period(values: np.ndarray) -> None:
    assert estimate_period(Series(at_s=np.arange(200.0), values=values)) is None


def test_too_few_periods_or_samples_tell_nothing() -> None:
    assert estimate_period(training(150.0)) is None, "2.7 periods"
    assert estimate_period(training(5.0, count=MIN_SAMPLES - 1)) is None
    assert estimate_period(training(1.5)) is None, "faster than it is sampled"


def test_a_long_gap_is_not_bridged_and_a_short_one_is() -> None:
    series = training(20.0)
    at_s, values = np.asarray(series.at_s), np.asarray(series.values)
    short = np.ones(len(at_s), bool)
    short[100:102] = False
    found = estimate_period(Series(at_s=at_s[short], values=values[short]))
    assert found is not None
    assert found[0] == pytest.approx(20.0, rel=0.02)
    values = values.copy()
    values[100:200] = math.nan
    assert estimate_period(Series(at_s=at_s, values=values)) is None


def test_series_of_a_job_must_agree() -> None:
    same = [training(20.0, seed=seed) for seed in range(3)]
    found = estimate_step(same, tokens_a_step=4e6)
    assert found is not None
    assert found.step_s == pytest.approx(20.0, rel=0.02)
    assert found.tokens_per_s == pytest.approx(2e5, rel=0.02)
    assert found.source == "counters"
    noise = Series(at_s=np.arange(400.0), values=np.random.default_rng(1).standard_normal(400))
    doubtful = estimate_step([*same, noise])
    assert doubtful is not None
    assert doubtful.confidence < found.confidence
    assert estimate_step([same[0], noise, noise]) is None
    assert estimate_step([training(20.0), training(33.0), training(51.0)]) is None
    assert estimate_step([]) is None


@settings(deadline=None)
@given(values=st.lists(st.floats(), max_size=80), times=st.lists(st.floats(), max_size=80))
def test_any_numbers_give_an_answer_or_none(values: list[float], times: list[float]) -> None:
    found = estimate_step(
        [Series(at_s=times, values=values), Series(at_s=np.arange(float(len(values))), values=values)]
    )
    assert found is None or (math.isfinite(found.step_s) and found.step_s > 0)
