"""What is chosen and compared of plain numbers is what numpy chooses and compares of arrays of one entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.elementwise import all_of, any_of, filled, floats, maximum, minimum, unless, when, where

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
TRUTHS = st.booleans()


def _same(plain: Any, column: Any) -> None:
    """Check that a plain number is the entry of a column of one."""
    assert np.shape(plain) == ()
    assert np.array_equal(np.atleast_1d(plain), column, equal_nan=True)


@pytest.mark.parametrize(("own", "numpys"), [(maximum, np.maximum), (minimum, np.minimum)])
@given(one=NUMBERS, other=NUMBERS)
def test_extremes_are_numpys(own: Callable[..., Any], numpys: Callable[..., Any], one: float, other: float):
    _same(own(np.float64(one), np.float64(other)), numpys([one], [other]))
    assert np.array_equal(own(np.array([one]), other), numpys([one], other), equal_nan=True)


@given(condition=TRUTHS, yes=st.floats(allow_nan=False), no=st.floats(allow_nan=False))
def test_choices_are_numpys(condition: bool, yes: float, no: float):
    alone, column = np.bool_(condition), np.array([condition])
    _same(where(alone, np.float64(yes), np.float64(no)), where(column, yes, no))
    _same(unless(alone), unless(column))
    _same(floats(alone), floats(column))
    assert (any_of(alone), all_of(alone)) == (any_of(column), all_of(column)) == (condition, condition)


@given(condition=TRUTHS, value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_counts_where_its_condition_holds(condition: bool, value: float):
    _same(when(np.bool_(condition), np.float64(value)), when(np.array([condition]), np.array([value])))


def test_a_column_is_filled_to_its_length_and_a_plain_number_stays_one():
    assert filled(np.zeros(3), 2.0).tolist() == [2.0, 2.0, 2.0]
    _same(filled(np.float64(0.0), 2.0), np.array([2.0]))
