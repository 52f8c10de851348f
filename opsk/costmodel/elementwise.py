"""How is one formula worked out for a single plan in no more time than its arithmetic takes?

The cost model is written once, for columns. A column may be a plain number of numpy's (`numpy.float64` and its like, of
shape ()): one plan, or what all plans share. Operators are ten times quicker on those than on an array of one entry;
numpy's functions are not, so formulas choose and compare with those below, which take no detour over arrays for plain
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

AnyColumn = npt.NDArray[Any]

_TRUTHS = (np.bool_, bool)
_ZERO: Any = np.float64(0.0)
_YES: Any = np.bool_(True)
_NO: Any = np.bool_(False)


def where(condition: Any, yes: Any, no: Any) -> AnyColumn:
    """Return ``yes`` where the condition holds, else ``no``; of a single condition one of them as it is."""
    found: Any = (yes if condition else no) if isinstance(condition, _TRUTHS) else np.where(condition, yes, no)
    return found  # type: ignore[no-any-return]


def when(condition: Any, value: Any) -> AnyColumn:
    """Return the value where the condition holds, else 0."""
    found: AnyColumn = (value if condition else _ZERO) if isinstance(condition, _TRUTHS) else condition * value
    return found


def unless(condition: Any) -> AnyColumn:
    """Return the opposite of a condition."""
    found: AnyColumn = (_NO if condition else _YES) if isinstance(condition, _TRUTHS) else ~condition
    return found


def maximum(one: Any, other: Any) -> AnyColumn:
    """Return the greater of two, or the one that is no number."""
    if not (isinstance(one, float) and isinstance(other, float)):
        return np.maximum(one, other)  # type: ignore[no-any-return]
    found: Any = other if other > one or other != other else one
    return found  # type: ignore[no-any-return]


def minimum(one: Any, other: Any) -> AnyColumn:
    """Return the lesser of two, or the one that is no number."""
    if not (isinstance(one, float) and isinstance(other, float)):
        return np.minimum(one, other)  # type: ignore[no-any-return]
    found: Any = other if other < one or other != other else one
    return found  # type: ignore[no-any-return]


def hypot(one: Any, other: Any) -> AnyColumn:
    """Return the root of the sum of two squares."""
    if not (isinstance(one, float) and isinstance(other, float)):
        return np.hypot(one, other)  # type: ignore[no-any-return]
    # the C library's, as numpy has it: Python's own differs in the last digit
    found: Any = np.float64(abs(complex(one, other)))
    return found  # type: ignore[no-any-return]


def any_of(column: Any) -> bool:
    """Tell whether a condition holds, or a number is not 0, for any plan."""
    return bool(column.any() if isinstance(column, np.ndarray) else column)


def all_of(column: Any) -> bool:
    """Tell whether a condition holds for all plans."""
    return bool(column.all() if isinstance(column, np.ndarray) else column)


def floats(column: Any) -> AnyColumn:
    """Return whole numbers, or truths as 0 and 1, in floating point."""
    found: Any = column.astype(np.float64) if isinstance(column, np.ndarray) else np.float64(column)
    return found  # type: ignore[no-any-return]


def filled(column: Any, number: float) -> AnyColumn:
    """Return a column of the same length, every entry of which is one number."""
    found: Any = np.full(column.shape, number) if isinstance(column, np.ndarray) else np.float64(number)
    return found  # type: ignore[no-any-return]
