"""Makes the results of operations: tensors in new memory, views, casts, and what is saved for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import (
    count_elements,
    get_element_bytes,
    is_packed,
    pack,
)
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    MAX_SIZE,
    Choice,
    Parameter,
    Shape,
    Span,
    Storage,
    Tensor,
)

Rule = Callable[[Tape, Arguments], Any]
MAX_AXES = 64
"""Axes that a tensor of PyTorch has at most."""
FLOATS = frozenset({"float64", "float32", "bfloat16", "float16", "complex64", "complex128", ""})
_HALVES = frozenset({"bfloat16", "float16"})
_RANKS: Mapping[str, int] = {
    **{"bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4},
    **{"float16": 5, "bfloat16": 5, "float32": 6, "float64": 7, "complex64": 8, "complex128": 9},
}


def as_tensor(tape: Tape, value: Any) -> Tensor:
    """Return a value as a tensor; one of which nothing is known for a value that is not known."""
    if isinstance(value, Tensor):
        return value if value.storage is not None else replace(value, storage=_state(value.size, value.dtype))
    if isinstance(value, Parameter):
        key = id(value)
        if key not in tape.weights:
            needs, storage = not value.is_frozen, _state(value.size, value.dtype)
            tensor = Tensor(value.size, value.shape, pack(value.shape), value.dtype, needs, storage)
            tape.weights[key] = (value, tensor)
        return tape.weights[key][1]
    if isinstance(value, Choice):
        rows = [as_tensor(tape, option) for option in value.options if isinstance(option, Tensor | Parameter)]
        if len(rows) == len(value.options) and rows:
            same = all(row.shape == rows[0].shape for row in rows)
            return make_unknown(tape, rows[0].shape if same else None, rows[0].dtype)
    if isinstance(value, bool | int | float):
        dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
        return Tensor(Span(1, 1), (), (), dtype, False, _state(Span(1, 1), dtype))
    tape.give_up("what a tensor is made of is not known")
    return make_unknown(tape, None, "")


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, a weight among them."""
    return isinstance(value, Tensor | Parameter)


def _state(size: Span, dtype: str) -> Storage:
    return Storage(size * get_element_bytes(dtype), is_state=True)


def make_unknown(tape: Tape, shape: Shape | None = None, dtype: str = "") -> Tensor:
    """Return a tensor that may be a new one, or share memory with any other."""
    size = count_elements(shape)
    high = (size * get_element_bytes(dtype)).high
    return Tensor(size, shape, None, dtype, tape.saves, Storage(Span(0, high)))


def make(tape: Tape, shape: Shape | None, dtype: str, inputs: Sequence[Tensor] = ()) -> Tensor:
    """Return the result of an operation in memory of its own."""
    shape = _limit(shape)
    size = count_elements(shape)
    needs = tape.saves and dtype in FLOATS and any(row.has_gradient for row in inputs)
    result = Tensor(size, shape, pack(shape), dtype, needs, Storage(size * get_element_bytes(dtype)))
    if needs:
        rows = [row for row in inputs if row.has_gradient and not _is_state(row)]
        tape.note_transient([get_bytes(row) for row in (result, *rows)])
    return result


def make_like(tape: Tape, tensor: Tensor, inputs: Sequence[Tensor] | None = None, dtype: str | None = None) -> Tensor:
    """Return the result of an operation by elements, in the order of the elements of a tensor."""
    result = make(tape, tensor.shape, tensor.dtype if dtype is None else dtype, [tensor] if inputs is None else inputs)
    if tensor.shape is None:
        storage = Storage(tensor.size * get_element_bytes(result.dtype))
        return replace(result, size=tensor.size, storage=storage)
    if tensor.strides is not None and tensor.shape is not None and is_packed(tensor) is False:
        return replace(result, strides=_order(tensor.shape, tensor.strides))
    return result if tensor.strides is not None or result.strides is None else replace(result, strides=None)


def _limit(shape: Shape | None) -> Shape | None:
    """Return a shape; ``None`` for one that no tensor has."""
    if shape is None or len(shape) > MAX_AXES:
        return None
    return tuple(None if side is not None and not 0 <= side <= MAX_SIZE else side for side in shape)


def _order(shape: Shape, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of a tensor without gaps whose axes come in the order of those of another one."""
    if None in shape or any(stride == 0 and side != 1 for side, stride in zip(shape, strides, strict=True)):
        return pack(shape)
    result = [0] * len(shape)
    step = 1
    for axis in sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis)):
        result[axis] = step
        step *= max(1, shape[axis] or 1)
    return tuple(result)


def _is_state(tensor: Tensor) -> bool:
    return tensor.storage is not None and tensor.storage.is_state


def get_bytes(tensor: Tensor) -> int | None:
    """Return the bytes of a tensor, at most; ``None`` where they are not known."""
    return (tensor.size * get_element_bytes(tensor.dtype)).high


def view(tensor: Tensor, shape: Shape | None, strides: tuple[int, ...] | None) -> Tensor:
    """Return a view of a tensor."""
    shape = _limit(shape)
    strides = strides if shape is not None else None
    return Tensor(count_elements(shape), shape, strides, tensor.dtype, tensor.has_gradient, tensor.storage)


def save(tape: Tape, *tensors: Tensor) -> None:
    """Note that tensors are saved."""
    for tensor in tensors:
        tape.save(tensor)


def save_result(tape: Tape, result: Tensor) -> Tensor:
    """Note that the result of an operation is saved, where its gradient is computed; return it."""
    if result.has_gradient:
        tape.save(result)
    return result


def save_other(tape: Tape, first: Tensor, second: Tensor) -> None:
    """Note what a product saves: each factor for the gradient of the other one."""
    if second.has_gradient:
        tape.save(first)
    if first.has_gradient:
        tape.save(second)


def cast(tape: Tape, tensor: Tensor, dtype: str) -> Tensor:
    """Return a tensor in another type; itself where it is of that type."""
    if tensor.dtype == dtype:
        return tensor
    storage = tensor.storage
    key = (id(storage), dtype)
    is_weight = storage is not None and storage.is_state and tensor.has_gradient
    if is_weight and key in tape.casts:
        return tape.casts[key][1]
    result = make_like(tape, tensor, [] if is_weight else [tensor], dtype)
    if is_weight and storage is not None:
        result = replace(result, has_gradient=tape.saves)
        tape.casts[key] = (storage, result)
    return result


def cast_down(tape: Tape, tensor: Tensor) -> Tensor:
    """Return what an operation reads that autocast computes in its type."""
    if not tape.autocast or tensor.dtype not in ("float32", *_HALVES):
        return tensor
    return cast(tape, tensor, tape.autocast)


def cast_up(tape: Tape, tensor: Tensor) -> Tensor:
    """Return what an operation reads that autocast computes in 32 bits."""
    return cast(tape, tensor, "float32") if tape.autocast and tensor.dtype in _HALVES else tensor


def promote(*tensors: Tensor) -> str:
    """Return the type of the result of an operation on tensors; empty where it is not known."""
    if any(tensor.dtype not in _RANKS for tensor in tensors):
        return ""
    wide = [tensor.dtype for tensor in tensors if tensor.shape != ()]
    single = [tensor.dtype for tensor in tensors if tensor.shape == ()]
    best = _join_types(wide) if wide else ""
    other = _join_types(single) if single else ""
    if not best or not other:
        return best or other
    if best in FLOATS or other not in FLOATS:
        return best
    return other


def _join_types(types: Sequence[str]) -> str:
    halves = set(types) & _HALVES
    best = max(types, key=_RANKS.__getitem__)
    return "float32" if len(halves) == 2 and _RANKS[best] == _RANKS["float16"] else best


def as_int(value: Any) -> int | None:
    """Return a whole number; ``None`` where it is not known."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -MAX_SIZE <= value <= MAX_SIZE else None


def as_sizes(values: Any) -> list[int | None] | None:
    """Return sizes that are given as a row; ``None`` where it is none."""
    if isinstance(values, list | tuple):
        return [as_int(value) for value in values]
    return None


def get_axis(shape: Shape, value: Any) -> int | None:
    """Return an axis of a tensor, counted from the first; ``None`` where it is not known."""
    axis = as_int(value)
    if axis is None or not -len(shape) <= axis < len(shape):
        return None
    return axis % len(shape)


def multiply(sides: Sequence[int | None]) -> int | None:
    """Return the product of sizes; ``None`` where one is not known."""
    result = 1
    for side in sides:
        if side is None:
            return None
        result *= side
    return result
