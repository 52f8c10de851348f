"""How is one formula worked out for a single plan in no more time than its arithmetic takes?

The cost model is written once, for columns. A column may be a plain number of Python's: one plan, or what all plans
share. Operators are tens of times quicker on those than on an array of one entry; numpy's functions are not, so
formulas choose, compare, round and look up with those below, which take no detour over arrays for plain numbers.

What divides nothing by nothing is an `ArithmeticError` of Python's, and no number of numpy's; see `predict_one`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

AnyColumn = npt.NDArray[Any]
_float: Any = float
_int: Any = int
_bool: Any = bool
_NOTHING: Any = 0.0
"""Plain numbers stand where the types of formulas say arrays."""


def where(condition: Any, yes: Any, no: Any) -> AnyColumn:
    """Return ``yes`` where the condition holds, else ``no``; of a single condition one of them as it is."""
    found: AnyColumn = np.where(condition, yes, no) if isinstance(condition, np.ndarray) else yes if condition else no
    return found


def when(condition: Any, value: Any) -> AnyColumn:
    """Return the value where the condition holds, else 0."""
    found: AnyColumn = condition * value if isinstance(condition, np.ndarray) else value if condition else _NOTHING
    return found


def unless(condition: Any) -> AnyColumn:
    """Return the opposite of a condition."""
    found: AnyColumn = ~condition if isinstance(condition, np.ndarray) else _bool(not condition)
    return found


def selected(conditions: Sequence[Any], values: Sequence[Any], otherwise: Any) -> AnyColumn:
    """Return the value of the first condition that holds, ``otherwise`` where none does."""
    if any(isinstance(condition, np.ndarray) for condition in conditions):
        return np.select(conditions, values, otherwise)
    held = (value for condition, value in zip(conditions, values, strict=True) if condition)
    found: AnyColumn = next(held, otherwise)
    return found


def maximum(one: Any, other: Any) -> AnyColumn:
    """Return the greater of two, or the one that is no number."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        extremes: AnyColumn = np.maximum(one, other)
        return extremes
    found: AnyColumn = other if other > one or other != other else one
    return found


def minimum(one: Any, other: Any) -> AnyColumn:
    """Return the lesser of two, or the one that is no number."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        extremes: AnyColumn = np.minimum(one, other)
        return extremes
    found: AnyColumn = other if other < one or other != other else one
    return found


def hypot(one: Any, other: Any) -> AnyColumn:
    """Return the root of the sum of two squares."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        roots: AnyColumn = np.hypot(one, other)
        return roots
    # the C library's, as numpy has it: Python's own differs in the last digit
    found: AnyColumn = _float(abs(complex(one, other)))
    return found


def floor(column: Any) -> AnyColumn:
    """Return the greatest whole number that is no greater, in floating point."""
    found: AnyColumn = np.floor(column) if isinstance(column, np.ndarray) else _float(math.floor(column))
    return found


def ceil(column: Any) -> AnyColumn:
    """Return the least whole number that is no less, in floating point."""
    found: AnyColumn = np.ceil(column) if isinstance(column, np.ndarray) else _float(math.ceil(column))
    return found


def _as_numpy_has_it(function: Callable[[Any], Any]) -> Callable[[Any], AnyColumn]:
    """Return a function of numpy's that answers plain numbers with such; `math`'s differ in the last digit."""

    def applied(column: Any) -> AnyColumn:
        found = function(column)
        answer: AnyColumn = found if isinstance(found, np.ndarray) else _float(found)
        return answer

    return applied


log, log2, exp, arctan = (_as_numpy_has_it(function) for function in (np.log, np.log2, np.exp, np.arctan))


def any_of(column: Any) -> bool:
    """Tell whether a condition holds, or a number is not 0, for any plan."""
    return bool(column.any() if isinstance(column, np.ndarray) else column)


def all_of(column: Any) -> bool:
    """Tell whether a condition holds for all plans."""
    return bool(column.all() if isinstance(column, np.ndarray) else column)


def floats(column: Any) -> AnyColumn:
    """Return whole numbers, or truths as 0 and 1, in floating point."""
    found: AnyColumn = column.astype(np.float64) if isinstance(column, np.ndarray) else _float(column)
    return found


def whole(column: Any) -> AnyColumn:
    """Return whole numbers that are in floating point as such."""
    found: AnyColumn = column.astype(np.int64) if isinstance(column, np.ndarray) else _int(column)
    return found


def filled(column: Any, number: float) -> AnyColumn:
    """Return a column of the same length, every entry of which is one number."""
    found: AnyColumn = np.full(column.shape, number) if isinstance(column, np.ndarray) else _float(number)
    return found


def looked_up(table: AnyColumn, *codes: Any) -> AnyColumn:
    """Return the entries of a table at these codes, which are those of one plan or columns."""
    found: AnyColumn = table[codes] if isinstance(codes[-1], np.ndarray) else table[codes].tolist()
    return found


def most(column: Any) -> AnyColumn:
    """Return the greatest entry of the candidate stages, shape (3, plans); what all share has one."""
    found: AnyColumn = column
    if isinstance(column, np.ndarray):
        found = column.max(axis=0) if column.ndim > 1 else column.item(column.argmax())
    return found


def least(column: Any) -> AnyColumn:
    """Return the least entry of the candidate stages, shape (3, plans); what all share has one."""
    found: AnyColumn = column
    if isinstance(column, np.ndarray):
        found = column.min(axis=0) if column.ndim > 1 else column.item(column.argmin())
    return found


def which_is_most(columns: Sequence[Any]) -> AnyColumn:
    """Return which of some columns has the greatest entry, the first of several."""
    if any(isinstance(column, np.ndarray) for column in columns):
        return np.asarray(np.argmax(np.array(columns), axis=0))
    found: AnyColumn = _int(columns.index(max(columns)))
    return found
