"""Computes operations that reduce a tensor along axes, and those that sort it."""

from __future__ import annotations

from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import IN_FULL, combine, get_dtype
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    FLOATS,
    Rule,
    as_int,
    as_sizes,
    as_tensor,
    cast,
    cast_up,
    get_axis,
    is_tensor,
    make,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor

_FULL = IN_FULL | {"sum", "prod", "norm"}
_SAVES_INPUT = frozenset({"var", "std", "norm", "prod", "logsumexp", "amax", "amin", "median", "cumprod"})
_SAVES_RESULT = frozenset({"std", "norm", "prod", "logsumexp", "amax", "amin"})


def reduce_shape(shape: Shape | None, value: Any, keeps: Any) -> Shape | None:
    """Return the shape of a tensor after a reduction along axes; along all for ``None``."""
    if shape is None or not isinstance(keeps, bool):
        return None
    given = list(range(len(shape))) if value is None else as_sizes(value) or [as_int(value)]
    axes = [get_axis(shape, axis) for axis in given]
    if None in axes:
        return None
    if keeps:
        return tuple(1 if axis in axes else side for axis, side in enumerate(shape))
    return tuple(side for axis, side in enumerate(shape) if axis not in axes)


def reduce(tape: Tape, name: str, value: Tensor, axes: Any, keeps: Any = False) -> Tensor:
    """Return a reduction of a tensor along axes."""
    tensor = cast_up(tape, value) if name in _FULL else value
    dtype = tensor.dtype
    if name in ("sum", "prod") and dtype not in FLOATS:
        dtype = "int64"
    if name in ("any", "all"):
        dtype = "bool"
    if name in ("argmax", "argmin", "count_nonzero"):
        dtype = "int64"
    result = make(tape, reduce_shape(tensor.shape, axes, keeps), dtype, [tensor])
    if result.has_gradient:
        if name in _SAVES_INPUT:
            tape.save(tensor)
        if name in _SAVES_RESULT:
            tape.save(result)
    return result


def _get_axes(given: Arguments, place: int = 1) -> tuple[Any, Any]:
    axes = given.get(place, "dim", given.keywords.get("axis"))
    return axes, given.get(place + 1, "keepdim", given.keywords.get("keepdims", False))


def _reduce(name: str) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        place = 2 if name == "norm" else 1
        if (
            name in ("mean", "sum", "amax", "amin")
            and len(given.positional) > 2
            and as_int(given.positional[2]) is not None
        ):
            axes, keeps = list(given.positional[1:]), False
        else:
            axes, keeps = _get_axes(given, place)
        if name in ("var", "std") and isinstance(axes, bool):
            axes, keeps = None, False
        tensor = as_tensor(tape, given.get(0, "input"))
        if dtype := get_dtype(given.keywords.get("dtype")):
            tensor = cast(tape, tensor, dtype)
        return reduce(tape, name, tensor, axes, keeps)

    return rule


def _find_extreme(tape: Tape, given: Arguments) -> Any:
    """Return ``max`` and ``min``: of all, along an axis with the places, or of two tensors."""
    tensor = as_tensor(tape, given.get(0, "input"))
    axis, keeps = _get_axes(given)
    if is_tensor(axis) or "other" in given.keywords:
        return combine(tape, "maximum", tensor, given.get(1, "other"))
    if axis is None:
        result = make(tape, (), tensor.dtype, [tensor])
        if result.has_gradient:
            tape.save(tensor)
            tape.save(result)
        return result
    return _pair(tape, tensor, reduce_shape(tensor.shape, axis, keeps))


def _pair(tape: Tape, tensor: Tensor, shape: Shape | None) -> tuple[Tensor, Tensor]:
    """Return values of a tensor with their places, which are saved."""
    result, places = make(tape, shape, tensor.dtype, [tensor]), make(tape, shape, "int64")
    if result.has_gradient:
        tape.save(places)
    return result, places


def _sort(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return _pair(tape, tensor, tensor.shape)


def _find_largest(tape: Tape, given: Arguments) -> Any:
    """Return ``topk``."""
    tensor = as_tensor(tape, given.get(0, "input"))
    axis = get_axis(tensor.shape, given.get(2, "dim", -1)) if tensor.shape is not None else None
    count = as_int(given.get(1, "k"))
    shape = None
    if tensor.shape is not None and axis is not None:
        shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
    return _pair(tape, tensor, shape)


def _order(tape: Tape, given: Arguments) -> Any:
    return make(tape, as_tensor(tape, given.get(0, "input")).shape, "int64")


def _measure_pair(tape: Tape, given: Arguments) -> Any:
    """Return ``var_mean``."""
    tensor = as_tensor(tape, given.get(0, "input"))
    axes, keeps = _get_axes(given)
    return reduce(tape, "var", tensor, axes, keeps), reduce(tape, "mean", tensor, axes, keeps)


_NAMES = ("sum", "mean", "var", "std", "norm", "prod", "logsumexp", "amax", "amin", "any", "all", "argmax", "argmin")
RULES: dict[str, Rule] = {
    **{name: _reduce(name) for name in (*_NAMES, "count_nonzero", "nansum", "nanmean")},
    **{"max": _find_extreme, "min": _find_extreme, "median": _find_extreme, "sort": _sort, "argsort": _order},
    **{"topk": _find_largest, "var_mean": _measure_pair},
}
