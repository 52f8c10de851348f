"""Computes recurrent layers.

cuDNN keeps its own record of a pass. Its size is not documented: the limits are the gates alone, and twice those with
the state of each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.norms import make_weight
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_tensor,
    cast_down,
    make,
    multiply,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Module, Span, Storage, Tensor

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def run_recurrent(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> tuple[Tensor, Any]:
    """Return the results of ``LSTM``, ``GRU`` or ``RNN``: those of all steps, and the last state."""
    tensor = cast_down(tape, as_tensor(tape, inputs.get(0, "input")))
    hidden, layers = as_int(layer.get(1, "hidden_size")), as_int(layer.get(2, "num_layers", 1))
    is_first = layer.keywords.get("batch_first", layer.get(4, "batch_first", False))
    both = layer.keywords.get("bidirectional", layer.get(6, "bidirectional", False))
    sides = 2 if both is True else 1 if both is False else None
    shape = tensor.shape if tensor.shape is not None and len(tensor.shape) == 3 else (None, None, None)
    is_plain = "proj_size" not in layer.keywords and "dropout_state" not in layer.keywords
    width = multiply([hidden, sides]) if is_plain else None
    result = make(tape, (*shape[:2], width), tensor.dtype, [tensor, make_weight()])
    batch = shape[0] if is_first is True else shape[1] if is_first is False else None
    state = make(tape, (multiply([sides, layers]), batch, hidden), tensor.dtype, [result])
    if result.has_gradient:
        tape.save(tensor)
        tape.save(result)
        size = multiply([*shape[:2], width, layers, _GATES[module.name]])
        high = None if size is None else 2 * (size + size // _GATES[module.name]) * 4
        low = 0 if size is None else 2 * size
        tape.save(Tensor(Span(0, None), storage=Storage(Span(low, high))))
    return (result, (state, state)) if module.name == "LSTM" else (result, state)


def _pack(tape: Tape, given: Arguments) -> Any:
    """Return what is packed without its padding: at most all of it."""
    tape.is_sure = False
    return as_tensor(tape, given.get(0, "input"))


def _unpack(tape: Tape, given: Arguments) -> Any:
    """Return what was packed with its padding, and the lengths."""
    tensor = as_tensor(tape, given.get(0, "sequence"))
    return make(tape, tensor.shape, tensor.dtype, [tensor]), make(tape, (None,), "int64")


RULES: Mapping[str, Rule] = {
    "torch.nn.utils.rnn.pack_padded_sequence": _pack,
    "torch.nn.utils.rnn.pad_packed_sequence": _unpack,
}


def run_cell(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Any:
    """Return the next state of a cell."""
    tensor = cast_down(tape, as_tensor(tape, inputs.get(0, "input")))
    hidden = as_int(layer.get(1, "hidden_size"))
    gates = _GATES[module.name.removesuffix("Cell")]
    batch = tensor.shape[:-1] if tensor.shape else (None,)
    state = make(tape, (*batch, hidden), tensor.dtype, [tensor, make_weight()])
    if state.has_gradient:
        tape.save(tensor)
        tape.save(state)
        tape.save(make(tape, (*batch, multiply([gates + 1, hidden])), tensor.dtype))
    return (state, make(tape, state.shape, tensor.dtype, [state])) if module.name == "LSTMCell" else state
