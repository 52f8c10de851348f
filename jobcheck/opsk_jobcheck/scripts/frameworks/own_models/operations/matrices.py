"""Computes products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import (
    expand,
    permute,
    reshape,
    squeeze,
    turn,
    unsqueeze,
)
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import combine
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_tensor,
    cast_down,
    make,
    make_unknown,
    multiply,
    promote,
    save_other,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import broadcast
from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Tensor


def linear(tape: Tape, tensor: Tensor, weight: Tensor, width: int | None) -> Tensor:
    """Return a tensor times a weight along its last axis, which has ``width`` elements then."""
    row, factor = cast_down(tape, tensor), cast_down(tape, weight)
    folded = fold(tape, row)
    shape = (*row.shape[:-1], width) if row.shape else None
    result = make(tape, shape, row.dtype, [row, factor])
    save_other(tape, folded, factor)
    return result


def fold(tape: Tape, tensor: Tensor) -> Tensor:
    """Return a tensor as a matrix with its last axis."""
    if tensor.shape is None or len(tensor.shape) <= 2:
        return tensor
    return reshape(tape, tensor, [multiply(tensor.shape[:-1]), tensor.shape[-1]])


def matmul(tape: Tape, one: Tensor, other: Tensor) -> Tensor:
    """Return the product of two tensors as ``torch.matmul`` computes it: of matrices, or of batches of them."""
    first, second = cast_down(tape, one), cast_down(tape, other)
    left, right = first.shape, second.shape
    if left is None or right is None or not left or not right:
        result = make(tape, None, promote(first, second), [first, second])
        save_other(tape, first, second)
        return result
    if len(left) == 1:
        return squeeze(matmul(tape, unsqueeze(first, 0), second), [-2])
    if len(right) == 1:
        return squeeze(matmul(tape, first, unsqueeze(second, -1)), [-1])
    dtype = promote(first, second)
    if len(right) == 2:
        save_other(tape, fold(tape, first), second)
        return make(tape, (*left[:-1], right[-1]), dtype, [first, second])
    batch = broadcast([left[:-2], right[:-2]])
    if len(left) == 2:
        save_other(tape, first, fold(tape, turn(second)))
        return make(tape, (*right[:-2], left[-2], right[-1]), dtype, [first, second])
    if batch is None:
        save_other(tape, first, second)
        return make(tape, None, dtype, [first, second])
    rows = [_batch(tape, row, batch) for row in (first, second)]
    save_other(tape, *rows)
    return make(tape, (*batch, left[-2], right[-1]), dtype, [first, second])


def _batch(tape: Tape, tensor: Tensor, batch: Shape) -> Tensor:
    """Return a tensor as one batch of matrices."""
    sides = tensor.shape or ()
    whole = expand(tensor, [*batch, *sides[-2:]])
    return reshape(tape, whole, [multiply(batch), *sides[-2:]]) if len(batch) != 1 else whole


def _matmul(tape: Tape, given: Arguments) -> Any:
    second = given.get(1, "other", given.keywords.get("mat2"))
    return matmul(tape, as_tensor(tape, given.get(0, "input")), as_tensor(tape, second))


def _linear(tape: Tape, given: Arguments) -> Any:
    weight = as_tensor(tape, given.get(1, "weight"))
    width = weight.shape[0] if weight.shape else None
    return linear(tape, as_tensor(tape, given.get(0, "input")), weight, width)


def _add_product(tape: Tape, given: Arguments) -> Any:
    """Return ``addmm`` and ``baddbmm``."""
    rows = [as_tensor(tape, value) for value in given.positional[1:3]]
    if len(rows) < 2:
        return make_unknown(tape)
    return combine(tape, "add", matmul(tape, *rows), given.positional[0])


def _outer(tape: Tape, given: Arguments) -> Any:
    rows = [as_tensor(tape, given.get(0, "input")), as_tensor(tape, given.get(1, "vec2"))]
    return combine(tape, "mul", unsqueeze(rows[0], -1), rows[1])


def _einsum(tape: Tape, given: Arguments) -> Any:
    rule = given.get(0, "equation")
    rows = list(given.positional[1:])
    if len(rows) == 1 and isinstance(rows[0], list | tuple):
        rows = list(rows[0])
    tensors = [cast_down(tape, as_tensor(tape, row)) for row in rows]
    parsed = _parse(rule, tensors) if isinstance(rule, str) else None
    if parsed is None or not tensors:
        for tensor in tensors:
            if tape.saves:
                tape.save(tensor)
        return make(tape, None, promote(*tensors) if tensors else "", tensors)
    letters, target, sides = parsed
    if len(tensors) == 1:
        kept = [letter for letter in letters[0] if letter in target]
        if set(letters[0]) == set(target):
            return permute(tensors[0], [letters[0].index(letter) for letter in target])
        return make(tape, tuple(sides[letter] for letter in target if letter in kept), tensors[0].dtype, tensors)
    row, axes = tensors[0], letters[0]
    for index in range(1, len(tensors)):
        rest = {letter for later in letters[index + 1 :] for letter in later} | set(target)
        row, axes = _contract(tape, (row, axes), (tensors[index], letters[index]), rest, sides)
    return permute(row, [axes.index(letter) for letter in target]) if set(axes) == set(target) else row


_Named = tuple[Tensor, list[str]]


def _contract(tape: Tape, one: _Named, other: _Named, rest: set[str], sides: dict[str, int | None]) -> _Named:
    """Return the product of two tensors whose axes have names, summed over those that nothing else has."""
    (first, left), (second, right) = one, other
    both = [letter for letter in left if letter in right]
    batch = [letter for letter in both if letter in rest]
    summed = [letter for letter in both if letter not in rest]
    rows, columns = [x for x in left if x not in both], [x for x in right if x not in both]
    size = {
        name: multiply([sides[x] for x in part])
        for name, part in (("b", batch), ("s", summed), ("r", rows), ("c", columns))
    }
    result_axes = [*batch, *rows, *columns]
    shape = tuple(sides[letter] for letter in result_axes)
    if not summed:
        product = make(tape, shape, promote(first, second), [first, second])
        save_other(tape, first, second)
        return product, result_axes
    moved = permute(first, [left.index(x) for x in (*batch, *rows, *summed)])
    turned = permute(second, [right.index(x) for x in (*batch, *summed, *columns)])
    matrices = [
        reshape(tape, moved, [size["b"], size["r"], size["s"]]),
        reshape(tape, turned, [size["b"], size["s"], size["c"]]),
    ]
    save_other(tape, *matrices)
    return make(tape, shape, promote(first, second), [first, second]), result_axes


def _parse(rule: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str], dict[str, int | None]] | None:
    """Return the names of the axes of tensors and result, with their sizes; ``None`` where that is not known."""
    text = rule.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors) or not arrow:
        return None
    sides: dict[str, int | None] = {}
    letters: list[list[str]] = []
    dots = 0
    for term, tensor in zip(terms, tensors, strict=True):
        if tensor.shape is None:
            return None
        open_axes = len(tensor.shape) - len(term.replace("...", ""))
        if open_axes < 0 or (open_axes > 0 and "..." not in term):
            return None
        dots = max(dots, open_axes)
        before, dotted, after = term.partition("...")
        names = [*before, *(f".{open_axes - index}" for index in range(open_axes) if dotted), *after]
        if len(set(names)) != len(names):
            return None
        for name, side in zip(names, tensor.shape, strict=True):
            if sides.get(name) in (None, 1):
                sides[name] = side
        letters.append(names)
    before, dotted, after = right.partition("...")
    target = [*before, *(f".{dots - index}" for index in range(dots) if dotted), *after]
    return (letters, target, sides) if all(name in sides for name in target) else None


RULES: dict[str, Rule] = {
    **{"matmul": _matmul, "bmm": _matmul, "mm": _matmul, "mv": _matmul, "dot": _matmul, "linear": _linear},
    **{"addmm": _add_product, "baddbmm": _add_product, "outer": _outer, "einsum": _einsum},
}
