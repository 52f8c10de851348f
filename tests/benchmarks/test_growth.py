"""How the cost grows: is the exponent that of the points, of the larger sizes, and is all of it in the picture?"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.found import Found
from benchmarks.growth import picture, power_law, upper_half
from benchmarks.machine import this_machine
from benchmarks.results import Result

SIZES = (1, 2, 8, 16, 100)


def measured(points: list[tuple[float, float]]) -> dict[str, Result]:
    """A result of which a curve went through these points."""
    found = Found(curves={"nodes": points})
    return {
        "fabric_read": Result(
            date="2026-11-22", machine=this_machine(), load=0.0, took_s=1.0, found=found, said=("done",)
        )
    }


@given(st.floats(-2, 3), st.floats(1e-6, 1e3))
def test_a_power_law_is_found_again(slope: float, factor: float) -> None:
    law = power_law([(size, factor * size**slope) for size in SIZES])
    assert law is not None
    assert law.slope == pytest.approx(slope, abs=1e-6)
    assert law.at(32) == pytest.approx(factor * 32**slope, rel=1e-6)


@pytest.mark.parametrize("points", [[], [(4, 1.0)], [(4, 1.0), (4, 2.0)], [(4, 0.0), (8, 1.0)]])
def test_too_few_sizes_or_no_cost_have_no_law(points: list[tuple[float, float]]) -> None:
    assert power_law(points) is None


def test_what_is_fixed_does_not_bend_the_exponent() -> None:
    # 10 ms whatever the size, and 1 ms for each: at 1 to 4 it hardly grows, at thousands in proportion
    points = [(size, 0.01 + 0.001 * size) for size in (1, 2, 4, 1000, 2000, 4000)]
    law = power_law(upper_half(points))
    assert law is not None
    assert law.slope == pytest.approx(1.0, abs=0.01)
    assert len(upper_half(points)) == 3
    assert upper_half(points[:2]) == points[:2]


def test_the_picture_names_axes_units_and_the_exponent() -> None:
    drawn = picture(measured([(size, 0.002 * size) for size in (100, 1000, 10000)]))
    words = [each.text for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"CPU time [s]", "nodes of 8 HCAs", "measured", "∝ n^1.00", "100", "10000", "0.1"} <= set(words)


def test_without_curves_the_picture_is_empty_and_still_a_picture() -> None:
    assert ElementTree.fromstring(picture({})).tag.endswith("svg")
