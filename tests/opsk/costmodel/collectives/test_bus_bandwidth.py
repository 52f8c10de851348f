"""busbw and algbw as doc/PERFORMANCE.md of NVIDIA/nccl-tests defines them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.collectives.algorithms import Algorithm, Collective, collective_s
from opsk.costmodel.collectives.bus_bandwidth import (
    bus_factor,
    busbw_bytes_per_s,
    in_network_wire_bytes_per_s,
    time_s,
)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        (Collective.ALL_REDUCE, 2 * 7 / 8),
        (Collective.REDUCE_SCATTER, 7 / 8),
        (Collective.ALL_GATHER, 7 / 8),
        (Collective.ALL_TO_ALL, 7 / 8),
        (Collective.BROADCAST, 1.0),
        (Collective.REDUCE, 1.0),
        (Collective.SEND_RECV, 1.0),
    ],
)
def test_factors_of_the_summary_for_8_ranks(collective: Collective, factor: float) -> None:
    assert bus_factor(collective, 8) == factor


@given(st.sampled_from(Collective), st.integers(2, 4096))
def test_busbw_of_a_ring_is_the_rate_of_its_links(collective: Collective, ranks: int) -> None:
    taken = collective_s(collective, ranks=ranks, size_bytes=1e9, hop_s=0.0, bytes_per_s=25e9, algorithm=Algorithm.RING)
    assert busbw_bytes_per_s(collective, ranks, size_bytes=1e9, time_s=float(taken)) == pytest.approx(25e9)


@given(st.sampled_from(Collective), st.integers(2, 4096), st.floats(1e6, 1e12))
def test_busbw_and_time_turn_into_each_other(collective: Collective, ranks: int, busbw: float) -> None:
    taken = time_s(collective, ranks, size_bytes=1e9, busbw_bytes_per_s=busbw)
    assert busbw_bytes_per_s(collective, ranks, size_bytes=1e9, time_s=taken) == pytest.approx(busbw)


def test_a_published_line_of_nccl_tests() -> None:
    # NVIDIA/nccl-tests issue 152, all_reduce_perf on 16 ranks: 134217728 B, 2698.7 us, algbw 49.73, busbw 93.25 GB/s
    got = busbw_bytes_per_s(Collective.ALL_REDUCE, 16, size_bytes=134217728, time_s=2698.7e-6)
    assert got / 1e9 == pytest.approx(93.25, abs=0.01)


def test_a_reducing_switch_carries_less_than_busbw_says() -> None:
    # 8 H100 with NVLink SHARP: algbw about 275 GB/s and busbw 480 (NCCL maintainer, nccl-tests issue 212), link 450
    wire = in_network_wire_bytes_per_s(8, size_bytes=275e9, time_s=1.0)
    busbw = busbw_bytes_per_s(Collective.ALL_REDUCE, 8, size_bytes=275e9, time_s=1.0)
    assert wire == pytest.approx(309e9, rel=0.002)
    assert busbw == pytest.approx(480e9, rel=0.005)
    assert wire < 450e9 < busbw
