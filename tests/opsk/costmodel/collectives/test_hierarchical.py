"""Collectives of the step-time model: rings that stream through domains and NICs, and groups of any stride."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.collectives.hierarchical import (
    NVLS_FRACTION,
    Algorithm,
    Forwarding,
    all_gather_s,
    all_reduce_s,
    all_to_all,
    build_group,
    hops_inside,
    point_to_point,
)
from opsk.costmodel.collectives.networks import rail_only_all_to_all_s, rail_optimized_all_to_all_s
from opsk.costmodel.efficiency.efficiency import Efficiency, LinkEfficiency
from opsk.costmodel.machine import Machine, build_machine
from opsk.hardware.spec import ClusterSpec
from tests.fakes.training_runs import a100_cluster

IDEAL = LinkEfficiency(hb_fraction=1.0, nic_fraction=1.0, hb_hop_s=0.0, nic_hop_s=0.0)
SLOW = LinkEfficiency(hb_fraction=1.0, nic_fraction=1.0, hb_hop_s=1e-6, nic_hop_s=1e-5)
SIZE = np.array([8e9])
POWERS = st.integers(0, 10).map(lambda power: 2**power)


def _machine(links: LinkEfficiency = IDEAL, cluster: ClusterSpec | None = None) -> Machine:
    return build_machine(cluster or a100_cluster(), np.array([2]), Efficiency(links=links))


def _nvl72() -> ClusterSpec:
    """Return nodes of four GPUs, 18 of which share one NVLink domain."""
    cluster = a100_cluster()
    node = replace(cluster.node, gpus=4, nics=4, hb_domain_gpus=72)
    return replace(cluster, node=node)


def _ranks(count: float) -> np.ndarray:
    return np.array([float(count)])


def _all_reduce(machine: Machine, ranks: float, *, stride: float = 1.0, algorithm: Algorithm = Algorithm.AUTO) -> float:
    group = build_group(machine, stride=stride, size=_ranks(ranks))
    return float(all_reduce_s(machine, group, SIZE, 1.0, algorithm)[0])


def _ring_s(ranks: int, *, hop_s: float, bytes_per_s: float) -> float:
    """Return the time of a ring all-reduce of 8 GB on one level (Patarasuk and Yuan 2009)."""
    return 2 * (ranks - 1) * (hop_s + 8e9 / ranks / bytes_per_s)


@pytest.mark.parametrize(
    ("stride", "ranks", "inside", "across"),
    [
        (1, 8, 8, 1),  # one domain
        (1, 128, 8, 16),  # all ranks of 16 domains
        (4, 16, 2, 8),  # two of each domain: tp 4
        (8, 16, 1, 16),  # one of each: tp 8
        (64, 4, 1, 4),  # one of every eighth domain: pp
        (1, 12, 6, 2),  # spread evenly over as few as hold them
        (3, 1, 1, 1),
    ],
)
def test_a_group_lies_over_as_few_domains_as_hold_it(stride: float, ranks: float, inside: float, across: float) -> None:
    group = build_group(_machine(), stride=stride, size=_ranks(ranks))
    assert (group.inside[0], group.across[0]) == (inside, across)


def test_128_ranks_are_two_racks_of_64_on_nvl72() -> None:
    group = build_group(_machine(cluster=_nvl72()), stride=1.0, size=_ranks(128))
    assert (group.inside[0], group.across[0]) == (64, 2)


def test_a_domain_of_many_nodes_keeps_its_traffic_off_the_nics() -> None:
    # 64 ranks on 16 nodes of one NVL72: the ring of NVLink, 2 x 63/64 x 8 GB at 300 GB/s
    assert _all_reduce(_machine(cluster=_nvl72()), 64) == pytest.approx(2 * 63 / 64 * 8e9 / 300e9)


@given(st.integers(1, 8))
def test_one_domain_is_the_ring_of_nvlink(ranks: int) -> None:
    machine = _machine(SLOW)
    ring = _ring_s(ranks, hop_s=1e-6, bytes_per_s=300e9)
    assert _all_reduce(machine, ranks) == pytest.approx(ring)


@given(st.integers(1, 512))
def test_ranks_a_domain_apart_are_the_ring_of_their_nics(ranks: int) -> None:
    machine = _machine(SLOW)
    ring = _ring_s(ranks, hop_s=1e-5, bytes_per_s=25e9)
    assert _all_reduce(machine, ranks, stride=8.0, algorithm=Algorithm.RING) == pytest.approx(ring)


def test_a_streamed_ring_has_the_busbw_of_its_slower_level() -> None:
    # DGX A100 with 8 HDR NICs, 200 GB/s: NVIDIA measures 192 GB/s of all-reduce busbw (NCCL issue 812), 96 % of them
    cluster = a100_cluster()
    machine = _machine(replace(IDEAL, hb_fraction=235 / 300, nic_fraction=0.96), cluster)
    busbw = 8e9 / _all_reduce(machine, 128) * 2 * 127 / 128
    assert busbw == pytest.approx(192e9)


def test_four_nics_for_eight_gpus_halve_it() -> None:
    # 40 H100 on nodes with 4 x 400G, 200 GB/s: 190 GB/s of busbw by ring, 150 by tree (NCCL issue 1368)
    half = _machine(cluster=a100_cluster(nics=4))
    assert _all_reduce(half, 40, algorithm=Algorithm.RING) == pytest.approx(2 * 39 / 40 * 8e9 / 100e9)
    assert _all_reduce(half, 40, algorithm=Algorithm.TREE) > _all_reduce(half, 40, algorithm=Algorithm.RING)


def test_a_tree_on_two_nodes_beats_the_nics_and_on_three_no_more() -> None:
    # "Tree figures exceed the theoretical limit of the network cards" on two nodes only (NCCL issues 812 and 946):
    # 100 GB/s of NICs a node, NVLink far from full
    machine = _machine(cluster=a100_cluster(nics=4))
    two, three = (8e9 / _all_reduce(machine, ranks) * 2 * (ranks - 1) / ranks for ranks in (16, 24))
    assert 100e9 < two <= 200e9
    assert three <= 100e9 * (1 + 1e-9)


def test_small_arrays_on_many_domains_take_the_tree() -> None:
    # latency: ring 2 ((512 - 64) 1 us + 63 x 10 us), tree 2 (7 x 1 us + 6 x 10 us)
    machine = _machine(SLOW)
    group = build_group(machine, stride=1.0, size=_ranks(512))
    nothing = np.zeros(1)
    assert all_reduce_s(machine, group, nothing, 1.0, Algorithm.RING)[0] == pytest.approx(2 * (448e-6 + 630e-6))
    assert all_reduce_s(machine, group, nothing, 1.0)[0] == pytest.approx(2 * (7e-6 + 60e-6))


def test_switches_that_reduce_halve_the_bytes_of_the_nics() -> None:
    # one rank a domain: K bytes against 2(N-1)/N K, and one step against 2(N-1)
    machine = _machine()
    ring = _all_reduce(machine, 64, stride=8.0, algorithm=Algorithm.RING)
    assert ring / _all_reduce(machine, 64, stride=8.0, algorithm=Algorithm.SHARP) == pytest.approx(2 * 63 / 64)
    slow, nothing = _machine(SLOW), np.zeros(1)
    for ranks in (2, 512):
        group = build_group(slow, stride=8.0, size=_ranks(ranks))
        assert all_reduce_s(slow, group, nothing, 1.0, Algorithm.SHARP)[0] == pytest.approx(1e-5)


def test_auto_takes_the_switches_only_in_the_rows_that_have_them() -> None:
    machine = _machine()
    group = build_group(machine, stride=8.0, size=np.full(2, 64.0))
    times = all_reduce_s(machine, group, SIZE, 1.0, in_network=np.array([False, True]))
    ring, sharp = (_all_reduce(machine, 64, stride=8.0, algorithm=name) for name in (Algorithm.RING, Algorithm.SHARP))
    np.testing.assert_allclose(times, [ring, sharp])


def test_groups_of_one_axis_share_the_nics_of_their_node() -> None:
    # tp 8: eight groups of 16 run at once, each rank with its own NIC; with four NICs each rank has half of one
    gather = [
        all_gather_s(machine, build_group(machine, stride=8.0, size=_ranks(16)), SIZE, 1.0)[0]
        for machine in (_machine(), _machine(cluster=a100_cluster(nics=4)))
    ]
    assert gather == [pytest.approx(15 / 16 * 8e9 / 25e9), pytest.approx(15 / 16 * 8e9 / 12.5e9)]


@given(st.integers(1, 4096))
def test_latency_inside_a_domain_walks_a_node_and_then_doubles(ranks: int) -> None:
    # x - 1 up to 8; 7 more for each eightfold: 14 for 64, 18.7 for 256; never more than a walk
    hops, more = (float(hops_inside(_ranks(count))[0]) for count in (ranks, ranks + 1))
    assert hops <= ranks - 1 + 1e-9
    assert hops < more
    if ranks <= 8:
        assert hops == pytest.approx(ranks - 1)
    else:
        assert float(hops_inside(_ranks(8 * ranks))[0]) == pytest.approx(hops + 7)


def test_a_large_domain_has_little_latency_and_the_same_bandwidth() -> None:
    # 64 ranks of one NVL72, 14 hops a turn; two turns
    machine = _machine(SLOW, _nvl72())
    group = build_group(machine, stride=1.0, size=_ranks(64))
    assert all_reduce_s(machine, group, np.zeros(1), 1.0)[0] == pytest.approx(2 * 14e-6)
    expected = 2 * 63 / 64 * 8e9 / 300e9 + 2 * 14e-6
    assert all_reduce_s(machine, group, SIZE, 1.0)[0] == pytest.approx(expected)


@pytest.mark.parametrize(("ranks", "algbw"), [(5, 258e9), (6, 265e9), (7, 270e9), (8, 273e9)])
def test_nvlink_sharp_has_the_measured_algbw_of_h100_at_one_rate(ranks: int, algbw: float) -> None:
    # NCCL issue 1455 (H100 SXM, NCCL_ALGO=NVLS, 2 to 4 GB); 309e9 on the wire explains all four, 69 % of 450e9
    fraction = 309e9 / NVLS_FRACTION / 300e9
    machine = _machine(replace(IDEAL, hb_fraction=fraction))
    assert 8e9 / _all_reduce(machine, ranks, algorithm=Algorithm.NVLS) == pytest.approx(algbw, rel=0.01)


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_one_rank_has_nothing_to_say(algorithm: Algorithm) -> None:
    machine = _machine(SLOW)
    group = build_group(machine, stride=8.0, size=_ranks(1))
    assert all_reduce_s(machine, group, SIZE, 5, algorithm)[0] == 0
    assert all_gather_s(machine, group, SIZE, 5)[0] == 0
    for forwarding in Forwarding:
        assert all_to_all(machine, group, SIZE, 5, forwarding).total[0] == 0


@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.TREE, Algorithm.SHARP, Algorithm.AUTO])
@given(ranks=POWERS, stride=st.sampled_from([1.0, 2.0, 8.0, 64.0]), growth=st.floats(1.0, 100.0))
def test_time_grows_with_bytes_and_ranks(algorithm: Algorithm, ranks: int, stride: float, growth: float) -> None:
    machine = _machine(SLOW)
    few, many = (build_group(machine, stride=stride, size=_ranks(count)) for count in (ranks, 2 * ranks))
    less, more = (all_reduce_s(machine, few, SIZE * factor, 3.0, algorithm)[0] for factor in (1.0, growth))
    assert more >= less
    if stride >= 8 or 2 * ranks * stride <= 8:  # on one level: more domains bring more NICs
        assert all_reduce_s(machine, many, SIZE, 3.0, algorithm)[0] >= less * (1 - 1e-12)


@given(ranks=POWERS, stride=st.sampled_from([1.0, 4.0, 16.0]), size=st.floats(0.0, 1e12))
def test_an_all_reduce_ring_is_two_turns(ranks: int, stride: float, size: float) -> None:
    machine = _machine(SLOW)
    group = build_group(machine, stride=stride, size=_ranks(ranks))
    whole = all_reduce_s(machine, group, np.array([size]), 2.0, Algorithm.RING)
    assert whole[0] == pytest.approx(2 * all_gather_s(machine, group, np.array([size]), 2.0)[0])


@given(st.lists(st.tuples(POWERS, st.sampled_from([1.0, 2.0, 8.0])), min_size=1, max_size=8))
def test_a_table_says_what_its_rows_say(rows: list[tuple[int, float]]) -> None:
    machine = _machine(SLOW)
    sizes, strides = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    table = build_group(machine, stride=strides, size=sizes)
    many = all_reduce_s(machine, table, np.full(len(rows), 1e6), 1.0)
    for index, (size, stride) in enumerate(rows):
        group = build_group(machine, stride=stride, size=_ranks(size))
        assert many[index] == pytest.approx(all_reduce_s(machine, group, np.array([1e6]), 1.0)[0])


@given(st.integers(2, 64))
def test_all_to_alls_are_equations_2_and_3_of_the_rail_only_paper(across: int) -> None:
    machine = _machine()
    group = build_group(machine, stride=1.0, size=_ranks(8 * across))
    grid = {"inside": 8, "across": across, "hb_bytes_per_s": 300e9, "nic_bytes_per_s": 25e9}
    pair_bytes = SIZE[0] / (8 * across)
    direct, streamed, phased = (all_to_all(machine, group, SIZE, 1.0, way).total[0] for way in Forwarding)
    assert direct == pytest.approx(rail_optimized_all_to_all_s(pair_bytes, **grid))
    assert phased == pytest.approx(rail_only_all_to_all_s(pair_bytes, **grid))
    assert direct <= streamed <= phased


def test_forwarding_puts_messages_to_one_domain_together() -> None:
    # 4 domains of 8: 7 neighbours; 24 messages to strangers, or one to each of 3 domains
    machine, nothing = _machine(SLOW), np.zeros(1)
    group = build_group(machine, stride=1.0, size=_ranks(32))
    assert all_to_all(machine, group, nothing, 1.0, Forwarding.DIRECT).total[0] == pytest.approx(7e-6 + 24e-5)
    assert all_to_all(machine, group, nothing, 1.0, Forwarding.PXN).total[0] == pytest.approx(7e-6 + 3e-5)


def test_a_message_takes_the_link_of_its_distance() -> None:
    strides = np.array([4.0, 8.0])
    taken = point_to_point(
        _machine(), stride=strides, size_bytes=np.array([3e9, 3e9]), calls=np.array([1.0, 2.0])
    ).total
    np.testing.assert_allclose(taken, [0.01, 0.24])


def test_a_pipeline_longer_than_a_domain_waits_for_the_boundary() -> None:
    # stride 4: two stages a domain; the second sends out with 4 of 8 NICs idle, or all 4 of 4 NICs its own
    message = {"stride": _ranks(4), "size_bytes": np.array([3e9]), "calls": _ranks(1)}
    within = point_to_point(_machine(), ranks=_ranks(2), **message).total
    beyond = point_to_point(_machine(), ranks=_ranks(4), **message).total
    fewer_nics = point_to_point(_machine(cluster=a100_cluster(nics=4)), ranks=_ranks(4), **message).total
    np.testing.assert_allclose([within[0], beyond[0], fewer_nics[0]], [3e9 / 300e9, 3e9 / 25e9, 3e9 / 25e9])


def test_half_the_nics_give_half_the_fabric() -> None:
    half = _machine(cluster=a100_cluster(nics=4))
    assert half.nic_bytes_per_s == _machine().nic_bytes_per_s / 2


@pytest.mark.parametrize(
    ("size", "ranks", "domains"),
    [
        (4, 64, 1),  # two groups fill a node
        (3, 8, 1),  # nothing beyond the node
        (3, 24, 2),  # ranks 6, 7 and 8: two on the first node, one on the second
        (6, 24, 2),  # ranks 6 to 11
        (6, 6, 1),  # the only group
        (12, 96, 2),  # 12 to 23 begins in the middle of a node and ends with one
        (10, 80, 2),  # begins at even places only: 30 to 39 is inside of two nodes
        (11, 88, 3),  # 22 to 32: two ranks of the third node, all of the fourth, one of the fifth
        (16, 64, 2),
    ],
)
def test_groups_that_do_not_divide_a_node_lie_astride(size: int, ranks: int, domains: int) -> None:
    group = build_group(_machine(), stride=1.0, size=_ranks(size), ranks=float(ranks))
    assert group.across[0] == domains
    starts = range(0, ranks - size + 1, size)
    spans = max((start + size - 1) // 8 - start // 8 + 1 for start in starts)  # counted one by one
    assert spans == domains


def test_neighbours_on_racks_need_not_lie_astride() -> None:
    # 64 of 72 GPUs of a rack are allocated, so groups of 16 divide what is used of it
    group = build_group(_machine(cluster=_nvl72()), stride=1.0, size=_ranks(16), ranks=128.0)
    assert group.across[0] == 1
