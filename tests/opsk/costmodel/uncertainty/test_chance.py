from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.uncertainty.chance import compute_memory_range, fit_probability, largest_bytes
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO, Verdict, compute_verdict
from opsk.hardware import catalog

CLUSTERS = tuple(catalog.cluster(name) for name in catalog.names("cluster"))
SPREADS = st.builds(
    Spread, memory_log_sigma=st.floats(0.01, 0.5), memory_fit_log_sigma=st.sampled_from([0.0, 0.1, 0.3])
)


def _chance(needed_bytes: float, capacity_bytes: float, spread: Spread) -> float:
    return float(fit_probability(np.asarray(needed_bytes), np.asarray(capacity_bytes), spread))


@given(st.sampled_from(CLUSTERS), SPREADS, st.floats(OOM_UP_TO, FITS_FROM))
def test_what_needs_more_has_less_than_the_chance_and_what_needs_less_has_it(cluster, spread: Spread, chance: float):
    capacity = cluster.node.gpu.capacity_bytes
    most = largest_bytes(cluster, Efficiency(spread=spread), chance=chance)
    assert _chance(most * (1 + 1e-9), capacity, spread) < chance
    assert _chance(most * (1 - 1e-9), capacity, spread) > chance


@given(st.sampled_from(CLUSTERS), SPREADS, st.sampled_from([FITS_FROM, OOM_UP_TO]))
def test_the_limit_is_rounded_up_not_down(cluster, spread: Spread, chance: float):
    # a bound must not leave out what is just allowed, by however little
    most = largest_bytes(cluster, Efficiency(spread=spread), chance=chance)
    assert _chance(np.nextafter(most, np.inf), cluster.node.gpu.capacity_bytes, spread) <= chance


def test_an_even_chance_is_the_capacity_itself():
    cluster = catalog.cluster("superpod-h100")
    assert largest_bytes(cluster, DEFAULT, chance=0.5) == pytest.approx(cluster.node.gpu.capacity_bytes, rel=1e-9)


def test_the_limit_is_a_share_of_the_capacity():
    cluster = catalog.cluster("superpod-h100")
    gpu = replace(cluster.node.gpu, memory_bytes=10**9, usable_bytes=None)
    small = replace(cluster, node=replace(cluster.node, gpu=gpu))
    share = largest_bytes(cluster, DEFAULT, chance=FITS_FROM) / cluster.node.gpu.capacity_bytes
    assert largest_bytes(small, DEFAULT, chance=FITS_FROM) / 1e9 == pytest.approx(share, rel=1e-9)
    assert share < 1


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
