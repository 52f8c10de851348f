"""The rail-only paper's equations 1 to 3 (arXiv 2307.12169) and the numbers that it states of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.collectives.rail_only import (
    all_gather_s,
    all_gather_shares,
    forwarding_slowdown,
    rail_only_all_to_all_s,
    rail_optimized_all_to_all_s,
)

DGX_A100 = {"hb_bytes_per_s": 300e9, "nic_bytes_per_s": 25e9}
"""2,400 and 200 Gbit/s a GPU and direction."""
DGX_H100 = {"hb_bytes_per_s": 450e9, "nic_bytes_per_s": 50e9}
SIDES = st.integers(1, 256)


def test_98_percent_of_an_all_gather_on_two_gh200_stay_in_the_domain() -> None:
    # paper, section III-B: data-parallel groups of 32 GPUs in each of 2 domains, 98 % and 2 %
    nic, hb = all_gather_shares(inside=32, across=2)
    assert hb / (nic + hb) == pytest.approx(0.984, abs=0.0005)
    assert nic / (nic + hb) == pytest.approx(0.016, abs=0.0005)


def test_equation_1() -> None:
    # x = 8, y = 16: 15 D/(128 C_nic) + 7 D/(8 C_hb)
    expected = 15 * 8e9 / (8 * 16 * 25e9) + 7 * 8e9 / (8 * 300e9)
    assert all_gather_s(8e9, inside=8, across=16, **DGX_A100) == pytest.approx(expected)


@given(SIDES, st.integers(1, 512))
def test_one_level_alone_is_a_ring(ranks: int, size: int) -> None:
    # equation 1 with y = 1, and with x = 1
    ring = (ranks - 1) / ranks * size
    assert all_gather_s(size, inside=ranks, across=1, **DGX_A100) == pytest.approx(ring / 300e9)
    assert all_gather_s(size, inside=1, across=ranks, **DGX_A100) == pytest.approx(ring / 25e9)


@pytest.mark.parametrize(("platform", "printed"), [(DGX_A100, 0.082), (DGX_H100, 0.112)])
def test_forwarding_costs_what_the_paper_prints(platform: dict[str, float], printed: float) -> None:
    # section IV-B: 8.2 and 11.2 %; the ratio of the bandwidths is 8.33 and 11.11, the paper's text has no other numbers
    assert forwarding_slowdown(**platform) == pytest.approx(printed, abs=0.002)


@pytest.mark.parametrize(
    ("inside", "across", "a100", "h100"),
    [(8, 16, 0.0778, 0.1037), (8, 128, 0.0735, 0.0980), (256, 128, 0.0837, 0.1115), (256, 16, 0.0885, 0.1181)],
)
def test_exact_slowdown_of_equations_2_and_3(inside: int, across: int, a100: float, h100: float) -> None:
    # y (x - 1) C_nic / (x (y - 1) C_hb) by hand; no grid of these gives the paper's 8.2 and 11.2 % together
    for platform, expected in ((DGX_A100, a100), (DGX_H100, h100)):
        direct = rail_optimized_all_to_all_s(1e6, inside=inside, across=across, **platform)
        forwarded = rail_only_all_to_all_s(1e6, inside=inside, across=across, **platform)
        assert forwarded / direct - 1 == pytest.approx(expected, abs=0.0001)


@given(SIDES, SIDES)
def test_forwarding_is_never_faster(inside: int, across: int) -> None:
    grid = {"inside": inside, "across": across, **DGX_H100}
    assert rail_only_all_to_all_s(1e6, **grid) >= rail_optimized_all_to_all_s(1e6, **grid)
