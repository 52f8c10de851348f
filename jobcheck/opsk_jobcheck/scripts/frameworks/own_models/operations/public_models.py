"""Computes public models of images that are part of a program's own model, by what was measured of them."""

from __future__ import annotations

from opsk.workload.public_models.measured import MeasuredModel, Unit
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import as_tensor, cast_down, make
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Module, Shape, Span, Storage, Tensor

_STEP = 32
"""Images shrink by it, and sides that are no multiple of it are rounded up on the way."""
_GRADIENTS = 4
"""Gradients of the largest tensor, which was measured in 16 bits: of what one operation reads and writes, in 32."""
_LOW, _HIGH = 0.85, 1.15
"""What a model saves over what was measured: its head, its release, and where weights are frozen."""


def run_measured(tape: Tape, module: Module, model: MeasuredModel, tensor: Tensor, shape: Shape | None) -> Tensor:
    """Return the result of a model of images, of a shape that is given, and note what it saves."""
    weights = as_tensor(tape, module.attributes.get("weights"))
    row = cast_down(tape, tensor)
    result = make(tape, shape, row.dtype, [row, weights])
    if not result.has_gradient:
        return result
    sides = tensor.shape[2:] if tensor.shape is not None and len(tensor.shape) == 4 else ()
    batch = tensor.shape[0] if tensor.shape else None
    if len(sides) != 2 or batch is None or None in sides or model.unit is not Unit.PIXELS:
        tape.give_up(f"what {module.name} reads is not known")
        return result
    sample = model.sample_fp32_bytes if row.dtype == "float32" else model.sample_bytes
    low = high = float(batch * sample) / (model.size * model.size)
    for side in sides:
        low *= max(1, (side or 0) // _STEP * _STEP)
        high *= -(-(side or 0) // _STEP) * _STEP
    copies = 0 if row.dtype == weights.dtype else 2 * (weights.size.high or 0)
    storage = Storage(Span(round(_LOW * low), round(_HIGH * high) + copies))
    tape.save(Tensor(Span(0, None), storage=storage))
    tape.note_transient([round(_GRADIENTS * high * model.tensor_bytes / sample)])
    return result
