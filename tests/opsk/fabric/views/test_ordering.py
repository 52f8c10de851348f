"""Boxes are put in an order in which fewer lines cross, and left alone where that gains little."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.views.tree import arrange_boxes, count_crossings

_EDGES = st.lists(st.tuples(st.integers(10, 15), st.integers(0, 5), st.just(1)), unique=True, max_size=20)
_LEVELS = [list(range(6)), list(range(10, 16))]


@given(_EDGES)
def test_crossings_are_those_of_every_two_lines(edges: list[tuple[int, int, int]]):
    crossing = sum(
        (low - other_low) * (high - other_high) < 0
        for (low, high, _), (other_low, other_high, _) in combinations(edges, 2)
    )
    assert count_crossings(_LEVELS, edges) == crossing


@given(_EDGES)
def test_no_order_is_made_worse_and_no_box_is_lost(edges: list[tuple[int, int, int]]):
    levels = arrange_boxes(_LEVELS, edges)
    assert [sorted(level) for level in levels] == _LEVELS
    assert count_crossings(levels, edges) <= count_crossings(_LEVELS, edges)


def test_a_twisted_ladder_is_untwisted():
    edges = [(10 + rung, 5 - rung, 1) for rung in range(6)]
    assert count_crossings(arrange_boxes(_LEVELS, edges), edges) == 0


def test_where_all_is_joined_with_all_names_stay_in_order():
    edges = [(low, high, 1) for low in range(10, 16) for high in range(6) if (low, high) != (12, 0)]
    assert arrange_boxes(_LEVELS, edges) == _LEVELS
