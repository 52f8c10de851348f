"""Computes losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import apply, combine
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    FLOATS,
    Rule,
    as_tensor,
    cast_up,
    is_tensor,
    make,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import broadcast
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor

_PAIRS = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"),
    *("binary_cross_entropy", "soft_margin_loss"),
)


def _reduce(tape: Tape, tensor: Tensor, given: Arguments, shape: Shape | None) -> Tensor:
    """Return a loss: one number, or one for each element."""
    reduction = given.keywords.get("reduction", "mean")
    whole = () if reduction in ("mean", "sum") else shape if reduction == "none" else None
    return make(tape, whole, tensor.dtype, [tensor])


def _compare(tape: Tape, given: Arguments) -> Any:
    """Return a loss of two tensors by their elements, which saves both."""
    first = cast_up(tape, as_tensor(tape, given.get(0, "input")))
    second = cast_up(tape, as_tensor(tape, given.get(1, "target")))
    shape = broadcast([first.shape, second.shape])
    both = first if first.has_gradient else second
    result = _reduce(tape, both, given, shape)
    if result.has_gradient:
        tape.save(first)
        tape.save(second)
        tape.note_transient([4 * (both.size.high or 0)])
    return result


def cross_entropy(tape: Tape, given: Arguments) -> Any:
    """Return the loss of classes: autocast computes the logarithms as they come, and what is picked in 32 bits."""
    logits, target = as_tensor(tape, given.get(0, "input")), _find_target(tape, given)
    autocast, tape.autocast = tape.autocast, ""
    rows = apply(tape, "log_softmax", logits)
    tape.autocast = autocast
    if target.dtype in FLOATS and target.dtype:  # probabilities
        return combine(tape, "mul", rows, target)
    return _pick(tape, cast_up(tape, rows), target, given)


def _find_target(tape: Tape, given: Arguments) -> Tensor:
    """Return the classes of a loss; where they are not known, one for each row of what they are compared with."""
    value, logits = given.get(1, "target"), as_tensor(tape, given.get(0, "input"))
    if is_tensor(value) or logits.shape is None or len(logits.shape) < 2:
        return as_tensor(tape, value)
    if logits.has_gradient:
        for _ in range(2):  # it may have a share for each class
            tape.save(make(tape, logits.shape, "float32"), is_sure=False)
    return replace(make(tape, (logits.shape[0], *logits.shape[2:]), "int64"), storage=None)


def _pick(tape: Tape, rows: Tensor, target: Tensor, given: Arguments) -> Tensor:
    result = _reduce(tape, rows, given, target.shape)
    if result.has_gradient:
        tape.save(rows)
        tape.save(target)
        if isinstance(given.keywords.get("label_smoothing", 0.0), int | float) and given.keywords.get(
            "label_smoothing"
        ):
            tape.save(make(tape, target.shape, "float32"), is_sure=False)
            tape.save(make(tape, target.shape, "bool"), is_sure=False)
    return result


def _pick_classes(tape: Tape, given: Arguments) -> Any:
    rows = cast_up(tape, as_tensor(tape, given.get(0, "input")))
    return _pick(tape, rows, as_tensor(tape, given.get(1, "target")), given)


def _diverge(tape: Tape, given: Arguments) -> Any:
    """Return ``kl_div``: the target times its logarithm less the input."""
    rows = cast_up(tape, as_tensor(tape, given.get(0, "input")))
    target = cast_up(tape, as_tensor(tape, given.get(1, "target")))
    if target.has_gradient:
        for _ in range(3):
            tape.save(make(tape, target.shape, target.dtype), is_sure=False)
    product = combine(tape, "mul", target, rows)
    return _reduce(tape, product, given, product.shape)


def _compare_direction(tape: Tape, given: Arguments) -> Any:
    """Return ``cosine_similarity`` and the distance of pairs; what they save in between may be several tensors."""
    first = cast_up(tape, as_tensor(tape, given.get(0, "x1")))
    second = cast_up(tape, as_tensor(tape, given.get(1, "x2")))
    shape = broadcast([first.shape, second.shape])
    product = make(tape, shape, first.dtype, [first, second])
    if product.has_gradient:
        tape.save(first)
        tape.save(second)
        for _ in range(4):
            tape.save(make(tape, shape, first.dtype), is_sure=False)
    axis = given.get(2, "dim", 1)
    rank = len(shape) if shape is not None else 0
    place = axis % rank if isinstance(axis, int) and rank else None
    rest = tuple(side for index, side in enumerate(shape) if index != place) if shape is not None else None
    return make(tape, rest, product.dtype, [product])


RULES: dict[str, Rule] = {
    **dict.fromkeys(_PAIRS, _compare),
    **{"cross_entropy": cross_entropy, "nll_loss": _pick_classes, "kl_div": _diverge},
    **{"cosine_similarity": _compare_direction, "pairwise_distance": _compare_direction},
}
