"""Computes the results of Python's operators on numbers, texts and lists."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.statements import MAX_ITEMS
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    DATA,
    CannotCountError,
    Parameter,
    Settings,
    Tensor,
)

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_MAX_POWER, _MAX_BASE = 64, 4096
_MAX_BITS = 2048
"""Bits of two numbers together whose result is computed: repeated products would grow without end."""


def combine_values(kind: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of an operator; ``DATA`` where it has none, or a huge one."""
    for first, second in ((left, right), (right, left)):
        if isinstance(first, Tensor | Parameter) and isinstance(second, int | float):
            return Tensor(first.size)
    if isinstance(kind, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
        return left | right
    if not isinstance(left, int | float | list | tuple | str) or not isinstance(
        right, int | float | list | tuple | str
    ):
        return DATA
    if isinstance(kind, ast.Pow):
        is_small = isinstance(left, int | float) and isinstance(right, int | float)
        is_small = is_small and 0 <= left <= _MAX_BASE and -_MAX_POWER <= right <= _MAX_POWER  # type: ignore[operator]
        return _try(operator.pow, left, right) if is_small else DATA
    if isinstance(left, list | tuple | str) or isinstance(right, list | tuple | str):
        return _combine_rows(kind, left, right)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MAX_BITS:
        return DATA
    combine = _OPERATORS.get(type(kind))
    return _try(combine, left, right) if combine is not None else DATA


def _try(combine: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return the result of a function of two numbers; ``DATA`` where it has none."""
    try:
        return combine(left, right)
    except (TypeError, ValueError, ArithmeticError):
        return DATA


def _combine_rows(kind: ast.operator, left: Any, right: Any) -> Any:
    """Return lists or texts one after another, or one several times."""
    if isinstance(kind, ast.Mult):
        count, row = (left, right) if isinstance(left, int) else (right, left)
        if not isinstance(count, int) or not isinstance(row, list | tuple | str):
            return DATA
        if len(row) * count > MAX_ITEMS:
            raise CannotCountError("a list is longer than opsk follows")
        return row * count
    is_same = type(left) is type(right) and not isinstance(left, int | float)
    if isinstance(kind, ast.Add) and is_same and len(left) + len(right) <= MAX_ITEMS:
        return left + right
    return DATA


def compare_values(kind: ast.cmpop, left: Any, right: Any) -> Any:
    """Return the result of a comparison; ``DATA`` where it is not known."""
    if isinstance(left, ABSENT.__class__) or isinstance(right, ABSENT.__class__):
        return DATA
    if isinstance(kind, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and (left is None or right is None):
        other = right if left is None else left
        if isinstance(other, Settings | Tensor):
            return DATA
        return (other is None) is isinstance(kind, ast.Is | ast.Eq)
    if isinstance(kind, ast.In | ast.NotIn):
        if not isinstance(left, str | int) or not isinstance(right, list | tuple | dict | str | range):
            return DATA
        if isinstance(right, str) and not isinstance(left, str):
            return DATA
        if not isinstance(right, str | range) and any(not isinstance(x, str | int | float) for x in right):
            return DATA
        return (left in right) is isinstance(kind, ast.In)
    compare = _COMPARISONS.get(type(kind))
    is_plain = all(isinstance(x, str | int | float) or _is_plain_row(x) for x in (left, right))
    return _try(compare, left, right) if compare is not None and is_plain else DATA


def _is_plain_row(value: Any) -> bool:
    """Return whether a value is a list of numbers and texts."""
    return isinstance(value, list | tuple) and all(isinstance(part, str | int | float) for part in value)
