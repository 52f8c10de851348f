"""Computes functions that make tensors: of zeros, of random numbers, of places."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import list_sizes
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import get_dtype
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_tensor,
    is_tensor,
    make,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, Tensor


def _finish(made: Tensor, given: Arguments) -> Tensor:
    needs = given.keywords.get("requires_grad")
    return replace(made, has_gradient=True) if needs is True else made


def _make(dtype: str, first: int = 0) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        sizes = list_sizes(given, first, "size", "shape")
        kind = get_dtype(given.keywords.get("dtype")) or ("" if "dtype" in given.keywords else dtype)
        return _finish(make(tape, tuple(sizes) if sizes is not None else None, kind), given)

    return rule


def _fill(tape: Tape, given: Arguments) -> Any:
    sizes = list_sizes(Arguments(given.positional[:1], given.keywords), 0, "size")
    value = given.get(1, "fill_value", 0.0)
    dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    kind = get_dtype(given.keywords.get("dtype")) or dtype
    return _finish(make(tape, tuple(sizes) if sizes is not None else None, kind), given)


def _draw(tape: Tape, given: Arguments) -> Any:
    """Return ``randint``: the sizes follow one or two limits."""
    rows = [value for value in given.positional if isinstance(value, list | tuple)]
    sizes = list_sizes(Arguments(rows[:1], given.keywords), 0, "size")
    kind = get_dtype(given.keywords.get("dtype")) or "int64"
    return make(tape, tuple(sizes) if sizes is not None and (rows or "size" in given.keywords) else None, kind)


def _like(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return _finish(make(tape, tensor.shape, get_dtype(given.keywords.get("dtype")) or tensor.dtype), given)


def _new(tape: Tape, given: Arguments) -> Any:
    """Return ``new_zeros`` and its like: of the type of a tensor."""
    tensor = as_tensor(tape, given.get(0, "input"))
    sizes = list_sizes(given, 1, "size")
    kind = get_dtype(given.keywords.get("dtype")) or tensor.dtype
    return make(tape, tuple(sizes) if sizes is not None else None, kind)


def _new_full(tape: Tape, given: Arguments) -> Any:
    return _new(tape, Arguments(given.positional[:2], given.keywords))


def _count(tape: Tape, given: Arguments) -> Any:
    """Return ``arange``."""
    numbers = list(given.positional[:3])
    start = given.keywords.get("start", numbers[0] if len(numbers) > 1 else 0)
    end = given.keywords.get("end", numbers[1] if len(numbers) > 1 else numbers[0] if numbers else None)
    step = given.keywords.get("step", numbers[2] if len(numbers) > 2 else 1)
    length = None
    if all(isinstance(x, int | float) for x in (start, end, step)) and step:
        length = max(0, math.ceil((end - start) / step))
    is_float = any(isinstance(x, float) for x in (start, end, step))
    return make(tape, (length,), get_dtype(given.keywords.get("dtype")) or ("float32" if is_float else "int64"))


def _space(tape: Tape, given: Arguments) -> Any:
    steps = as_int(given.get(2, "steps"))
    return make(tape, (steps,), get_dtype(given.keywords.get("dtype")) or "float32")


def _eye(tape: Tape, given: Arguments) -> Any:
    rows = as_int(given.get(0, "n"))
    columns = given.get(1, "m")
    kind = get_dtype(given.keywords.get("dtype")) or "float32"
    return make(tape, (rows, rows if columns is None else as_int(columns)), kind)


def _wrap(tape: Tape, given: Arguments) -> Any:
    """Return ``tensor``: of a number, or of rows of them."""
    value = given.get(0, "data")
    if is_tensor(value):
        return value
    if not isinstance(value, bool | int | float | list | tuple):
        return ABSENT
    shape: list[int | None] | None = []
    first = value
    while isinstance(first, list | tuple) and first and shape is not None and len(shape) < 8:
        shape.append(len(first))
        first = first[0]
    dtype = "bool" if isinstance(first, bool) else "int64" if isinstance(first, int) else "float32"
    if not isinstance(first, bool | int | float):
        shape, dtype = None, ""
    return _finish(
        make(tape, tuple(shape) if shape is not None else None, get_dtype(given.keywords.get("dtype")) or dtype), given
    )


def _code(tape: Tape, given: Arguments) -> Any:
    """Return ``one_hot``."""
    tensor, classes = as_tensor(tape, given.get(0, "tensor")), as_int(given.get(1, "num_classes"))
    return make(tape, (*tensor.shape, classes) if tensor.shape is not None else None, "int64")


def _shuffle(tape: Tape, given: Arguments) -> Any:
    return make(tape, (as_int(given.get(0, "n")),), "int64")


RULES: dict[str, Rule] = {
    **{name: _make("float32") for name in ("zeros", "ones", "rand", "randn", "empty", "Tensor", "FloatTensor")},
    **{f"{name}_like": _like for name in ("zeros", "ones", "rand", "randn", "empty", "full", "randint")},
    **{"bernoulli": _like},
    **{f"new_{name}": _new for name in ("zeros", "ones", "empty")},
    **{"new_full": _new_full, "full": _fill, "randint": _draw, "arange": _count, "linspace": _space, "eye": _eye},
    **{"tensor": _wrap, "as_tensor": _wrap, "one_hot": _code, "randperm": _shuffle, "logspace": _space},
}
