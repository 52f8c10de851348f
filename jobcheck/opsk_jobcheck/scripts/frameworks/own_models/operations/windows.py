"""Computes operations that move a window over a tensor: convolutions, pooling, and changes of its size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_sizes,
    as_tensor,
    cast_down,
    cast_up,
    get_axis,
    make,
    multiply,
    save,
    view,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor

Sides = Sequence[int | None]


def spread(value: Any, axes: int) -> list[int | None]:
    """Return a size for each axis: one for all, or one each."""
    sizes = as_sizes(value)
    if sizes is None:
        return [as_int(value)] * axes
    return sizes * axes if len(sizes) == 1 else sizes if len(sizes) == axes else [None] * axes


def slide(side: int | None, kernel: int | None, stride: int | None, pad: int | None, gap: int | None) -> int | None:
    """Return the places of a window along an axis."""
    if side is None or kernel is None or not stride or pad is None or gap is None:
        return None
    places = (side + 2 * pad - gap * (kernel - 1) - 1) // stride + 1
    return places if places > 0 else None


def convolve(tape: Tape, tensor: Tensor, weight: Tensor, width: int | None, given: Arguments, axes: int) -> Tensor:
    """Return a convolution; ``given`` has the kernel first (``kernel_size``), then stride, padding and dilation."""
    row, factor = cast_down(tape, tensor), cast_down(tape, weight)
    kernel, stride = spread(given.get(0, "kernel_size"), axes), spread(given.get(1, "stride", 1), axes)
    gap, pad = spread(given.get(3, "dilation", 1), axes), given.get(2, "padding", 0)
    is_single = row.shape is not None and len(row.shape) == axes + 1
    if row.shape is None or len(row.shape) not in (axes + 1, axes + 2):
        sides: list[int | None] = [None] * axes
    elif pad == "same":
        sides = list(row.shape[-axes:])
    else:
        pads = [0] * axes if pad == "valid" else spread(pad, axes)
        sides = [slide(*row) for row in zip(row.shape[-axes:], kernel, stride, pads, gap, strict=True)]
    return _finish(tape, row, factor, width, sides, is_single=is_single)


def convolve_transposed(
    tape: Tape, tensor: Tensor, weight: Tensor, width: int | None, given: Arguments, axes: int
) -> Tensor:
    """Return a transposed convolution; ``given`` is as of the layer behind its channels."""
    row, factor = cast_down(tape, tensor), cast_down(tape, weight)
    kernel, stride = spread(given.get(0, "kernel_size"), axes), spread(given.get(1, "stride", 1), axes)
    pad, extra = spread(given.get(2, "padding", 0), axes), spread(given.get(3, "output_padding", 0), axes)
    gap = spread(given.get(6, "dilation", 1), axes)
    sides: list[int | None] = [None] * axes
    is_single = row.shape is not None and len(row.shape) == axes + 1
    if row.shape is not None and len(row.shape) in (axes + 1, axes + 2):
        for place, numbers in enumerate(zip(row.shape[-axes:], kernel, stride, pad, extra, gap, strict=True)):
            if None not in numbers:
                side, window, step, edge, more, hole = (number or 0 for number in numbers)
                sides[place] = (side - 1) * step - 2 * edge + hole * (window - 1) + more + 1
    return _finish(tape, row, factor, width, sides, is_single=is_single)


def _finish(tape: Tape, row: Tensor, factor: Tensor, width: int | None, sides: Sides, *, is_single: bool) -> Tensor:
    batch = () if is_single else (row.shape[0] if row.shape else None,)
    result = make(tape, (*batch, width, *sides), row.dtype, [row, factor])
    if result.has_gradient:
        save(tape, row, factor)
    return result


def pool(tape: Tape, name: str, tensor: Tensor, given: Arguments, axes: int) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest values, or the means, of windows; ``given`` has the kernel first."""
    kernel_value = given.get(0, "kernel_size")
    kernel, stride_value = spread(kernel_value, axes), given.get(1, "stride")
    stride = kernel if stride_value is None or stride_value == [] else spread(stride_value, axes)
    is_max = name == "max"
    pad = spread(given.get(2, "padding", 0), axes)
    gap = spread(given.get(3, "dilation", 1), axes) if is_max else [1] * axes
    rounds_up = given.get(5, "ceil_mode", False) if is_max else given.get(3, "ceil_mode", False)
    shape: Shape | None = None
    if tensor.shape is not None and len(tensor.shape) > axes:
        sides = []
        for side, window, step, edge, hole in zip(tensor.shape[-axes:], kernel, stride, pad, gap, strict=True):
            places = slide(side, window, step, edge, hole)
            if rounds_up is True and None not in (side, window, step, edge, hole):
                rest = (side or 0) + 2 * (edge or 0) - (hole or 1) * ((window or 1) - 1) - 1
                places = math.ceil(rest / (step or 1)) + 1
                if (places - 1) * (step or 1) >= (side or 0) + (edge or 0):
                    places -= 1
            sides.append(places if rounds_up in (True, False) else None)
        shape = (*tensor.shape[:-axes], *sides)
    return _pool(tape, tensor, shape, is_max=is_max, gives_places=given.keywords.get("return_indices") is True)


def _pool(
    tape: Tape, tensor: Tensor, shape: Shape | None, *, is_max: bool, gives_places: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    result = make(tape, shape, tensor.dtype, [tensor])
    places = make(tape, shape, "int64") if is_max else None
    if result.has_gradient:
        tape.save(tensor)
        if places is not None:
            tape.save(places)
    return (result, places) if gives_places and places is not None else result


def pool_to(tape: Tape, name: str, tensor: Tensor, value: Any, axes: int) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest values, or the means, of as many windows as are asked for."""
    shape: Shape | None = None
    if tensor.shape is not None and len(tensor.shape) > axes:
        asked = list(value) if isinstance(value, list | tuple) else [value] * axes
        asked = asked if len(asked) == axes else [False] * axes
        sides = [old if new is None else as_int(new) for old, new in zip(tensor.shape[-axes:], asked, strict=True)]
        shape = (*tensor.shape[:-axes], *sides)
    is_mean = name != "max" and axes > 1 and shape is not None and all(side == 1 for side in shape[-axes:])
    if is_mean:
        return make(tape, shape, tensor.dtype, [tensor])
    return _pool(tape, tensor, shape, is_max=name == "max")


def resize(tape: Tape, value: Tensor, size: Any, factor: Any) -> Tensor:
    """Return a tensor of another size along the axes behind its channels; nothing is saved."""
    tensor = cast_up(tape, value)
    if tensor.shape is None or len(tensor.shape) < 3:
        return make(tape, None, tensor.dtype, [tensor])
    old = tensor.shape[2:]
    sides: list[int | None]
    if size is not None:
        sides = spread(size, len(old))
    else:
        factors = list(factor) if isinstance(factor, list | tuple) else [factor] * len(old)
        sides = [
            math.floor(side * scale) if side is not None and isinstance(scale, int | float) else None
            for side, scale in zip(old, factors if len(factors) == len(old) else [None] * len(old), strict=True)
        ]
    return make(tape, (*tensor.shape[:2], *sides), tensor.dtype, [tensor])


def pad_edges(tape: Tape, tensor: Tensor, value: Any) -> Tensor:
    """Return a tensor with more elements at its edges, the last axis first."""
    edges = as_sizes(value)
    if tensor.shape is None or edges is None or len(edges) % 2 or len(edges) > 2 * len(tensor.shape):
        return make(tape, None, tensor.dtype, [tensor])
    shape = list(tensor.shape)
    for index in range(0, len(edges), 2):
        parts = (shape[-1 - index // 2], edges[index], edges[index + 1])
        shape[-1 - index // 2] = None if None in parts else sum(part for part in parts if part is not None)
    return make(tape, tuple(shape), tensor.dtype, [tensor])


def unfold(tape: Tape, tensor: Tensor, given: Arguments) -> Tensor:
    """Return the windows of an image as columns."""
    kernel, gap = spread(given.get(0, "kernel_size"), 2), spread(given.get(1, "dilation", 1), 2)
    pad, stride = spread(given.get(2, "padding", 0), 2), spread(given.get(3, "stride", 1), 2)
    shape: Shape | None = None
    if tensor.shape is not None and len(tensor.shape) == 4:
        places = [slide(*row) for row in zip(tensor.shape[2:], kernel, stride, pad, gap, strict=True)]
        shape = (tensor.shape[0], multiply([tensor.shape[1], *kernel]), multiply(places))
    return make(tape, shape, tensor.dtype, [tensor])


def shuffle(tape: Tape, tensor: Tensor, value: Any, *, is_inverse: bool = False) -> Tensor:
    """Return a tensor with pixels made of channels, or channels of pixels."""
    factor, shape = as_int(value), tensor.shape
    if shape is None or not factor or len(shape) < 3:
        return make(tape, None, tensor.dtype, [tensor])
    channels, *sides = shape[-3:]
    square = factor * factor
    if is_inverse:
        rest = [None if side is None else side // factor for side in sides]
        row = (None if channels is None else channels * square, *rest)
    else:
        rest = [None if side is None else side * factor for side in sides]
        row = (None if channels is None else channels // square, *rest)
    return make(tape, (*shape[:-3], *row), tensor.dtype, [tensor])


# ---- rules

_Convolve = Callable[[Tape, Tensor, Tensor, int | None, Arguments, int], Tensor]


def _convolution(axes: int, *, is_transposed: bool = False) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        weight = as_tensor(tape, given.get(1, "weight"))
        shape = weight.shape if weight.shape is not None and len(weight.shape) == axes + 2 else (None,) * (axes + 2)
        groups = as_int(given.get(5 if is_transposed else 6, "groups", 1))
        stride, pad = given.get(3, "stride", 1), given.get(4, "padding", 0)
        tensor = as_tensor(tape, given.get(0, "input"))
        if is_transposed:
            rest = [
                list(shape[2:]),
                stride,
                pad,
                given.get(5, "output_padding", 0),
                1,
                True,
                given.get(7, "dilation", 1),
            ]
            groups = as_int(given.get(6, "groups", 1))
            return convolve_transposed(tape, tensor, weight, multiply([shape[1], groups]), Arguments(rest, {}), axes)
        rest = [list(shape[2:]), stride, pad, given.get(5, "dilation", 1)]
        return convolve(tape, tensor, weight, shape[0], Arguments(rest, {}), axes)

    return rule


def shift(given: Arguments, count: int = 1) -> Arguments:
    """Return arguments without the first ones."""
    return Arguments(given.positional[count:], given.keywords)


def _pooling(name: str, axes: int, *, gives_places: bool = False) -> Rule:
    def rule(tape: Tape, given: Arguments) -> Any:
        tensor, rest = as_tensor(tape, given.get(0, "input")), shift(given)
        if gives_places:
            rest = Arguments(rest.positional, {**rest.keywords, "return_indices": True})
        return pool(tape, name, tensor, rest, axes)

    return rule


def _pooling_to(name: str, axes: int) -> Rule:
    return lambda tape, given: pool_to(
        tape, name, as_tensor(tape, given.get(0, "input")), given.get(1, "output_size"), axes
    )


def _resize(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return resize(tape, tensor, given.get(1, "size"), given.get(2, "scale_factor"))


def _pad(tape: Tape, given: Arguments) -> Any:
    return pad_edges(tape, as_tensor(tape, given.get(0, "input")), given.get(1, "pad"))


def _unfold(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    if len(given.positional) == 4 or "dimension" in given.keywords:
        return _unfold_axis(tensor, shift(given))
    return unfold(tape, tensor, shift(given))


def _fold(tape: Tape, given: Arguments) -> Any:
    """Return ``fold``, the sum of windows: nothing of it is saved."""
    tensor, sides = as_tensor(tape, given.get(0, "input")), spread(given.get(1, "output_size"), 2)
    if tensor.shape is None or len(tensor.shape) != 3:
        return make(tape, None, tensor.dtype, [tensor])
    size = math.prod(side or 0 for side in spread(given.get(2, "kernel_size"), 2))
    channels = tensor.shape[1] // size if tensor.shape[1] is not None and size else None
    return make(tape, (tensor.shape[0], channels, *sides), tensor.dtype, [tensor])


def _unfold_axis(tensor: Tensor, given: Arguments) -> Tensor:
    """Return the windows of a tensor along an axis, as a view."""
    axis = get_axis(tensor.shape, given.get(0, "dimension")) if tensor.shape is not None else None
    size, step = as_int(given.get(1, "size")), as_int(given.get(2, "step"))
    if tensor.shape is None or axis is None or size is None or not step:
        return view(tensor, None, None)
    shape = (*tensor.shape[:axis], slide(tensor.shape[axis], size, step, 0, 1), *tensor.shape[axis + 1 :], size)
    strides = tensor.strides
    if strides is not None:
        strides = (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis])
    return view(tensor, shape, strides)


def _sample(tape: Tape, given: Arguments) -> Any:
    """Return ``grid_sample``, which saves the image and the places that it reads."""
    tensor, places = (
        cast_up(tape, as_tensor(tape, given.get(place, name))) for place, name in enumerate(("input", "grid"))
    )
    shape: Shape | None = None
    if tensor.shape is not None and places.shape is not None and len(places.shape) > 2:
        shape = (*tensor.shape[:2], *places.shape[1:-1])
    result = make(tape, shape, tensor.dtype, [tensor, places])
    if result.has_gradient:
        save(tape, tensor, places)
    return result


def _shuffle(tape: Tape, given: Arguments) -> Any:
    return shuffle(tape, as_tensor(tape, given.get(0, "input")), given.get(1, "upscale_factor"))


def _unshuffle(tape: Tape, given: Arguments) -> Any:
    return shuffle(tape, as_tensor(tape, given.get(0, "input")), given.get(1, "downscale_factor"), is_inverse=True)


RULES: dict[str, Rule] = {
    **{f"conv{axes}d": _convolution(axes) for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": _convolution(axes, is_transposed=True) for axes in (1, 2, 3)},
    **{f"{name}_pool{axes}d": _pooling(name, axes) for name in ("max", "avg") for axes in (1, 2, 3)},
    **{f"max_pool{axes}d_with_indices": _pooling("max", axes, gives_places=True) for axes in (1, 2, 3)},
    **{f"adaptive_{name}_pool{axes}d": _pooling_to(name, axes) for name in ("max", "avg") for axes in (1, 2, 3)},
    **{
        "interpolate": _resize,
        "upsample": _resize,
        "pad": _pad,
        "unfold": _unfold,
        "fold": _fold,
        "pixel_shuffle": _shuffle,
    },
    **{"grid_sample": _sample},
    **{"pixel_unshuffle": _unshuffle},
}
