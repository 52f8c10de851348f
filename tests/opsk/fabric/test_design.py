"""Described fabrics are what they are asked to be, or refused with all reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.bandwidth import compute_oversubscription
from opsk.fabric.design import rail_optimized_fabric, rail_optimized_net
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.rails import find_rails


@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(1, 2))
def test_counts_follow_from_the_sizes(nodes: int, hcas: int, units: int, spines: int, cables: int) -> None:
    leaves = hcas * units
    got = summarise_fabric(
        rail_optimized_fabric(nodes=nodes, hcas=hcas, leaves=leaves, spines=spines, cables_per_pair=cables)
    )
    assert (got.switches, got.hcas, got.nodes) == (leaves + spines, nodes * hcas, nodes)
    assert got.isl_cables == leaves * spines * cables


def test_three_tiers() -> None:
    got = summarise_fabric(rail_optimized_fabric(nodes=8, hcas=2, leaves=8, spines=2, pods=2, cores_per_spine=3))
    assert got.switches_per_tier == {0: 8, 1: 4, 2: 6}
    assert got.isl_cables == 8 * 2 + 4 * 3  # each leaf to the spines of its pod, each spine to its cores
    assert got.components == (18 + 16,)  # 18 switches and 16 HCAs hang together


def test_oversubscription_is_links_down_over_links_up() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=4, spines=2, cables_per_pair=4)
    got = compute_oversubscription(fabric, find_rails(fabric))
    assert (got.least, got.worst) == (2.0, 2.0)  # 16 HCAs over 2 x 4 cables of one speed
    assert [(tier.switches, tier.ratio) for tier in got.tiers] == [(4, 2.0), (2, None)]


def test_hosts_are_named_as_asked() -> None:
    fabric = read_fabric(rail_optimized_net(nodes=2, hcas=1, leaves=1, spines=0, names=["a1", "b2"]), source="net")
    assert {hca.description for hca in fabric.hcas.values()} == {"a1 mlx5_0", "b2 mlx5_0"}


def test_all_reasons_are_given_at_once() -> None:
    with pytest.raises(InputError, match=r"nodes is 0.*hcas is -1"):
        rail_optimized_fabric(nodes=0, hcas=-1)
    with pytest.raises(InputError, match="neither divide"):
        rail_optimized_fabric(hcas=8, leaves=6)
    with pytest.raises(InputError, match="different names"):
        rail_optimized_fabric(nodes=2, names=["a", "a"])
    with pytest.raises(InputError, match="254 ports"):
        rail_optimized_fabric(nodes=300, hcas=1, leaves=1)
