"""Arranges the elements of tensors: views, copies, joins and parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    as_int,
    as_sizes,
    as_tensor,
    cast,
    get_axis,
    make,
    make_unknown,
    multiply,
    promote,
    view,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import is_packed, pack
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor

MAX_PARTS = 512


def list_sizes(given: Arguments, first: int, *names: str) -> list[int | None] | None:
    """Return sizes that are given one by one, or as a row; ``None`` where they are not known."""
    for name in names:
        if name in given.keywords:
            return as_sizes(given.keywords[name])
    rest = given.positional[first:]
    if len(rest) == 1 and isinstance(rest[0], list | tuple):
        return as_sizes(rest[0])
    if len(rest) == 1 and as_int(rest[0]) is None:
        return None
    return [as_int(value) for value in rest]


def reshape(tape: Tape, tensor: Tensor, sizes: Sequence[int | None] | None) -> Tensor:
    """Return a tensor in another shape: a view where that can be, else a copy."""
    if sizes is None:
        return replace(make_unknown(tape, None, tensor.dtype), has_gradient=tensor.has_gradient)
    shape = complete_sizes(tensor.shape, sizes)
    old, strides = tensor.shape, tensor.strides
    if old is not None and strides is not None and None not in old and None not in shape:
        moved = _move(old, strides, shape)  # type: ignore[arg-type]
        if moved is not None:
            return view(tensor, shape, moved)
        return make(tape, shape, tensor.dtype, [tensor])
    if is_packed(tensor) is True or (strides is not None and old is not None and strides == pack(old)):
        return view(tensor, shape, pack(shape))
    return replace(make_unknown(tape, shape, tensor.dtype), has_gradient=tensor.has_gradient)


def complete_sizes(old: Shape | None, sizes: Sequence[int | None]) -> Shape:
    """Return a shape with its open size (``-1``)."""
    if -1 not in sizes:
        return tuple(sizes)
    total = multiply(old) if old is not None else None
    rest = multiply([side for side in sizes if side != -1])
    side = total // rest if total is not None and rest else None
    return tuple(side if part == -1 else part for part in sizes)


def _move(old: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a view in another shape; ``None`` where only a copy has that shape."""
    if 0 in old:
        return pack(tuple(new))
    result = [0] * len(new)
    place = len(new) - 1
    step = strides[-1] if strides else 1
    count = have = 1
    for axis in range(len(old) - 1, -1, -1):
        count *= old[axis]
        if axis == 0 or (old[axis - 1] != 1 and strides[axis - 1] != count * step):
            while place >= 0 and (have < count or new[place] == 1):
                result[place] = have * step
                have *= new[place]
                place -= 1
            if have != count:
                return None
            if axis > 0:
                step, count, have = strides[axis - 1], 1, 1
    if place >= 0 and not old:
        return pack(tuple(new))
    return tuple(result) if place == -1 else None


def permute(tensor: Tensor, order: Sequence[int | None] | None) -> Tensor:
    """Return a view with the axes in another order."""
    shape = tensor.shape
    if shape is None or order is None or len(order) != len(shape) or None in order:
        return view(tensor, None if shape is None or order is None else (None,) * len(shape), None)
    axes = [axis % len(shape) for axis in order if axis is not None]
    strides = tensor.strides
    moved = tuple(strides[axis] for axis in axes) if strides is not None else None
    return view(tensor, tuple(shape[axis] for axis in axes), moved)


def transpose(tensor: Tensor, first: int | None, second: int | None) -> Tensor:
    """Return a view with two axes exchanged."""
    if tensor.shape is None:
        return view(tensor, None, None)
    one, other = get_axis(tensor.shape, first), get_axis(tensor.shape, second)
    if one is None or other is None:
        return permute(tensor, None) if len(tensor.shape) > 1 else tensor
    order: list[int | None] = list(range(len(tensor.shape)))
    order[one], order[other] = other, one
    return permute(tensor, order)


def contiguous(tape: Tape, tensor: Tensor) -> Tensor:
    """Return a tensor whose elements are one after another: itself, or a copy."""
    packed = is_packed(tensor)
    if packed:
        return tensor
    if packed is None:
        return replace(make_unknown(tape, tensor.shape, tensor.dtype), has_gradient=tensor.has_gradient)
    return make(tape, tensor.shape, tensor.dtype, [tensor])


def expand(tensor: Tensor, sizes: Sequence[int | None] | None) -> Tensor:
    """Return a view in which axes of size 1 repeat."""
    shape = tensor.shape
    if shape is None or sizes is None or len(sizes) < len(shape):
        return view(tensor, None, None)
    old = (1,) * (len(sizes) - len(shape)) + shape
    new = tuple(side if size == -1 else size for side, size in zip(old, sizes, strict=True))
    strides = tensor.strides
    if strides is None:
        return view(tensor, new, None)
    wide = (0,) * (len(sizes) - len(shape)) + strides
    moved = tuple(0 if side == 1 and size != 1 else step for side, size, step in zip(old, new, wide, strict=True))
    return view(tensor, new, moved)


def unsqueeze(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a view with one more axis."""
    if tensor.shape is None or axis is None:
        return view(tensor, None, None)
    place = axis % (len(tensor.shape) + 1)
    shape = (*tensor.shape[:place], 1, *tensor.shape[place:])
    if tensor.strides is None:
        return view(tensor, shape, None)
    side = tensor.shape[place] if place < len(tensor.shape) else 1
    step = (side or 1) * tensor.strides[place] if place < len(tensor.shape) else 1
    return view(tensor, shape, (*tensor.strides[:place], step, *tensor.strides[place:]))


def squeeze(tensor: Tensor, axes: Sequence[int | None] | None) -> Tensor:
    """Return a view without axes of size 1: those that are given, or all."""
    shape = tensor.shape
    if shape is None or (axes is None and None in shape):
        return view(tensor, None, None)
    places = range(len(shape)) if axes is None else [get_axis(shape, axis) for axis in axes]
    if None in places or any(shape[place] is None for place in places if place is not None):
        return view(tensor, None, None)
    rest = [axis for axis in range(len(shape)) if not (axis in places and shape[axis] == 1)]
    strides = tensor.strides
    moved = tuple(strides[axis] for axis in rest) if strides is not None else None
    return view(tensor, tuple(shape[axis] for axis in rest), moved)


def narrow(tensor: Tensor, axis: int | None, length: int | None) -> Tensor:
    """Return a view of a part along an axis."""
    if tensor.shape is None or axis is None:
        return view(tensor, None, None)
    shape = (*tensor.shape[:axis], length, *tensor.shape[axis + 1 :])
    return view(tensor, shape, tensor.strides)


def select(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a view of one place along an axis."""
    if tensor.shape is None or axis is None:
        return view(tensor, None, None)
    strides = tensor.strides
    moved = (*strides[:axis], *strides[axis + 1 :]) if strides is not None else None
    return view(tensor, (*tensor.shape[:axis], *tensor.shape[axis + 1 :]), moved)


def unbind(tensor: Tensor, axis: int | None = 0) -> list[Tensor] | None:
    """Return the views along an axis; ``None`` where their number is not known."""
    if tensor.shape is None or axis is None or not tensor.shape:
        return None
    side = tensor.shape[axis]
    return [select(tensor, axis)] * side if side is not None and side <= MAX_PARTS else None


def split(tensor: Tensor, sizes: Sequence[int | None], axis: int) -> tuple[Tensor, ...]:
    """Return views of parts along an axis."""
    return tuple(narrow(tensor, axis, size) for size in sizes)


def join(tape: Tape, rows: Sequence[Any], value: Any) -> Tensor:
    """Return tensors one after another along an axis."""
    tensors = [as_tensor(tape, row) for row in rows]
    dtype = promote(*tensors) if tensors else ""
    if tape.autocast:
        tensors = [cast(tape, row, dtype) if dtype and row.dtype in ("bfloat16", "float16") else row for row in tensors]
    shapes = [row.shape for row in tensors if row.shape != (0,)]
    known = [shape for shape in shapes if shape is not None]
    axis = get_axis(known[0], value) if known else None
    if len(known) < len(shapes) or axis is None or len({len(shape) for shape in known}) != 1:
        return make(tape, None, dtype, tensors)
    sides = [shape[axis] for shape in known]
    total = None if None in sides else sum(side for side in sides if side is not None)
    others = [
        next((shape[place] for shape in known if shape[place] is not None), None) for place in range(len(known[0]))
    ]
    others[axis] = total
    return make(tape, tuple(others), dtype, tensors)


# ---- rules


def flatten(tape: Tape, tensor: Tensor, start: Any = 0, end: Any = -1) -> Tensor:
    """Return a tensor with several axes as one."""
    shape = tensor.shape
    if shape is None:
        return reshape(tape, tensor, None)
    if not shape:
        return reshape(tape, tensor, [1])
    first, last = get_axis(shape, start), get_axis(shape, end)
    if first is None or last is None:
        return reshape(tape, tensor, None)
    return reshape(tape, tensor, [*shape[:first], multiply(shape[first : last + 1]), *shape[last + 1 :]])


def turn(tensor: Tensor) -> Tensor:
    """Return a view with the last two axes exchanged."""
    return transpose(tensor, -2, -1) if tensor.shape is None or len(tensor.shape) > 1 else tensor
