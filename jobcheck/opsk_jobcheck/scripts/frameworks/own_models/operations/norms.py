"""Computes normalisations."""

from __future__ import annotations

from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import combine
from opsk_jobcheck.scripts.frameworks.own_models.operations.reductions import reduce
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_sizes,
    as_tensor,
    cast_up,
    make,
    make_like,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Span, Storage, Tensor


def _normalise(tape: Tape, tensor: Tensor, statistics: Shape | None, *, affine: bool = True) -> Tensor:
    """Return a normalised tensor: what it reads is saved, with two statistics in 32 bits."""
    inputs = [tensor, make_weight()] if affine else [tensor]
    result = make(tape, tensor.shape, tensor.dtype, inputs)
    if result.has_gradient:
        tape.save(tensor)
        for _ in range(2):
            tape.save(make(tape, statistics, "float32"))
    return result


def make_weight() -> Tensor:
    """Return a weight of a layer: the gradient of the result is computed for it, whatever the layer reads."""
    return Tensor(Span(1, 1), (), (), "float32", True, Storage(Span(4, 4), is_state=True))


def normalise_batch(tape: Tape, tensor: Tensor, *, affine: bool = True) -> Tensor:
    """Return a tensor that is normalised for each channel."""
    shape = tensor.shape
    return _normalise(tape, tensor, (shape[1],) if shape is not None and len(shape) > 1 else None, affine=affine)


def normalise_instances(tape: Tape, tensor: Tensor, *, affine: bool = False) -> Tensor:
    """Return a tensor that is normalised for each channel of each sample."""
    shape = tensor.shape
    return _normalise(tape, tensor, shape[:2] if shape is not None and len(shape) > 1 else None, affine=affine)


def normalise_layer(tape: Tape, value: Tensor, axes: int | None, *, affine: bool = True) -> Tensor:
    """Return a tensor that is normalised along its last axes."""
    tensor = cast_up(tape, value)
    statistics = None
    if tensor.shape is not None and axes is not None and axes <= len(tensor.shape):
        statistics = (*tensor.shape[: len(tensor.shape) - axes], *(1,) * axes)
    return _normalise(tape, tensor, statistics, affine=affine)


def normalise_groups(tape: Tape, value: Tensor, groups: int | None, *, affine: bool = True) -> Tensor:
    """Return a tensor that is normalised for each group of channels."""
    tensor = cast_up(tape, value)
    statistics = (tensor.shape[0], groups) if tensor.shape else None
    return _normalise(tape, tensor, statistics, affine=affine)


def normalise_root(tape: Tape, tensor: Tensor, axes: int | None, *, affine: bool = True) -> Tensor:
    """Return a tensor over the root of the mean of its squares."""
    statistics = None
    if tensor.shape is not None and axes is not None and axes <= len(tensor.shape):
        statistics = (*tensor.shape[: len(tensor.shape) - axes], *(1,) * axes)
    result = make(tape, tensor.shape, tensor.dtype, [tensor, make_weight()] if affine else [tensor])
    if result.has_gradient:
        tape.save(tensor)
        tape.save(make(tape, statistics, "float32"))
        tape.save(make(tape, tensor.shape, "float32"), is_sure=False)  # before 2.8 it is several operations
    return result


def _count_axes(value: Any) -> int | None:
    sizes = as_sizes(value)
    return len(sizes) if sizes is not None else 1 if as_int(value) is not None else None


def _layer_norm(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return normalise_layer(tape, tensor, _count_axes(given.get(1, "normalized_shape")))


def _root_norm(tape: Tape, given: Arguments) -> Any:
    tensor = as_tensor(tape, given.get(0, "input"))
    return normalise_root(tape, tensor, _count_axes(given.get(1, "normalized_shape")))


def _group_norm(tape: Tape, given: Arguments) -> Any:
    return normalise_groups(tape, as_tensor(tape, given.get(0, "input")), as_int(given.get(1, "num_groups")))


def _batch_norm(tape: Tape, given: Arguments) -> Any:
    return normalise_batch(tape, as_tensor(tape, given.get(0, "input")))


def _instance_norm(tape: Tape, given: Arguments) -> Any:
    return normalise_instances(tape, as_tensor(tape, given.get(0, "input")))


def _scale_to_one(tape: Tape, given: Arguments) -> Any:
    """Return ``normalize``: a tensor over its norm along an axis."""
    tensor = cast_up(tape, as_tensor(tape, given.get(0, "input")))
    norm = reduce(tape, "norm", tensor, given.get(2, "dim", 1), keeps=True)
    limited = make_like(tape, norm)
    if limited.has_gradient:
        tape.save(limited)
    return combine(tape, "div", tensor, limited)


def _respond_locally(tape: Tape, given: Arguments) -> Any:
    """Return ``local_response_norm``, which saves its squares and what it divides by."""
    tensor = as_tensor(tape, given.get(0, "input"))
    result = make(tape, tensor.shape, tensor.dtype, [tensor])
    if result.has_gradient:
        for _ in range(5):
            tape.save(make(tape, tensor.shape, tensor.dtype), is_sure=False)
        tape.save(tensor)
    return result


RULES: dict[str, Rule] = {
    **{"layer_norm": _layer_norm, "rms_norm": _root_norm, "group_norm": _group_norm, "batch_norm": _batch_norm},
    **{"instance_norm": _instance_norm, "normalize": _scale_to_one, "local_response_norm": _respond_locally},
}
