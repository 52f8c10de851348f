"""What is kept of the inputs of linear layers, where their weights are trained, frozen, or frozen beside LoRA adapters?

A linear layer keeps its input for the gradient of its weight only: a frozen one keeps nothing of it (derivatives.yaml
of PyTorch, ``mm`` and ``linear``; bitsandbytes/autograd/_functions.py, ``MatMul4Bit``). An adapter keeps what its first
matrix reads, which is the tensor that its neighbours read too, or a copy in another format of its own
(peft/tuners/lora/layer.py, ``_cast_input_dtype``). A dropout before it makes that copy always, and keeps a mask. Under
a 4-bit base bitsandbytes before 0.43.2 (July 2024, its pull request 1270) keeps inputs that nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from opsk.costmodel.elementwise import any_of, looked_up, unless, where, whole
from opsk.costmodel.memory.family import has_fp32_residual
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import ADAPTER_FORMATS, LORA_TARGETS, QKV_LAYOUTS, FloatColumn, PlanTable
from opsk.workload.plan import AdapterFormat, LoraTargets, QkvLayout

_HALF, _FULL = 2.0, 4.0
"""Bytes of an element in 16 bits and in fp32."""
_QLORA_BITS = 4
_PACKED = QKV_LAYOUTS.index(QkvLayout.PACKED)
_MASK_BYTES = 1.0
"""Bytes of one element of a dropout's mask."""
_PROJECTIONS = {LoraTargets.ALL: 3.0, LoraTargets.ATTENTION: 3.0, LoraTargets.QUERY_VALUE: 2.0}
"""Adapters that read the input of attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInputs:
    """Bytes an element that are kept of the inputs of linear layers, one entry a plan.

    Parameters
    ----------
    attention
        Of the input of attention, ``hidden`` wide.
    output
        Of the input of the output projection, beyond the output of the attention core, which that keeps itself.
    mlp, down
        Of the input of the MLP, ``hidden`` wide, and of its inner product, which the last projection reads.
    ranks
        Of what the first matrices of adapters give, a rank wide each, times the number of adapters of a layer.
    """

    attention: FloatColumn
    output: FloatColumn
    mlp: FloatColumn
    down: FloatColumn
    ranks: FloatColumn


def kept_inputs(model: ShapeColumns, plans: PlanTable, shares: Shares, linear: FloatColumn) -> KeptInputs:
    """Return what is kept of the inputs of a layer's products.

    Parameters
    ----------
    linear
        Bytes of an element in which a trained product keeps its input. Autocast from an fp32 residual makes a 16-bit
        copy for each product that reads it, unless a compiler makes it once.
    """
    # a fine point of autocast: its cache is for weights, not for activations
    copies = where(has_fp32_residual(plans, shares) & (plans.compiled == 0), 1.0, 0.0)
    attention, mlp = linear * (1.0 + 2.0 * copies), linear * (1.0 + copies * model.gated_mlp)
    zero = 0.0 * linear
    if not any_of(shares.lora_rank):
        return KeptInputs(attention=attention, output=zero, mlp=mlp, down=linear, ranks=zero)
    is_lora, is_quantised = shares.lora_rank > 0, whole((plans.base_bits < 16) & unless(plans.upcast_base))
    drops, packed = whole(plans.lora_dropout), whole(plans.qkv_layout == _PACKED)
    keeps = whole(plans.keeps_base_inputs & (plans.base_bits == _QLORA_BITS))
    places = (is_quantised, drops, keeps, packed, plans.lora_targets, plans.adapter_format)
    found = looked_up(_ADAPTED, slice(None), *places)
    each, output, first, gate, down, count = found
    return KeptInputs(
        attention=where(is_lora, each, attention),
        output=where(is_lora, output, zero),
        mlp=where(is_lora, first + gate * model.gated_mlp, mlp),
        down=where(is_lora, down, linear),
        ranks=where(is_lora, count * shares.lora_rank, zero),
    )


def _adapted(
    targets: LoraTargets, stored: AdapterFormat, *, is_quantised: bool, drops: bool, keeps: bool, packed: bool
) -> list[float]:
    """Return the bytes an element of `KeptInputs` for each kind of adapter; those of the MLP where gated apart.

    A quantised layer of bitsandbytes leaves out the cast of the base under autocast, so that its neighbours share their
    input again (peft/tuners/lora/bnb.py, ``requires_conversion``); an fp32 input is cast by each of them all the same.
    The one adapter of a packed product has one input. Inputs that a base keeps are those of adapters where they share
    them; else they are apart, cast for each product from an fp32 stream.
    """
    has_output, has_mlp = targets is not LoraTargets.QUERY_VALUE, targets is LoraTargets.ALL
    projections = 1.0 if packed else _PROJECTIONS[targets]
    is_shared = stored is AdapterFormat.BASE or (stored is AdapterFormat.AUTOCAST and is_quantised)
    stored_width = _FULL if stored is AdapterFormat.FP32 else _HALF
    width = stored_width + _MASK_BYTES * drops
    is_shared = is_shared and not drops
    of_base, again = _HALF * keeps, 0.0 if is_quantised else _HALF * keeps
    reads_same = is_shared and is_quantised
    return [
        (width if is_shared else width * projections) + (0.0 if reads_same else of_base + 2.0 * again),
        0.0 if is_shared or not has_output else width,
        width * has_mlp + (0.0 if reads_same and has_mlp else of_base),
        (0.0 if is_shared else width * has_mlp) + again,
        width * has_mlp + (0.0 if reads_same and has_mlp else of_base),
        stored_width * (_PROJECTIONS[targets] + has_output + 3.0 * has_mlp),
    ]


_FLAGS = (False, True)
_SHAPE = (2, 2, 2, 2, len(LORA_TARGETS), len(ADAPTER_FORMATS), 6)
_ADAPTED = np.moveaxis(
    np.array(
        [
            _adapted(targets, stored, is_quantised=quantised, drops=drops, keeps=keeps, packed=packed)
            for quantised, drops, keeps, packed in product(_FLAGS, repeat=4)
            for targets, stored in product(LORA_TARGETS, ADAPTER_FORMATS)
        ]
    ).reshape(_SHAPE),
    -1,
    0,
)
