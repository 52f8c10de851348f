from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk import units

SIZES = st.floats(min_value=0, max_value=1e18)


def test_an_ndr_port_moves_50_gigabytes_a_second() -> None:
    assert units.gbit_per_s(400) == 50e9  # 400e9 / 8


def test_a_gib_is_binary_and_a_gb_is_decimal() -> None:
    assert units.GIB == 1073741824  # 2**30
    assert units.GB == 1000000000


@given(SIZES)
def test_speeds_come_back(speed: float) -> None:
    assert units.as_gbit_per_s(units.gbit_per_s(speed)) == pytest.approx(speed)


@given(SIZES)
def test_sizes_come_back(size: float) -> None:
    assert units.as_gib(size * units.GIB) == pytest.approx(size)


def test_hours_become_seconds():
    assert units.hours(1.5) == 5400.0
