"""Reduction servers beside a ring: limits, and what Optcast reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.collectives.aggregation import all_reduce_s, server_share
from opsk.errors import InputError

NIC = {"worker_bytes_per_s": 25e9, "server_bytes_per_s": 25e9}
SIZES = st.integers(2, 512)


def test_four_servers_beside_four_workers_make_the_all_reduce_half_as_fast_again() -> None:
    # Optcast's README: "a 50 % speed improvement in NCCL's AllReduce ... under certain conditions", measured with 4 GPU
    # servers and 4 reduction servers (docs/eval_results.md): 2(N - 1)/N = 1.5
    with_servers, ring = (all_reduce_s(1e9, workers=4, servers=count, **NIC) for count in (4, 0))
    assert ring / with_servers == pytest.approx(1.5)


@given(SIZES)
def test_no_server_is_a_ring_and_enough_send_the_array_once(workers: int) -> None:
    assert all_reduce_s(25e9, workers=workers, servers=0, **NIC) == pytest.approx(2 * (workers - 1) / workers)
    assert all_reduce_s(25e9, workers=workers, servers=workers, **NIC) == pytest.approx(1.0)


@given(SIZES, st.integers(1, 511), st.floats(1e9, 100e9))
def test_workers_and_servers_are_done_together(workers: int, servers: int, server_rate: float) -> None:
    rates = {"worker_bytes_per_s": 25e9, "server_bytes_per_s": server_rate}
    share = server_share(workers=workers, servers=servers, **rates)
    whole_s = all_reduce_s(1e9, workers=workers, servers=servers, **rates)
    servers_s = workers * share * 1e9 / (servers * server_rate)
    assert servers_s <= whole_s * (1 + 1e-9)
    assert share == 1 or servers_s == pytest.approx(whole_s)


@given(SIZES, st.integers(0, 511))
def test_one_more_server_never_hurts(workers: int, servers: int) -> None:
    few, more = (all_reduce_s(1e9, workers=workers, servers=count, **NIC) for count in (servers, servers + 1))
    assert more <= few * (1 + 1e-12)


def test_one_worker_pays_nothing() -> None:
    assert all_reduce_s(1e9, workers=1, servers=0, **NIC) == 0


def test_impossible_servers_are_refused_with_all_reasons() -> None:
    with pytest.raises(InputError, match="0 workers, -1 servers, 0 bytes/s"):
        server_share(workers=0, servers=-1, worker_bytes_per_s=0.0, server_bytes_per_s=1.0)
