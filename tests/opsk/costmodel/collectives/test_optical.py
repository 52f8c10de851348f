"""Directly connected workers: what NTT's talk of July 2024 prints, and the identities behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.collectives.optical import (
    all_reduce_s,
    full_tree_bandwidth,
    partial_bandwidth,
    ring_transfers,
    streamed_transfers,
    transfer_time_s,
    tree_aggregators,
)
from opsk.errors import InputError


def _diameter_of_fullest_tree(workers: int, interfaces: int, *, roots: int) -> int:
    """Return the diameter of a tree filled level by level from one worker, or from two that are joined."""
    distance, free = [0] * min(roots, workers), [interfaces - (roots - 1)] * min(roots, workers)
    parent = 0
    while len(distance) < workers:
        while free[parent] == 0:
            parent += 1
        free[parent] -= 1
        distance.append(distance[parent] + 1)
        free.append(interfaces - 1)
    return 2 * max(distance) + (roots - 1 if workers > 1 else 0)


def test_the_talks_table_for_8_workers_with_4_interfaces() -> None:
    # ring 14 transfers, NIC-streamed ring 7, optimised topology 3, each 0.4375 L b
    assert (ring_transfers(8), streamed_transfers(8, interfaces=2), streamed_transfers(8, interfaces=4)) == (14, 7, 3)
    assert transfer_time_s(1.0, workers=8, interfaces=4, bytes_per_s=1.0) == 0.4375


@pytest.mark.parametrize(("bits_per_s", "ring_share", "optimised_share"), [(1.6e12, 0.31, 0.09), (400e9, 0.10, 0.02)])
def test_share_of_latency_in_a_25_mb_all_reduce(bits_per_s: float, ring_share: float, optimised_share: float) -> None:
    # the talk prints 31 % -> 9 % at 1.6 Tbit/s and 10 % -> 2 % at 400 Gbit/s; its alpha is not printed: 1.755 us gives
    # the first of the four, and then the other three
    hop_s = 1.755e-6
    link = {"workers": 8, "interfaces": 4, "bytes_per_s": bits_per_s / 8}
    for transfers, printed in ((14, ring_share), (3, optimised_share)):
        whole_s = all_reduce_s(25e6, transfers=transfers, hop_s=hop_s, **link)
        assert transfers * hop_s / whole_s == pytest.approx(printed, abs=0.005)


@given(st.integers(2, 300))
def test_a_streamed_ring_takes_one_transfer_less_than_it_has_workers(workers: int) -> None:
    assert streamed_transfers(workers, interfaces=2) == workers - 1


@given(st.integers(1, 300), st.integers(2, 8))
def test_transfers_are_the_diameter_of_the_fullest_tree(workers: int, interfaces: int) -> None:
    around_worker = _diameter_of_fullest_tree(workers, interfaces, roots=1)
    around_edge = _diameter_of_fullest_tree(workers, interfaces, roots=2)
    assert streamed_transfers(workers, interfaces=interfaces) == min(around_worker, around_edge)


def test_128_workers_need_63_aggregators_with_4_interfaces() -> None:
    # the talk: about (N - 1)/(E - 2) = 63.5, "at least 63" for N = 128, E = 4
    assert tree_aggregators(128, aggregator_interfaces=4) == 63


@given(st.integers(2, 4096), st.integers(3, 64))
def test_aggregators_have_just_enough_interfaces_for_a_tree(workers: int, interfaces: int) -> None:
    # a tree of m aggregators and N leaves has N + m - 1 edges: m E >= N + 2 (m - 1)
    count = tree_aggregators(workers, aggregator_interfaces=interfaces)
    assert count * interfaces >= workers + 2 * (count - 1)
    assert count == 1 or (count - 1) * interfaces < workers + 2 * (count - 2)


def test_partial_aggregation_gains_from_the_first_aggregator_on() -> None:
    links = {"workers": 128, "interfaces": 4, "aggregator_interfaces": 4}
    rings = full_tree_bandwidth(aggregators=0, **links)
    # 4 rings: N D / (2 (N - 1)) of a link; a full tree must wait for the 63rd aggregator
    assert rings == pytest.approx(128 * 4 / 254)
    assert full_tree_bandwidth(aggregators=62, **links) == rings
    assert full_tree_bandwidth(aggregators=63, **links) > rings
    assert partial_bandwidth(aggregators=1, **links) > rings
    # four full trees, 252 aggregators: every worker sends its array once over 4 interfaces
    assert partial_bandwidth(aggregators=252, **links) == full_tree_bandwidth(aggregators=252, **links) == 4


@given(
    workers=st.integers(2, 2048),
    interfaces=st.integers(1, 16),
    aggregators=st.integers(0, 5000),
    aggregator_interfaces=st.integers(3, 64),
)
def test_partial_aggregation_is_never_worse_than_full_trees(**sizes: int) -> None:
    assert partial_bandwidth(**sizes) >= full_tree_bandwidth(**sizes) * (1 - 1e-12)


@given(st.integers(2, 2048), st.integers(1, 16))
def test_without_aggregators_both_are_the_time_of_the_rings(workers: int, interfaces: int) -> None:
    algbw = partial_bandwidth(workers=workers, interfaces=interfaces, aggregators=0, aggregator_interfaces=4)
    assert 1 / algbw == pytest.approx(transfer_time_s(1.0, workers=workers, interfaces=interfaces, bytes_per_s=1.0))


def test_what_cannot_be_cabled_is_refused_with_all_reasons() -> None:
    with pytest.raises(InputError, match="0 workers; 2 interfaces a device, at least 3"):
        tree_aggregators(0, aggregator_interfaces=2)
    with pytest.raises(InputError, match="1 interfaces"):
        streamed_transfers(3, interfaces=1)
    assert streamed_transfers(2, interfaces=1) == 1
