"""Computes what linear layers store of their inputs: trained, frozen, or frozen with LoRA adapters.

A linear layer stores its input for the gradient of its weight only: a frozen one stores nothing of it (derivatives.yaml
of PyTorch, ``mm`` and ``linear``; bitsandbytes/autograd/_functions.py, ``MatMul4Bit``). An adapter stores what its
first matrix reads: the tensor that its neighbours read too, or a copy in another format of its own
(peft/tuners/lora/layer.py, ``_cast_input_dtype``). A dropout before it always makes that copy, and stores a mask. Under
a 4-bit base bitsandbytes before 0.43.2 (July 2024, its pull request 1270) stores inputs that nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from opsk.costmodel.elementwise import any_of, logical_not, lookup, to_int, where
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
class StoredInputs:
    """Bytes an element that are stored of the inputs of linear layers, one entry a plan.

    Parameters
    ----------
    attention
        Of the input of attention, ``hidden`` wide.
    output
        Of the input of the output projection, beyond the output of the attention core, which the core stores itself.
    mlp, down
        Of the input of the MLP, ``hidden`` wide, and of its inner product, which the last projection reads.
    ranks
        Of the outputs of the first matrices of adapters, a rank wide each, times the number of adapters of a layer.
    """

    attention: FloatColumn
    output: FloatColumn
    mlp: FloatColumn
    down: FloatColumn
    ranks: FloatColumn


def compute_stored_inputs(model: ShapeColumns, plans: PlanTable, shares: Shares, linear: FloatColumn) -> StoredInputs:
    """Return what is stored of the inputs of a layer's products.

    Parameters
    ----------
    linear
        Bytes of an element in which a trained product stores its input. Autocast from an fp32 residual makes a 16-bit
        copy for each product that reads it, unless a compiler makes it once.
    """
    # autocast caches weights, not activations
    copies = where(has_fp32_residual(plans, shares) & (plans.compiled == 0), 1.0, 0.0)
    attention, mlp = linear * (1.0 + 2.0 * copies), linear * (1.0 + copies * model.gated_mlp)
    zero = 0.0 * linear
    if not any_of(shares.lora_rank):
        return StoredInputs(attention=attention, output=zero, mlp=mlp, down=linear, ranks=zero)
    is_lora, is_quantised = shares.lora_rank > 0, to_int((plans.base_bits < 16) & logical_not(plans.upcast_base))
    drops, packed = to_int(plans.lora_dropout), to_int(plans.qkv_layout == _PACKED)
    keeps = to_int(plans.keeps_base_inputs & (plans.base_bits == _QLORA_BITS))
    codes = (is_quantised, drops, keeps, packed, plans.lora_targets, plans.adapter_format)
    columns = lookup(_ADAPTER_BYTES, slice(None), *codes)
    of_attention, output, first, gate, down, count = columns
    return StoredInputs(
        attention=where(is_lora, of_attention, attention),
        output=where(is_lora, output, zero),
        mlp=where(is_lora, first + gate * model.gated_mlp, mlp),
        down=where(is_lora, down, linear),
        ranks=where(is_lora, count * shares.lora_rank, zero),
    )


def _adapter_bytes(
    targets: LoraTargets, stored: AdapterFormat, *, is_quantised: bool, drops: bool, keeps: bool, packed: bool
) -> list[float]:
    """Return the bytes an element of `StoredInputs` for each kind of adapter; a gated MLP has its own entry.

    A quantised layer of bitsandbytes omits the cast of the base under autocast, so that its neighbours share their
    input again (peft/tuners/lora/bnb.py, ``requires_conversion``); an fp32 input is cast by each of them all the same.
    The one adapter of a packed product has one input. Inputs that a base stores are those of adapters where they share
    them; else they are separate, cast for each product from an fp32 stream.
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
_ADAPTER_BYTES = np.moveaxis(
    np.array(
        [
            _adapter_bytes(targets, stored, is_quantised=quantised, drops=drops, keeps=keeps, packed=packed)
            for quantised, drops, keeps, packed in product(_FLAGS, repeat=4)
            for targets, stored in product(LORA_TARGETS, ADAPTER_FORMATS)
        ]
    ).reshape(_SHAPE),
    -1,
    0,
)
