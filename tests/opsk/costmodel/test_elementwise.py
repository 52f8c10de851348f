"""What is chosen and compared of plain numbers is what numpy chooses and compares of arrays of one entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel import elementwise
from opsk.costmodel.elementwise import (
    all_of,
    any_of,
    argmax,
    ceil,
    floor,
    full_like,
    logical_not,
    lookup,
    max_over_stages,
    maximum,
    min_over_stages,
    minimum,
    select,
    to_float,
    to_int,
    when,
    where,
)

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-300, max_value=1e300)
TRUTHS = st.booleans()


def _is_entry(plain: Any, column: Any) -> bool:
    """Tell whether a plain number of Python's is the entry of a column of one."""
    return type(plain) in (float, int, bool) and np.array_equal(np.atleast_1d(plain), column, equal_nan=True)


@pytest.mark.parametrize(("own", "numpys"), [(maximum, np.maximum), (minimum, np.minimum)])
@given(one=NUMBERS, other=NUMBERS)
def test_extremes_are_numpys(own: Callable[..., Any], numpys: Callable[..., Any], one: float, other: float):
    assert _is_entry(own(one, other), numpys([one], [other]))
    assert np.array_equal(own(np.array([one]), other), numpys([one], other), equal_nan=True)


@given(condition=TRUTHS, yes=FINITE, no=FINITE)
def test_choices_are_numpys(condition: bool, yes: float, no: float):
    column = np.array([condition])
    assert _is_entry(where(condition, yes, no), where(column, yes, no))
    assert _is_entry(logical_not(condition), logical_not(column))
    assert _is_entry(to_float(condition), to_float(column))
    assert (any_of(condition), all_of(condition)) == (any_of(column), all_of(column)) == (condition, condition)


@given(condition=TRUTHS, value=FINITE)
def test_a_value_counts_where_its_condition_holds(condition: bool, value: float):
    assert _is_entry(when(condition, value), when(np.array([condition]), np.array([value])))


@given(conditions=st.lists(TRUTHS, min_size=3, max_size=3), values=st.lists(FINITE, min_size=4, max_size=4))
def test_the_first_condition_that_holds_decides(conditions: list[bool], values: list[float]):
    columns = [np.array([condition]) for condition in conditions]
    assert _is_entry(select(conditions, values[:3], values[3]), select(columns, values[:3], values[3]))


@given(number=FINITE)
def test_numbers_are_rounded_as_numpy_does(number: float):
    assert _is_entry(floor(number), np.floor([number]))
    assert _is_entry(ceil(number), np.ceil([number]))
    assert _is_entry(to_int(float(int(number) % 2**53)), np.array([int(number) % 2**53]))


@pytest.mark.parametrize("name", ["log", "log2", "exp", "arctan"])
@given(number=POSITIVE)
def test_functions_are_numpys_to_the_last_digit(name: str, number: float):
    own = getattr(elementwise, name)
    with np.errstate(over="ignore"):
        assert _is_entry(own(number), own(np.array([number])))


@given(table=st.lists(FINITE, min_size=4, max_size=4), code=st.integers(0, 3))
def test_entries_of_tables_are_looked_up_alike(table: list[float], code: int):
    column, rows = np.array(table), np.array([table, table])
    assert _is_entry(lookup(column, code), lookup(column, np.array([code])))
    assert lookup(rows, slice(None), code) == [table[code], table[code]]
    assert lookup(rows, slice(None), np.array([code])).tolist() == [[table[code]], [table[code]]]


@given(stages=st.lists(NUMBERS, min_size=3, max_size=3))
def test_the_extreme_candidate_stage_is_that_of_a_table(stages: list[float]):
    column = np.array(stages)
    assert _is_entry(max_over_stages(column), max_over_stages(column[:, None]))
    assert _is_entry(min_over_stages(column), min_over_stages(column[:, None]))


@given(stages=st.lists(FINITE, min_size=3, max_size=3))
def test_of_the_candidate_stages_one_decides(stages: list[float]):
    assert _is_entry(argmax(stages), argmax([np.array([entry]) for entry in stages]))
    assert max_over_stages(stages[0]) == min_over_stages(stages[0]) == stages[0], (
        "what all stages share has no candidates"
    )  # type: ignore[arg-type]


def test_a_column_is_filled_to_its_length_and_a_plain_number_stays_one():
    assert full_like(np.zeros(3), 2.0).tolist() == [2.0, 2.0, 2.0]
    assert _is_entry(full_like(0.0, 2.0), np.array([2.0]))
