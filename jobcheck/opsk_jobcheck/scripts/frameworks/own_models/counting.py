"""Adds up the parameters of modules; weights that several modules share count once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    NOTHING,
    OPEN,
    Choice,
    Module,
    Parameter,
    Span,
)

MAX_DEPTH = 64


def count_parameters(values: Iterable[Any]) -> Span:
    """Return the parameters of modules together; what may be absent is no more than what it is certainly one of."""
    seen: dict[int, bool] = {}
    total = NOTHING
    for value in sorted(values, key=_may_be_absent):
        if not _may_be_absent(value) or any(id(x) not in seen for x in value.options if x is not ABSENT):
            total += _count(value, seen, 0)
    return total


def _may_be_absent(value: Any) -> bool:
    """Return whether a value may be nothing."""
    return isinstance(value, Choice) and ABSENT in value.options


def _count(value: Any, seen: dict[int, bool], depth: int) -> Span:
    """Return the parameters of a value; ``seen`` has what was counted, and whether for sure."""
    if value is OPEN or depth > MAX_DEPTH:
        return Span(0, None)
    if isinstance(value, Choice):
        return _count_choice(value, seen, depth)
    if not isinstance(value, Module | Parameter):
        return NOTHING
    is_sure = seen.get(id(value))
    if is_sure:
        return NOTHING
    seen[id(value)] = True
    if isinstance(value, Parameter):
        total = value.size
    else:
        total = NOTHING
        for part in (*value.attributes.values(), *value.parts):
            if not value.is_model and not _holds_model(part):
                continue  # an object that is no module may hold one
            if not (value.is_model and isinstance(part, Module) and not part.is_model):
                total += _count(part, seen, depth + 1)
    return total if is_sure is None else Span(0, total.high)


def _holds_model(value: Any) -> bool:
    """Return whether a value is a module, or may be one of several."""
    options = value.options if isinstance(value, Choice) else (value,)
    return any(isinstance(option, Module) for option in options)


def _count_choice(value: Choice, seen: dict[int, bool], depth: int) -> Span:
    """Return the parameters of one of several values."""
    key = hash(tuple(sorted(id(option) for option in value.options if option is not ABSENT)))
    if key in seen:
        return NOTHING  # the same choice was counted
    total: Span | None = None
    after: dict[int, bool] = {}
    for option in value.options:
        inner = dict(seen)
        span = _count(option, inner, depth + 1)
        total = span if total is None else total.join(span)
        after |= {name: False for name in inner if name not in seen}
    seen |= after
    seen[key] = True
    return total or NOTHING
