from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.uncertainty.chance import compute_memory_range, fit_probability
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO, Verdict, compute_verdict

SPREAD = Spread(memory_log_sigma=0.06, memory_fit_log_sigma=0.08)
"""Together 0.1."""


@given(share=st.floats(0.3, 3))
def test_the_chance_to_fit_is_students_distribution(share: float):
    # scipy's t with 3 degrees of freedom, scaled so that 90 % lie within 1.645 standard deviations of 0.1
    scale = 0.1 * 1.645 / stats.t.ppf(0.95, 3)
    chance = fit_probability(np.array([80e9 * share]), np.array(80e9), SPREAD)[0]
    assert chance == pytest.approx(stats.t.cdf(-math.log(share) / scale, 3), abs=1e-4)


def test_the_chance_falls_as_memory_grows():
    chance = fit_probability(np.linspace(1e9, 200e9, 400), np.array(80e9), SPREAD)
    assert (np.diff(chance) < 0).all()
    assert chance[0] > 0.999
    assert chance[-1] < 0.01


def test_a_need_of_the_whole_capacity_fits_as_often_as_not():
    assert fit_probability(np.array([80e9]), np.array(80e9), SPREAD)[0] == pytest.approx(0.5)


def test_a_range_widens_with_the_spread():
    narrow, wide = (compute_memory_range(np.array([1e9]), Spread(memory_log_sigma=sigma)) for sigma in (0.06, 0.2))
    assert wide.low[0] < narrow.low[0] < 1e9 < narrow.high[0] < wide.high[0]
    # 90 % of a normal distribution within 1.645 standard deviations
    assert narrow.high[0] == pytest.approx(1e9 * math.exp(1.645 * 0.06))


@pytest.mark.parametrize(
    ("chance", "verdict"),
    [
        (1.0, Verdict.FITS),
        (FITS_FROM, Verdict.FITS),
        (FITS_FROM - 0.001, Verdict.TIGHT),
        (OOM_UP_TO + 0.001, Verdict.TIGHT),
        (OOM_UP_TO, Verdict.OOM),
        (0.0, Verdict.OOM),
        (math.nan, Verdict.UNKNOWN),
    ],
)
def test_verdicts(chance: float, verdict: Verdict):
    assert compute_verdict(chance) is verdict
