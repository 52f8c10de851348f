"""Do the fitted ranges hold the share of runs that they should, and widen with what was assumed?"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.spread import COVERAGE, LEAST_LOG_SIGMA, coverage, fitted_spread
from opsk.costmodel.spread import COVERED_SIGMAS, USUAL_ASSUMED, share_of_added_variance, widened_log_sigma


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 6)), min_size=20, max_size=60))
def test_the_ranges_hold_the_share_of_each_kind_that_they_should(runs: list[tuple[float, int]]) -> None:
    errors, assumed = np.array([error for error, _ in runs]), np.array([inputs for _, inputs in runs])
    found = fitted_spread(errors, assumed)
    for kind, sigma in ((assumed == 0, found.stated_log_sigma), (assumed > 0, found.assumed_log_sigma)):
        if not kind.any():
            assert sigma is None
            continue
        stated = found.stated_log_sigma or LEAST_LOG_SIGMA
        inside = errors[kind] * (1 - 1e-9)  # a run on the very edge is not lost to rounding
        held = coverage(inside, assumed[kind], stated, found.assumed_log_sigma or 0.0)
        assert held >= COVERAGE - 1 / kind.sum()  # a quantile between two runs may leave out the upper one


COVERED_OF_NORMAL = NormalDist().inv_cdf((1 + COVERAGE) / 2)
"""Half of the interval, in standard deviations, that holds that share of a normal distribution."""


def test_normal_errors_give_their_own_standard_deviation() -> None:
    errors = np.random.default_rng(3).normal(0.0, 0.1, 20000)
    found = fitted_spread(errors, np.zeros(20000, dtype=np.int64))
    # of 20,000 draws that quantile is known to about 1 %
    assert found.stated_log_sigma == pytest.approx(0.1 * COVERED_OF_NORMAL / COVERED_SIGMAS, rel=0.03)


def test_errors_that_grow_with_assumed_inputs_are_told_from_those_that_do_not() -> None:
    generator = np.random.default_rng(4)
    assumed = generator.integers(0, 6, 20000)
    errors = generator.normal(0.0, widened_log_sigma(0.05, 0.2, assumed))
    found = fitted_spread(errors, assumed)
    narrower = COVERED_OF_NORMAL / COVERED_SIGMAS  # as above
    assert found.stated_log_sigma == pytest.approx(0.05 * narrower, rel=0.06)
    assert found.assumed_log_sigma == pytest.approx(0.2 * narrower, rel=0.06)


def test_a_perfect_model_still_has_the_spread_of_repeated_runs() -> None:
    assert fitted_spread(np.zeros(5), np.zeros(5, dtype=np.int64)).stated_log_sigma == LEAST_LOG_SIGMA


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 20))
def test_a_range_never_narrows_with_more_assumed_inputs(stated: float, assumed: float, inputs: int) -> None:
    now, more = widened_log_sigma(stated, assumed, [inputs, inputs + 1])
    assert more >= now >= stated * (1 - 1e-12)


def test_the_spread_of_assumed_runs_holds_at_the_usual_number_of_assumed_inputs() -> None:
    assert widened_log_sigma(0.1, 0.3, USUAL_ASSUMED) == pytest.approx(0.3)
    assert widened_log_sigma(0.1, 0.3, 0) == pytest.approx(0.1)


def test_half_of_the_added_variance_comes_with_the_first_assumed_input() -> None:
    assert share_of_added_variance([0, 1, 3, 6, 9]) == pytest.approx([0, 2 / 3, 1, 1.5, 2])


def test_coverage_counts_runs_inside() -> None:
    edge = 0.1 * COVERED_SIGMAS
    errors = np.array([0.0, edge * 0.99, -edge * 0.99, edge * 1.01])
    assert coverage(errors, np.zeros(4, dtype=np.int64), 0.1, 0.1) == 0.75
