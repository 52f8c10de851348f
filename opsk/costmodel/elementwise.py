"""Defines elementwise operations that work on columns and, without overhead, on plain numbers.

The cost model is written once, for columns. A column may be a plain Python number: one plan, or a value that all plans
share. Operators are tens of times faster on those than on an array of one entry; numpy's functions are not, so
formulas choose, compare, round and look up with the functions below, which use no arrays for plain numbers.

A division of zero by zero raises an `ArithmeticError` for plain numbers, and gives NaN in numpy; see `predict_one`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

AnyColumn = npt.NDArray[Any]
_float: Any = float
_int: Any = int
_bool: Any = bool
_ZERO: Any = 0.0
"""Plain numbers are typed as arrays in formulas."""


def where(condition: Any, yes: Any, no: Any) -> AnyColumn:
    """Return ``yes`` where the condition holds, else ``no``; for a plain condition one of them unchanged."""
    result: AnyColumn = np.where(condition, yes, no) if type(condition) is ndarray else yes if condition else no
    return result


def when(condition: Any, value: Any) -> AnyColumn:
    """Return the value where the condition holds, else 0."""
    result: AnyColumn = condition * value if type(condition) is ndarray else value if condition else _ZERO
    return result


def logical_not(condition: Any) -> AnyColumn:
    """Return the opposite of a condition."""
    result: AnyColumn = ~condition if type(condition) is ndarray else _bool(not condition)
    return result


def select(conditions: Sequence[Any], values: Sequence[Any], otherwise: Any) -> AnyColumn:
    """Return the value of the first condition that holds, ``otherwise`` where none does."""
    if any(type(condition) is ndarray for condition in conditions):
        return np.select(conditions, values, otherwise)
    held = (value for condition, value in zip(conditions, values, strict=True) if condition)
    result: AnyColumn = next(held, otherwise)
    return result


def maximum(first: Any, second: Any) -> AnyColumn:
    """Return the greater of two, or NaN if one is NaN."""
    if type(first) is ndarray or type(second) is ndarray:
        extremes: AnyColumn = np.maximum(first, second)
        return extremes
    result: AnyColumn = second if second > first or second != second else first
    return result


def minimum(first: Any, second: Any) -> AnyColumn:
    """Return the lesser of two, or NaN if one is NaN."""
    if type(first) is ndarray or type(second) is ndarray:
        extremes: AnyColumn = np.minimum(first, second)
        return extremes
    result: AnyColumn = second if second < first or second != second else first
    return result


def hypot(first: Any, second: Any) -> AnyColumn:
    """Return the root of the sum of two squares."""
    if type(first) is ndarray or type(second) is ndarray:
        roots: AnyColumn = np.hypot(first, second)
        return roots
    # the C library's, as in numpy: Python's own differs in the last digit
    result: AnyColumn = _float(abs(complex(first, second)))
    return result


def floor(column: Any) -> AnyColumn:
    """Return the greatest whole number that is no greater, in floating point."""
    result: AnyColumn = np.floor(column) if type(column) is ndarray else _float(math.floor(column))
    return result


def ceil(column: Any) -> AnyColumn:
    """Return the least whole number that is no less, in floating point."""
    result: AnyColumn = np.ceil(column) if type(column) is ndarray else _float(math.ceil(column))
    return result


def _wrap_numpy(function: Callable[[Any], Any]) -> Callable[[Any], AnyColumn]:
    """Return a numpy function that returns plain numbers for plain numbers; `math`'s differ in the last digit."""

    def apply(column: Any) -> AnyColumn:
        result = function(column)
        converted: AnyColumn = result if type(result) is ndarray else _float(result)
        return converted

    return apply


log, log2, exp, arctan = (_wrap_numpy(function) for function in (np.log, np.log2, np.exp, np.arctan))


def any_of(column: Any) -> Any:
    """Return whether a condition holds, or a number is not 0, for any plan; for `if`, since 0 stands for false."""
    return column.any() if type(column) is ndarray else column


def all_of(column: Any) -> Any:
    """Return whether a condition holds for all plans; for `if`, as above."""
    return column.all() if type(column) is ndarray else column


def to_float(column: Any) -> AnyColumn:
    """Return integers, or booleans as 0 and 1, as floats."""
    result: AnyColumn = column.astype(np.float64) if type(column) is ndarray else _float(column)
    return result


def to_int(column: Any) -> AnyColumn:
    """Return integral floats as integers."""
    result: AnyColumn = column.astype(np.int64) if type(column) is ndarray else _int(column)
    return result


def full_like(column: Any, number: float) -> AnyColumn:
    """Return a column of the same length with every entry equal to a number."""
    result: AnyColumn = np.full(column.shape, number) if type(column) is ndarray else _float(number)
    return result


def lookup(table: AnyColumn, *codes: Any) -> AnyColumn:
    """Return the entries of a table at these codes, which are plain numbers or columns."""
    if type(codes[-1]) is ndarray:
        columns: AnyColumn = table[codes]
        return columns
    is_entry = len(codes) == table.ndim and type(codes[0]) is not slice
    result: AnyColumn = table.item(codes) if is_entry else table[codes].tolist()  # an item alone takes half the time
    return result


def max_over_stages(column: Any) -> AnyColumn:
    """Return the maximum over the candidate stages, shape (3, plans); a plain number is returned unchanged."""
    result: AnyColumn = column
    if type(column) is ndarray:
        result = column.max(axis=0) if column.ndim > 1 else column.item(column.argmax())
    return result


def min_over_stages(column: Any) -> AnyColumn:
    """Return the minimum over the candidate stages, shape (3, plans); a plain number is returned unchanged."""
    result: AnyColumn = column
    if type(column) is ndarray:
        result = column.min(axis=0) if column.ndim > 1 else column.item(column.argmin())
    return result


def argmax(columns: Sequence[Any]) -> AnyColumn:
    """Return the index of the column with the greatest entry, the first of several."""
    if any(type(column) is ndarray for column in columns):
        return np.asarray(np.argmax(np.array(columns), axis=0))
    result: AnyColumn = _int(columns.index(max(columns)))
    return result
