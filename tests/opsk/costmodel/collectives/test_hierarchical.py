from __future__ import annotations

import numpy as np
import pytest

from opsk.costmodel.collectives.hierarchical import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    group_of,
    point_to_point_s,
)
from opsk.costmodel.efficiency import Efficiency, LinkEfficiency
from opsk.costmodel.machine import Machine, machine_of
from tests.fakes.training_runs import a100_cluster

IDEAL = Efficiency(links=LinkEfficiency(hb_fraction=1.0, nic_fraction=1.0, hb_hop_s=0.0, nic_hop_s=0.0))
SIZE = np.array([8e9])


def _machine(efficiency: Efficiency = IDEAL) -> Machine:
    return machine_of(a100_cluster(), np.array([2]), efficiency)


def _ranks(count: float) -> np.ndarray:
    return np.array([float(count)])


def test_a_ring_inside_the_domain_moves_n_minus_1_over_n_each_way():
    group = group_of(_machine(), stride=1.0, size=_ranks(8))
    # 2 x 7/8 x 8 GB at 300 GB/s
    assert all_reduce_s(_machine(), group, SIZE, 1)[0] == pytest.approx(2 * 7 / 8 * 8e9 / 300e9)


def test_equation_1_of_the_rail_only_paper():
    # x = 8, y = 16: (y - 1) D / (x y C_nic) + (x - 1) D / (x C_hb)
    group = group_of(_machine(), stride=1.0, size=_ranks(128))
    expected = 15 * 8e9 / (8 * 16 * 25e9) + 7 * 8e9 / (8 * 300e9)
    assert all_gather_s(_machine(), group, SIZE, 1)[0] == pytest.approx(expected)


def test_ranks_a_whole_domain_apart_use_the_nic_only():
    group = group_of(_machine(), stride=8.0, size=_ranks(16))
    assert (group.inside[0], group.across[0]) == (1, 16)
    assert all_gather_s(_machine(), group, SIZE, 1)[0] == pytest.approx(15 / 16 * 8e9 / 25e9)


def test_one_rank_has_nothing_to_say():
    group = group_of(_machine(), stride=1.0, size=_ranks(1))
    assert all_reduce_s(_machine(), group, SIZE, 5)[0] == 0
    assert all_to_all_s(_machine(), group, SIZE, 5)[0] == 0


def test_latency_grows_with_the_ring():
    slow = _machine(Efficiency(links=LinkEfficiency(hb_fraction=1.0, nic_fraction=1.0, hb_hop_s=1e-6, nic_hop_s=1e-5)))
    nothing = np.array([0.0])
    small = all_gather_s(slow, group_of(slow, stride=8.0, size=_ranks(2)), nothing, 1)[0]
    large = all_gather_s(slow, group_of(slow, stride=8.0, size=_ranks(64)), nothing, 1)[0]
    assert (small, large) == (pytest.approx(1e-5), pytest.approx(63e-5))


def test_an_all_to_all_leaves_the_domain_for_all_but_its_own_ranks():
    group = group_of(_machine(), stride=1.0, size=_ranks(32))
    # each rank sends 1/32 to each: 24 over its NIC, 7 over NVLink
    assert all_to_all_s(_machine(), group, SIZE, 1)[0] == pytest.approx(24 / 32 * 8e9 / 25e9 + 7 / 32 * 8e9 / 300e9)


def test_a_message_takes_the_link_of_its_distance():
    strides = np.array([4.0, 8.0])
    taken = point_to_point_s(_machine(), stride=strides, size_bytes=np.array([3e9, 3e9]), calls=np.array([1.0, 2.0]))
    np.testing.assert_allclose(taken, [0.01, 0.24])


def test_half_the_nics_give_half_the_fabric():
    half = machine_of(a100_cluster(nics=4), np.array([2]), IDEAL)
    assert half.nic_bytes_per_s == _machine().nic_bytes_per_s / 2
