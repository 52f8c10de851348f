"""Power of hosts and networks against published measurements and counts."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from opsk.costmodel.power import STATE_FRACTIONS, host_w, network_w
from opsk.hardware.catalog import cluster
from opsk.hardware.spec import ClusterSpec


def test_states_are_ordered_by_what_works_and_none_beats_the_limit():
    states = STATE_FRACTIONS
    assert 0 < states.idle < states.waiting < states.communicating <= states.computing <= 1
    assert states.waiting < states.memory_bound < states.computing
    assert max(asdict(states).values()) == 1


def test_a_node_of_h100_draws_what_was_measured():
    # Latif et al. 2024 (arXiv 2412.08602): at most 8.4 kW of rated 10.2, GPUs near their limits of 8 x 700 W
    node = cluster("superpod-h100").node
    assert 8 * host_w(node) + 8 * 700 == pytest.approx(8400, rel=0.02)


def test_a_host_of_unknown_rating_is_a_share_of_its_gpus():
    node = cluster("superpod-h100").node
    known, unknown = host_w(node), host_w(replace(node, power_w=None))
    # 350 W is half of 700 W; the rating says 345 W
    assert unknown == pytest.approx(350)
    assert unknown == pytest.approx(known, rel=0.02)


def test_a_host_rated_below_its_gpus_draws_nothing_rather_than_less():
    assert host_w(replace(cluster("superpod-h100").node, power_w=1000.0)) == 0


def test_the_network_of_a_superpod_is_counted_by_switches_and_transceivers():
    # 48 switches x 64 ports x 18 W + 2 x 2 x 1016 transceivers x 9 W = 91,872 W over 1,016 GPUs
    assert network_w(cluster("superpod-h100")) == pytest.approx((48 * 64 * 18 + 4064 * 9) / 1016)


def test_a_rail_only_network_needs_less(cluster: ClusterSpec):
    assert network_w(replace(cluster, fabric="rail-only")) < network_w(cluster)


def test_more_tiers_need_more_power_and_one_node_needs_no_network(cluster: ClusterSpec):
    watts = [network_w(replace(cluster, nodes=nodes)) for nodes in (1, 8, 256, 10_000, 10**9)]
    assert watts == sorted(watts)
    assert watts[0] == 0


def test_slower_links_need_less_power(cluster: ClusterSpec):
    nic = replace(cluster.node.nic, bytes_per_s=50e9)
    faster = replace(cluster, node=replace(cluster.node, nic=nic))
    assert network_w(faster) == pytest.approx(2 * network_w(cluster))
