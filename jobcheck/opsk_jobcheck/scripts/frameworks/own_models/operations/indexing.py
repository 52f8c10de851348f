"""Computes parts of tensors that are taken by their places: ``x[:, 0]``, ``gather``, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import narrow, select, unsqueeze
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_tensor,
    get_axis,
    is_tensor,
    make,
    make_unknown,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import broadcast
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an axis (``1:5:2``); a limit is ``None`` where there is none, and no number where it is not known."""

    start: Any
    stop: Any
    step: Any

    def count(self, side: int | None) -> int | None:
        """Return the places of an axis that are in the part."""
        if (self.start, self.stop, self.step) == (None, None, None):
            return side
        ends = [self.start, self.stop, self.step]
        if side is None or any(end is not None and as_int(end) is None for end in ends) or self.step == 0:
            return None
        return len(range(*slice(*(None if end is None else as_int(end) for end in ends)).indices(side)))


class Dots:
    """All the axes that an index leaves out (``...``)."""


def index(tape: Tape, tensor: Tensor, items: Sequence[Any]) -> Tensor:
    """Return a part of a tensor by its index: a view, or a copy where places are given by tensors."""
    if tensor.shape is None:
        return make_unknown(tape, None, tensor.dtype)
    used = sum(_count_axes(item) for item in items)
    rest = len(tensor.shape) - used
    if rest < 0:
        return make_unknown(tape, None, tensor.dtype)
    row = [part for item in items for part in ([Part(None, None, None)] * rest if isinstance(item, Dots) else [item])]
    result, axis = tensor, 0
    chosen: list[tuple[int, Tensor]] = []
    for item in row:
        if item is None:
            result = unsqueeze(result, axis)
            axis += 1
        elif isinstance(item, Part):
            result = _narrow(result, axis, item)
            axis += 1
        elif as_int(item) is not None:
            result = select(result, axis)
        elif isinstance(item, list | tuple) or (is_tensor(item) and as_tensor(tape, item).shape != ()):
            places = as_tensor(tape, item) if is_tensor(item) else make(tape, (len(item),), "int64")
            chosen.append((axis, places))
            axis += _count_axes(places)
        elif is_tensor(item):
            result = select(result, axis)
        else:
            return make_unknown(tape, None, tensor.dtype)  # a number or a part
    return _choose(tape, result, chosen) if chosen else result


def _count_axes(item: Any) -> int:
    """Return the axes of a tensor that one item of an index stands for."""
    if item is None or isinstance(item, Dots):
        return 0
    is_mask = isinstance(item, Tensor) and item.dtype in ("bool", "uint8") and item.shape is not None
    return len(item.shape) if is_mask and item.shape else 1


def _narrow(tensor: Tensor, axis: int, part: Part) -> Tensor:
    shape = tensor.shape or ()
    made = narrow(tensor, axis, part.count(shape[axis]))
    step = as_int(part.step) if part.step is not None else 1
    if tensor.strides is None or step == 1:
        return made
    strides = (*tensor.strides[:axis], tensor.strides[axis] * (step or 1), *tensor.strides[axis + 1 :])
    return replace(made, strides=strides if step is not None else None)


def _choose(tape: Tape, tensor: Tensor, chosen: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Return the places of a tensor that other tensors name, which are saved."""
    shape = tensor.shape or ()
    places: Shape | None
    if any(row.dtype in ("bool", "uint8", "") or row.shape is None for _, row in chosen):
        places = (None,) if all(row.dtype == "bool" for _, row in chosen) else None
    else:
        places = broadcast([row.shape for _, row in chosen])
    taken = {axis + step for axis, row in chosen for step in range(_count_axes(row))}
    first = min(axis for axis, _ in chosen)
    is_together = len(taken) == max(taken) - min(taken) + 1
    before = [side for axis, side in enumerate(shape) if axis not in taken and (axis < first and is_together)]
    after = [side for axis, side in enumerate(shape) if axis not in taken and not (axis < first and is_together)]
    whole = (*before, *places, *after) if places is not None else None
    result = make(tape, whole, tensor.dtype, [tensor])
    if result.has_gradient:
        for _, row in chosen:
            tape.save(row if row.dtype != "bool" else make(tape, (None,), "int64"))
    return result


def embed(tape: Tape, places: Tensor, weight: Tensor, width: int | None) -> Tensor:
    """Return the rows of a weight that a tensor names; the names are saved."""
    shape = (*places.shape, width) if places.shape is not None else None
    result = make(tape, shape, weight.dtype, [weight])
    if result.has_gradient:
        tape.save(places)
    return result


def _embed(tape: Tape, given: Arguments) -> Any:
    weight = as_tensor(tape, given.get(1, "weight"))
    width = weight.shape[1] if weight.shape is not None and len(weight.shape) == 2 else None
    return embed(tape, as_tensor(tape, given.get(0, "input")), weight, width)


def _gather(tape: Tape, given: Arguments) -> Any:
    tensor, places = as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(2, "index"))
    result = make(tape, places.shape, tensor.dtype, [tensor])
    if result.has_gradient:
        tape.save(places)
    return result


def _select(tape: Tape, given: Arguments) -> Any:
    """Return ``index_select``."""
    tensor, places = as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(2, "index"))
    axis = get_axis(tensor.shape, given.get(1, "dim")) if tensor.shape is not None else None
    shape = None
    if tensor.shape is not None and axis is not None:
        count = places.shape[0] if places.shape else None
        shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
    result = make(tape, shape, tensor.dtype, [tensor])
    if result.has_gradient:
        tape.save(places)
    return result


def _scatter(tape: Tape, given: Arguments) -> Any:
    """Return a tensor in which some places have other values; the places are saved."""
    tensor, places = as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(2, "index"))
    value = given.get(3, "src", given.keywords.get("value", given.keywords.get("source", 0)))
    inputs = [tensor, as_tensor(tape, value)] if is_tensor(value) else [tensor]
    result = make(tape, tensor.shape, tensor.dtype, inputs)
    if result.has_gradient:
        tape.save(places)
    return result


def _scatter_in_place(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return replace(_scatter(tape, given), storage=tensor.storage, strides=tensor.strides)


def _mark(tape: Tape, given: Arguments) -> Any:
    """Return the elements under a mask, the number of which is not known."""
    tensor, mask = as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(1, "mask"))
    result = make(tape, (None,), tensor.dtype, [tensor])
    if result.has_gradient:
        tape.save(tensor)
        tape.save(mask)
    return result


def put(tensor: Tensor, value: Tensor) -> Tensor:
    """Return a tensor of which a part was set."""
    return replace(tensor, has_gradient=tensor.has_gradient or value.has_gradient)


RULES: dict[str, Rule] = {
    **{"embedding": _embed, "gather": _gather, "take_along_dim": _gather, "index_select": _select},
    **dict.fromkeys(("scatter", "scatter_add", "index_add", "index_fill", "index_copy"), _scatter),
    **{f"{name}_": _scatter_in_place for name in ("scatter", "scatter_add", "index_add", "index_fill", "index_copy")},
    "masked_select": _mark,
}
