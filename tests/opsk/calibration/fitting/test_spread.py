"""Do the fitted ranges hold the share of runs that they should, and widen where nothing near was measured?"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.fitting.spread import (
    COVERAGE,
    MIN_LOG_SIGMA,
    FittedSpread,
    Residuals,
    coverage,
    coverage_unseen,
    fit_spread,
)
from opsk.costmodel.efficiency.cases import ASPECTS
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS, USUAL_ASSUMED, share_of_added_variance, widen_log_sigma

COVERED_OF_NORMAL = NormalDist().inv_cdf((1 + COVERAGE) / 2)
"""Half of the interval, in standard deviations, that holds that share of a normal distribution."""
AIM = 0.7
"""Share of every class that ranges are to hold; the fit aims a little higher."""
NOTHING_NEW = dict.fromkeys(ASPECTS, 0.0)


def test_normal_errors_give_their_own_standard_deviation() -> None:
    errors = Residuals.plain(np.random.default_rng(3).normal(0.0, 0.2, 4000), [0] * 4000)
    # the base is told in steps of 0.02, and of 4,000 draws that quantile is known to about 2 %
    assert fit_spread(errors).log_sigma == pytest.approx(0.2 * COVERED_OF_NORMAL / COVERED_SIGMAS, abs=0.02)


def test_errors_that_grow_with_assumed_inputs_are_told_from_those_that_do_not() -> None:
    generator = np.random.default_rng(4)
    assumed = generator.integers(0, 6, 4000)
    errors = Residuals.plain(generator.normal(0.0, widen_log_sigma(0.1, 0.4, assumed)), assumed)
    found, narrower = fit_spread(errors), COVERED_OF_NORMAL / COVERED_SIGMAS
    assert found.log_sigma == pytest.approx(0.1 * narrower, abs=0.04)  # two steps of the grid
    assert found.assumed_log_sigma == pytest.approx(0.4 * narrower, abs=0.04)


def test_runs_that_nothing_is_near_to_get_wider_ranges() -> None:
    generator = np.random.default_rng(5)
    is_new = generator.random(4000) < 0.3
    sigma = np.where(is_new, np.hypot(0.1, 0.3), 0.1)
    plain = Residuals.plain(generator.normal(0.0, sigma), [0] * 4000)
    lacks = np.zeros((4000, len(ASPECTS)), dtype=np.bool_)
    lacks[:, ASPECTS.index("gpu")] = is_new
    found, narrower = fit_spread(replace(plain, lacks=lacks)), COVERED_OF_NORMAL / COVERED_SIGMAS
    assert found.log_sigma == pytest.approx(0.1 * narrower, abs=0.03)
    assert found.new["gpu"] == pytest.approx(0.3 * narrower, abs=0.05)


def test_no_class_of_many_runs_is_held_much_less_often_than_all() -> None:
    generator = np.random.default_rng(6)
    is_rough = np.arange(400) < 40
    plain = Residuals.plain(generator.normal(0.0, np.where(is_rough, 0.3, 0.05)), [0] * 400)
    classes = {"kind": np.where(is_rough, "rough", "fine").astype(object)}
    without, held = (
        coverage(replace(plain, classes=classes), fit_spread(replace(plain, classes=known))) for known in ({}, classes)
    )
    assert without["rough"] < AIM <= held["rough"]


def test_a_large_source_does_not_decide_alone() -> None:
    generator = np.random.default_rng(7)
    sources = np.array(["large"] * 900 + [f"small-{place}" for place in range(30)], dtype=object)
    plain = Residuals.plain(generator.normal(0.0, np.where(sources == "large", 0.03, 0.3)), [0] * 930)
    # the large one weighs as 30 runs: as much as the thirty small ones
    assert fit_spread(replace(plain, sources=sources)).log_sigma > 0.1
    assert fit_spread(plain).log_sigma < 0.1


def test_widths_can_be_tried_on_sources_that_they_did_not_see() -> None:
    generator = np.random.default_rng(8)
    plain = Residuals.plain(generator.normal(0.0, 0.1, 300), [0] * 300)
    assert coverage_unseen(plain) is None
    sources = np.array([f"{place % 3}" for place in range(300)], dtype=object)
    held = coverage_unseen(replace(plain, sources=sources))
    assert held is not None
    assert held["overall"] == pytest.approx(COVERAGE, abs=0.1)


def test_few_first_looks_weigh_as_much_as_all_sources_left_out() -> None:
    generator = np.random.default_rng(9)
    is_unseen = np.arange(1100) >= 1000
    plain = Residuals.plain(generator.normal(0.0, np.where(is_unseen, 0.3, 0.05)), [0] * 1100)
    sources = np.array([f"{place % 50}" for place in range(1100)], dtype=object)
    known = replace(plain, sources=sources)
    looked = replace(known, unseen_weights=is_unseen.astype(float))
    assert looked.weights[is_unseen].sum() == pytest.approx(0.5)
    before, after = (coverage(looked, fit_spread(errors)) for errors in (known, looked))
    assert before["unseen"] < 0.5 < 0.75 < after["unseen"]
    assert after["unseen, stated"] == after["unseen"]
    assert after["overall"] > before["overall"]


def test_a_perfect_model_still_has_the_spread_of_repeated_runs() -> None:
    assert fit_spread(Residuals.plain([0.0] * 5, [0] * 5)).log_sigma == MIN_LOG_SIGMA


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 20))
def test_a_range_never_narrows_with_more_assumed_inputs(stated: float, assumed: float, inputs: int) -> None:
    now, more = widen_log_sigma(stated, assumed, [inputs, inputs + 1])
    assert more >= now >= stated * (1 - 1e-12)


def test_the_spread_of_assumed_runs_holds_at_the_usual_number_of_assumed_inputs() -> None:
    assert widen_log_sigma(0.1, 0.3, USUAL_ASSUMED) == pytest.approx(0.3)
    assert widen_log_sigma(0.1, 0.3, 0) == pytest.approx(0.1)


def test_half_of_the_added_variance_comes_with_the_first_assumed_input() -> None:
    assert share_of_added_variance([0, 1, 3, 6, 9]) == pytest.approx([0, 2 / 3, 1, 1.5, 2])


def test_coverage_counts_runs_inside() -> None:
    edge = 0.1 * COVERED_SIGMAS
    errors = Residuals.plain([0.0, edge * 0.99, -edge * 0.99, edge * 1.01], [0] * 4)
    spread = FittedSpread(log_sigma=0.1, assumed_log_sigma=0.1, new=NOTHING_NEW)
    assert coverage(errors, spread) == {"overall": 0.75, "stated": 0.75}
