"""Schedules as given tables: lookup by size, and the alpha-beta time of SCCL's paper."""

from __future__ import annotations

import pytest

from opsk.costmodel.collectives.algorithms import Collective
from opsk.costmodel.collectives.synthesized import Schedule, ScheduleTable
from opsk.errors import InputError

# Cai et al. 2021, table 4 (from memory): all-gather on a DGX-1, the latency-optimal and the bandwidth-optimal schedule;
# 7/6 is the bound itself: what 7 others contribute over the 6 NVLinks of a V100.
DGX1 = {"collective": Collective.ALL_GATHER, "ranks": 8, "network": "dgx-1", "source": "SCCL"}
QUICK = Schedule(steps=2, rounds=2, chunks=1, max_bytes=100e3, **DGX1)
LEAN = Schedule(steps=3, rounds=7, chunks=6, min_bytes=100e3, **DGX1)
TABLE = ScheduleTable(schedules=(QUICK, LEAN))
NVLINK = {"hop_s": 0.7e-6, "bytes_per_s": 25e9}


def test_the_size_picks_the_schedule() -> None:
    found = [TABLE.lookup(Collective.ALL_GATHER, ranks=8, network="dgx-1", size_bytes=size) for size in (1, 1e5, 1e9)]
    assert found == [QUICK, LEAN, LEAN]


def test_fewer_steps_win_for_small_arrays_and_fewer_rounds_for_large_ones() -> None:
    # 2 alpha + 2 K/b = 3 alpha + 7/6 K/b at K = 6/5 alpha b = 21 kB
    assert QUICK.time_s(20e3, **NVLINK) < LEAN.time_s(20e3, **NVLINK)
    assert QUICK.time_s(22e3, **NVLINK) > LEAN.time_s(22e3, **NVLINK)
    assert QUICK.time_s(21e3, **NVLINK) == pytest.approx(LEAN.time_s(21e3, **NVLINK))


def test_a_size_without_schedule_is_refused_with_what_there_is() -> None:
    table = ScheduleTable(schedules=(QUICK,))
    with pytest.raises(InputError, match="no schedule for a all_gather of 1e\\+06 bytes") as refusal:
        table.lookup(Collective.ALL_GATHER, ranks=8, network="dgx-1", size_bytes=1e6)
    assert "0 up to 100000" in (refusal.value.hint or "")


def test_a_schedule_that_moves_nothing_is_refused_with_all_reasons() -> None:
    with pytest.raises(InputError, match="chunks is 0; 1 rounds are fewer than 2 steps; no size from 5 up to 5"):
        Schedule(steps=2, rounds=1, chunks=0, min_bytes=5, max_bytes=5, **DGX1)
