"""The size of an input that the first product behind the convolutions fixes: never below the true one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.frameworks.own_models.layers import make_layer
from opsk_jobcheck.scripts.frameworks.own_models.training.input_side import find_input_side
from opsk_jobcheck.scripts.frameworks.own_models.values import Module


def make(*rows: tuple[str, tuple[int, ...]]) -> list[Module]:
    layers = [make_layer(name, list(given), {}) for name, given in rows]
    return [layer for layer in layers if layer is not None]


ATARI = make(
    ("Conv2d", (4, 32, 8, 4)), ("Conv2d", (32, 64, 4, 2)), ("Conv2d", (64, 64, 3, 1)), ("Linear", (64 * 7 * 7, 512))
)


def test_convolutions_without_padding_read_more_than_their_strides_tell() -> None:
    assert 84 <= find_input_side(ATARI, set()) <= 140


@pytest.mark.parametrize("name", ["max_pool2d", "mean", "cat", "interpolate", "max"])
def test_functions_that_change_the_places_leave_it_open(name: str) -> None:
    assert find_input_side(ATARI, {"relu", name}) == 0


@pytest.mark.parametrize(
    "rows",
    [
        [("Conv1d", (3, 1024, 1)), ("Linear", (1024, 512))],  # the maximum over all points
        [("Conv1d", (3, 64, 5)), ("Linear", (128, 512))],  # mean and deviation
        [("Conv2d", (3, 64, 3)), ("AdaptiveAvgPool2d", (7,)), ("Linear", (64 * 49, 10))],
        [("Conv2d", (3, 64, 3)), ("Linear", (65 * 50, 10))],
        [("Linear", (784, 10))],
    ],
)
def test_a_product_that_may_read_no_place_each_tells_nothing(rows: list[tuple[str, tuple[int, ...]]]) -> None:
    assert find_input_side(make(*rows), set()) == 0


STEPS = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(0, 3))


@given(st.integers(16, 200), st.integers(16, 200), st.lists(STEPS, min_size=1, max_size=4))
def test_the_area_is_at_least_that_of_any_input_that_fits(
    height: int, width: int, steps: list[tuple[int, int, int]]
) -> None:
    rows: list[tuple[str, tuple[int, ...]]] = []
    sides = [height, width]
    for kernel, stride, padding in steps:
        rows.append(("Conv2d", (4, 4, kernel, stride, padding)))
        sides = [(row + 2 * padding - kernel) // stride + 1 for row in sides]
        if min(sides) < 1:
            return
    rows.append(("Linear", (4 * sides[0] * sides[1], 3)))
    side = find_input_side(make(*rows), set())
    if max(height, width) <= 2 * min(height, width):
        assert side == 0 or side**2 >= height * width
