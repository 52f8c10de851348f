"""Loads are told in steps and percent, and odd numbers do no harm."""

from __future__ import annotations

import math

import pytest

from opsk.fabric.views.marks import format_percent, max_load, scale_step


@pytest.mark.parametrize(
    ("load", "at", "said"),
    [
        (0.0, 0, "0%"),
        (0.001, 1, "< 1%"),
        (0.25, 1, "25%"),
        (0.2501, 2, "25%"),
        (0.998, 4, "> 99%"),
        (1.0, 4, "100%"),
        (1.001, 5, "> 100%"),
        (1.37, 5, "137%"),
        (math.inf, 5, "> 999%"),
    ],
)
def test_a_load_has_a_step_and_words(load: float, at: int, said: str):
    assert (scale_step(load), format_percent(load)) == (at, said)


def test_the_heaviest_of_links_leaves_out_what_is_unknown():
    loads = {("a", "b"): 0.4, ("b", "a"): math.nan, ("a", "c"): -1.0}
    assert max_load(loads, [("a", "b"), ("b", "a"), ("x", "y")]) == 0.4
    assert max_load(loads, [("a", "c")]) == 0.0
    assert max_load(loads, [("x", "y")]) is None
    assert max_load(None, [("a", "b")]) is None
