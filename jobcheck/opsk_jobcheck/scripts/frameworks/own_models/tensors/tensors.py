"""Makes the tensors of a training step, and computes with their shapes.

A data loader yields what :func:`make_tensor` makes: one tensor for each part of a batch, with the sizes that one
process gets. Following the body of the training loop with them then gives a :class:`StepMemory`:

1. ``machine.start_step(autocast="bfloat16")`` begins to note what operations save for the backward pass; ``""`` is
   training without autocast.
2. ``machine.run(loop.body, frame)`` with the batch set in ``frame``, or ``machine.call(model, [batch], {}, node,
   frame)``, follows the forward pass. ``loss.backward()`` ends the step: what follows it is not noted.
3. ``machine.end_step()`` returns the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from opsk_jobcheck.scripts.frameworks.own_models.values import Shape, Span, Storage, Tensor

ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        **{"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4},
        **{"float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
    }
)
"""Bytes of an element of a type."""
_ANY_ELEMENT = Span(1, 8)


def make_tensor(shape: Shape | None, dtype: str = "float32", *, has_gradient: bool = False) -> Tensor:
    """Return a tensor in memory of its own, with its elements one after another."""
    size = count_elements(shape)
    return Tensor(
        size=size,
        shape=shape,
        strides=pack(shape),
        dtype=dtype,
        has_gradient=has_gradient,
        storage=Storage(size * get_element_bytes(dtype)),
    )


def get_element_bytes(dtype: str) -> Span:
    """Return the bytes of an element of a type."""
    size = ELEMENT_BYTES.get(dtype)
    return _ANY_ELEMENT if size is None else Span(size, size)


def count_elements(shape: Shape | None) -> Span:
    """Return the elements of a tensor; any number where an axis is not known."""
    if shape is None:
        return Span(0, None)
    if None in shape:
        return Span(0, 0 if 0 in shape else None)
    total = prod(shape)  # type: ignore[arg-type]
    return Span(total, total)


def pack(shape: Shape | None) -> tuple[int, ...] | None:
    """Return the strides of a tensor whose elements are one after another."""
    if shape is None or None in shape[1:]:
        return None
    strides: list[int] = []
    step = 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(1, side or 1)
    return tuple(reversed(strides))


def is_packed(tensor: Tensor) -> bool | None:
    """Return whether the elements of a tensor are one after another; ``None`` where that is not known."""
    if tensor.strides is None or tensor.shape is None:
        return None
    expected = pack(tensor.shape)
    if expected is None or expected == tensor.strides:
        return None if expected is None else True
    return all(
        side == 1 or stride == right for side, stride, right in zip(tensor.shape, tensor.strides, expected, strict=True)
    )


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """Return the shape of the result of an operation by elements; ``None`` where it is not known, or there is none."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    result: list[int | None] = []
    for axis in range(-max(map(len, known)), 0):
        sides = {shape[axis] for shape in known if -axis <= len(shape)}
        numbers = sides - {None, 1}
        if len(numbers) > 1:
            return None
        result.append(numbers.pop() if numbers else None if None in sides else 1)
    return tuple(result)
