from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.uncertainty.chance import fit_probability
from opsk.costmodel.uncertainty.chance_limit import largest_bytes
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
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
