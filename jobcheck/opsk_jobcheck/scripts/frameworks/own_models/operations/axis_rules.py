"""Reads what operations that arrange the elements of tensors are given, and computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import (
    MAX_PARTS,
    complete_sizes,
    contiguous,
    expand,
    flatten,
    join,
    list_sizes,
    narrow,
    permute,
    reshape,
    select,
    split,
    squeeze,
    transpose,
    turn,
    unbind,
    unsqueeze,
)
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_sizes,
    as_tensor,
    get_axis,
    is_tensor,
    make,
    make_like,
    make_unknown,
    multiply,
    view,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape


def _reshape(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return reshape(tape, tensor, list_sizes(given, 1, "shape", "size"))


def _view(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    if len(given.positional) == 2 and not isinstance(given.positional[1], list | tuple | int):
        return view(tensor, None, None)  # in another type
    sizes = list_sizes(given, 1, "size")
    made = reshape(tape, tensor, sizes)
    return replace(made, storage=tensor.storage)


def _like(tape: Tape, given: Arguments) -> Any:
    other = as_tensor(tape, given.get(1, "other"))
    return reshape(tape, as_tensor(tape, given.get(0, "input")), other.shape)


def _flatten(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return flatten(tape, tensor, given.get(1, "start_dim", 0), given.get(2, "end_dim", -1))


def _unflatten(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    sizes = as_sizes(given.get(2, "sizes", given.keywords.get("unflattened_size")))
    axis = get_axis(tensor.shape, given.get(1, "dim")) if tensor.shape is not None else None
    if tensor.shape is None or axis is None or sizes is None:
        return reshape(tape, tensor, None)
    parts = complete_sizes((tensor.shape[axis],), sizes)
    return reshape(tape, tensor, [*tensor.shape[:axis], *parts, *tensor.shape[axis + 1 :]])


def _permute(tape: Tape, given: Arguments) -> Any:
    return permute(as_tensor(tape, given.get(0, "input")), list_sizes(given, 1, "dims"))


def _transpose(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    if len(given.positional) > 3 or isinstance(given.get(1, "dim0"), list | tuple):  # of an array of NumPy
        return permute(tensor, list_sizes(given, 1, "axes"))
    return transpose(tensor, as_int(given.get(1, "dim0")), as_int(given.get(2, "dim1")))


def _turn(tape: Tape, given: Arguments) -> Any:
    return turn(as_tensor(tape, given.get(0, "input")))


def _move_axis(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    shape = tensor.shape
    if shape is None:
        return view(tensor, None, None)
    source, target = get_axis(shape, given.get(1, "source")), get_axis(shape, given.get(2, "destination"))
    if source is None or target is None:
        return permute(tensor, None)
    order: list[int | None] = [axis for axis in range(len(shape)) if axis != source]
    order.insert(target, source)
    return permute(tensor, order)


def _contiguous(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    if "memory_format" in given.keywords or len(given.positional) > 1:
        return make_like(tape, tensor)
    return contiguous(tape, tensor)


def _clone(tape: Tape, given: Arguments) -> Any:
    return make_like(tape, as_tensor(tape, given.get(0, "input")))


def _detach(tape: Tape, given: Arguments) -> Any:
    return replace(as_tensor(tape, given.get(0, "input")), has_gradient=False)


def _same(tape: Tape, given: Arguments) -> Any:
    return as_tensor(tape, given.get(0, "input"))


def _expand(tape: Tape, given: Arguments) -> Any:
    return expand(as_tensor(tape, given.get(0, "input")), list_sizes(given, 1, "size"))


def _expand_as(tape: Tape, given: Arguments) -> Any:
    return expand(as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(1, "other")).shape)


def _unsqueeze(tape: Tape, given: Arguments) -> Any:
    return unsqueeze(as_tensor(tape, given.get(0, "input")), as_int(given.get(1, "dim")))


def _squeeze(tape: Tape, given: Arguments) -> Any:
    value = given.get(1, "dim")
    axes = None if value is None else as_sizes(value) or [as_int(value)]
    return squeeze(as_tensor(tape, given.get(0, "input")), axes)


def _repeat(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    times = list_sizes(given, 1, "repeats", "dims")
    shape = tensor.shape
    if shape is None or times is None:
        return make(tape, None, tensor.dtype, [tensor])
    length = max(len(times), len(shape))
    old = (1,) * (length - len(shape)) + shape
    counts = [1] * (length - len(times)) + times
    return make(tape, tuple(multiply(pair) for pair in zip(old, counts, strict=True)), tensor.dtype, [tensor])


def _repeat_interleave(tape: Tape, given: Arguments) -> Any:
    tensor, axis_value = as_tensor(tape, given.get(0, "input")), given.get(2, "dim")
    count = as_int(given.get(1, "repeats"))
    axis = get_axis(tensor.shape, axis_value) if tensor.shape is not None else None
    if tensor.shape is None or axis is None:
        return make(tape, None if axis_value is not None else (None,), tensor.dtype, [tensor])
    side = multiply([tensor.shape[axis], count])
    return make(tape, (*tensor.shape[:axis], side, *tensor.shape[axis + 1 :]), tensor.dtype, [tensor])


def _cat(tape: Tape, given: Arguments) -> Any:
    rows = given.get(0, "tensors")
    value = given.get(1, "dim", given.keywords.get("axis", 0))
    if not isinstance(rows, list | tuple) or not rows:
        return make_unknown(tape)
    return join(tape, rows, value)


def _stack(tape: Tape, given: Arguments) -> Any:
    rows = given.get(0, "tensors")
    value = as_int(given.get(1, "dim", given.keywords.get("axis", 0)))
    if is_tensor(rows):
        return rows
    if not isinstance(rows, list | tuple) or not rows:
        return make_unknown(tape)
    return join(tape, [unsqueeze(as_tensor(tape, row), value) for row in rows], value)


def _split(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "tensor"))
    sizes = given.get(1, "split_size_or_sections", given.keywords.get("split_size"))
    axis = get_axis(tensor.shape, given.get(2, "dim", 0)) if tensor.shape is not None else None
    if tensor.shape is None or axis is None:
        return make_unknown(tape) if not isinstance(sizes, list | tuple) else [make_unknown(tape)] * len(sizes)
    if isinstance(sizes, list | tuple):
        return split(tensor, [as_int(size) for size in sizes], axis)
    step, side = as_int(sizes), tensor.shape[axis]
    if not step or side is None or side > step * MAX_PARTS:
        return make_unknown(tape)
    return split(tensor, [min(step, side - start) for start in range(0, side, step)], axis)


def _chunk(tape: Tape, given: Arguments) -> Any:
    tensor, count = as_tensor(tape, given.get(0, "input")), as_int(given.get(1, "chunks"))
    axis = get_axis(tensor.shape, given.get(2, "dim", 0)) if tensor.shape is not None else None
    if not count or not 0 < count <= MAX_PARTS:
        return make_unknown(tape)
    if tensor.shape is None or axis is None:
        return tuple([view(tensor, None, None)] * count)
    side = tensor.shape[axis]
    if side is None:
        return split(tensor, [None] * count, axis)
    step = max(1, -(-side // count))
    return split(tensor, [min(step, side - start) for start in range(0, side, step)], axis)


def _unbind(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    axis = get_axis(tensor.shape, given.get(1, "dim", 0)) if tensor.shape is not None else None
    rows = unbind(tensor, axis)
    return make_unknown(tape) if rows is None else tuple(rows)


def _narrow(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    axis = get_axis(tensor.shape, given.get(1, "dim")) if tensor.shape is not None else None
    return narrow(tensor, axis, as_int(given.get(3, "length")))


def _select(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return select(tensor, get_axis(tensor.shape, given.get(1, "dim")) if tensor.shape is not None else None)


def _copy(tape: Tape, given: Arguments) -> Any:
    """Return a new tensor of the same shape, of which nothing is saved: ``flip``, ``roll``, ``tril``."""
    tensor = as_tensor(tape, given.get(0, "input"))
    return make(tape, tensor.shape, tensor.dtype, [tensor])


RULES: dict[str, Rule] = {
    **{"reshape": _reshape, "view": _view, "view_as": _like, "reshape_as": _like, "flatten": _flatten},
    **{"ravel": lambda tape, given: flatten(tape, as_tensor(tape, given.get(0, "input"))), "unflatten": _unflatten},
    **{"permute": _permute, "transpose": _transpose, "swapaxes": _transpose, "swapdims": _transpose, "t": _turn},
    **{"adjoint": _turn, "movedim": _move_axis, "moveaxis": _move_axis, "contiguous": _contiguous, "clone": _clone},
    **{"detach": _detach, "detach_": _detach, "expand": _expand, "expand_as": _expand_as, "broadcast_to": _expand},
    **{"unsqueeze": _unsqueeze, "unsqueeze_": _unsqueeze, "squeeze": _squeeze, "squeeze_": _squeeze},
    **{"repeat": _repeat, "tile": _repeat, "repeat_interleave": _repeat_interleave, "cat": _cat, "concat": _cat},
    **{"concatenate": _cat, "stack": _stack, "split": _split, "split_with_sizes": _split, "chunk": _chunk},
    **{"unbind": _unbind, "narrow": _narrow, "select": _select, "flip": _copy, "roll": _copy, "tril": _copy},
    **{"triu": _copy, "fliplr": _copy, "flipud": _copy},
    **dict.fromkeys(("cuda", "cpu", "pin_memory", "requires_grad_", "coalesce", "retain_grad", "share_memory_"), _same),
}
