"""Allocations followed by hand, and what makes an allocation max-min fair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix

from opsk.planning.interference.contention import fair_levels

Demand = npt.NDArray[np.float64]
NEAR = 1e-9

demands = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.0, 0.1, 0.25, 0.5, 0.9, 1.0]))
)


def levels(demand: Demand | list[list[float]]) -> npt.NDArray[np.float64]:
    return fair_levels(csr_matrix(np.array(demand, dtype=np.float64)))


def test_two_that_want_all_of_a_link_get_half_each() -> None:
    assert levels([[1.0], [1.0]]).tolist() == [0.5, 0.5]


def test_who_wants_little_gives_way_as_much_as_who_wants_all() -> None:
    """1.1 of a link is wanted: both get 1/1.1 of what they want."""
    assert levels([[1.0], [0.1]]) == pytest.approx([1 / 1.1, 1 / 1.1])


def test_what_one_cannot_use_elsewhere_is_left_to_the_other() -> None:
    """Three want all of link 0: a third each. One of them wants link 1 too, where the fourth then has two thirds."""
    assert levels([[1, 0], [1, 0], [1, 1], [0, 1]]) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])


def test_who_shares_nothing_has_all() -> None:
    assert levels([[1, 0], [1, 0], [0, 1]]).tolist() == [0.5, 0.5, 1.0]


def test_nobody_and_nothing_wanted() -> None:
    assert levels(np.zeros((0, 3))).tolist() == []
    assert levels(np.zeros((2, 3))).tolist() == [1.0, 1.0]


def test_capacity_counts() -> None:
    found = fair_levels(csr_matrix(np.array([[4.0], [4.0]])), np.array([2.0]))
    assert found.tolist() == [0.25, 0.25]


@given(demands)
def test_no_link_is_over_capacity(demand: Demand) -> None:
    assert (levels(demand) @ demand <= 1.0 + NEAR).all()


@given(demands)
def test_no_level_can_rise_without_lowering_one_as_low(demand: Demand) -> None:
    """Whoever has less than all meets a full link on which nobody has a higher level: max-min, and work conserving."""
    found = levels(demand)
    used = found @ demand
    for entity, level in enumerate(found):
        if level < 1.0 - NEAR:
            mine = demand[entity] > 0
            full = mine & (used > 1.0 - 1e-6)
            assert any(found[demand[:, link] > 0].max() <= level + NEAR for link in np.flatnonzero(full))


@given(demands, st.randoms(use_true_random=False))
def test_the_order_of_entities_and_links_does_not_matter(demand: Demand, dice: object) -> None:
    entities, links = np.arange(demand.shape[0]), np.arange(demand.shape[1])
    dice.shuffle(entities)  # type: ignore[attr-defined]
    dice.shuffle(links)  # type: ignore[attr-defined]
    assert levels(demand[entities][:, links]) == pytest.approx(levels(demand)[entities], abs=NEAR)
