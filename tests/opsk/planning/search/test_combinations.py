"""Tests of numbering combinations, against numpy's own slower way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from opsk.planning.search.combinations import number_combinations

SIZES = st.one_of(st.integers(0, 3), st.sampled_from((255, 65_536, 2**20, 10**9)))


@given(st.integers(1, 6).flatmap(lambda axes: st.lists(st.tuples(*[SIZES] * axes), min_size=1, max_size=40)))
def test_they_are_numbered_as_numpy_does_it_by_rows(rows: list[tuple[int, ...]]) -> None:
    columns: list[NDArray[np.int64]] = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    expected, expected_number = np.unique(np.stack(columns), axis=1, return_inverse=True)
    combinations, number = number_combinations(columns)
    assert combinations.tolist() == expected.tolist()
    assert number.tolist() == expected_number.reshape(-1).tolist()


def test_no_product_of_large_sizes_overflows() -> None:
    columns = [np.array([value, 0, 1], dtype=np.int64) for value in range(10**9, 10**9 + 60)]
    combinations, number = number_combinations(columns)
    assert combinations.shape == (60, 3)
    assert number.tolist() == [2, 0, 1]


def test_no_rows_have_no_combinations() -> None:
    combinations, number = number_combinations([np.zeros(0, dtype=np.int64)] * 2)
    assert (combinations.shape, number.shape) == ((2, 0), (0,))
