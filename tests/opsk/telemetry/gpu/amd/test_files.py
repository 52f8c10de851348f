"""Is the firmware's table read where C puts its fields, in base units, and an unknown version left alone?"""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.amd.files import parse_table
from tests.fakes.amdgpu_tree import Table13, Table14, Table15, Table17

ENERGY = 2**16 * 1234
"""1234 J in the accumulator's units of 2**-16 J (kgd_pp_interface.h)."""


def test_the_fakes_are_as_large_as_the_kernels_structures() -> None:
    # Sizes of the structures compiled from kgd_pp_interface.h.
    assert [ctypes.sizeof(table) for table in (Table13, Table14, Table15)] == [120, 288, 360]


def test_a_table_of_mi200_is_read() -> None:
    table = parse_table(
        Table13().packed(
            3,
            {
                **{"edge": 50, "hotspot": 64, "memory": 57, "gfx": 90, "umc": 45, "power": 400, "energy": ENERGY},
                **{"current": [1700, 900, 1300], "pcie_width": 16, "hbm": [59, 60, 58], "causes": 1 << 36 | 1},
            },
        )
    )
    assert table is not None
    assert table.version == "1.3"
    assert table.temperatures_c == {"gpu": 50.0, "junction": 64.0, "memory": 60.0}
    assert (table.power_w, table.energy_j, table.gpu_ratio, table.memory_ratio) == (400.0, 1234.0, 0.9, 0.45)
    assert table.clocks_hz == {"graphics": 1.7e9, "soc": 0.9e9, "memory": 1.3e9}
    assert table.pcie_width == 16
    # Bit 0 is a power limit, bit 36 the temperature of the hottest spot (amdgpu_smu.h).
    assert table.throttle == {"sw_power_cap", "hw_thermal_slowdown"}


def test_the_energy_of_a_gpu_without_hbm_has_no_known_unit_in_1_3() -> None:
    table = parse_table(Table13().packed(3, {"energy": ENERGY, "power": 100}))
    assert table is not None
    assert table.energy_j is None


@pytest.mark.parametrize(("kind", "content"), [(Table14, 4), (Table15, 5)])
def test_tables_of_mi300_are_read(kind: type[Table14] | type[Table15], content: int) -> None:
    table = parse_table(
        kind().packed(
            content,
            {
                **{"hotspot": 64, "memory": 57, "power": 700, "gfx": 100, "umc": 45, "energy": ENERGY, "replays": 3},
                **{"rollovers": 1, "recoveries": 2, "xgmi_read": [10, 0], "xgmi_written": [20], "gfxclk": [2000, 2100]},
                **{"socclk": [900], "uclk": 1300, "pcie_width": 16},
            },
        )
    )
    assert table is not None
    assert table.temperatures_c == {"junction": 64.0, "memory": 57.0}
    assert (table.power_w, table.energy_j, table.gpu_ratio) == (700.0, 1234.0, 1.0)
    assert table.pcie_counters == {"replays": 3, "replay_rollovers": 1, "recoveries": 2}
    # The firmware counts KiB.
    assert (table.xgmi_read_bytes, table.xgmi_written_bytes) == ({0: 10240, 1: 0}, {0: 20480})
    assert table.clocks_hz == {"graphics": 2.1e9, "soc": 0.9e9, "memory": 1.3e9}
    assert table.throttle is None


@pytest.mark.parametrize("content", [7, 8])
def test_the_head_of_newer_tables_is_read(content: int) -> None:
    table = parse_table(Table17().packed(content, {"hotspot": 70, "power": 900, "energy": ENERGY}))
    assert table is not None
    assert (table.power_w, table.energy_j, table.temperatures_c) == (900.0, 1234.0, {"junction": 70.0})


@pytest.mark.parametrize("revision", [(1, 2), (1, 9), (2, 3), (3, 0)])
def test_a_version_that_is_not_known_is_not_guessed_at(revision: tuple[int, int]) -> None:
    data = bytearray(Table15().packed(5, {"power": 700}))
    data[2], data[3] = revision
    assert parse_table(bytes(data)) is None


@pytest.mark.parametrize("kind", [Table13, Table14, Table15])
def test_all_ones_are_no_values(kind: type[Table13] | type[Table14] | type[Table15]) -> None:
    table = parse_table(kind().packed({Table13: 3, Table14: 4, Table15: 5}[kind], {}))
    assert table is not None
    assert (table.power_w, table.energy_j, table.gpu_ratio, table.throttle, table.pcie_width) == (None,) * 5
    assert not table.temperatures_c
    assert not table.clocks_hz
    assert not table.pcie_counters
    assert not table.xgmi_read_bytes


@given(st.binary(max_size=400), st.integers(0, 9))
def test_any_bytes_are_a_table_or_none(data: bytes, content: int) -> None:
    parse_table(data)
    parse_table(len(data).to_bytes(2, "little") + bytes([1, content]) + data)


def test_a_table_that_is_cut_off_is_none() -> None:
    data = Table15().packed(5, {"power": 700})
    assert all(parse_table(data[:length]) is None for length in range(len(data)))
