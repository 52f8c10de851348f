"""Computes the time of adapters and of quantised weights, as PEFT and bitsandbytes run them: operation by operation.

An adapter adds ``B(A(dropout(x))) * scaling`` to the output of its layer (peft/tuners/lora/layer.py, ``forward`` of
``Linear``): two small products whose rank fills little of a tile, and elementwise passes over inputs and outputs, which
take more than the products. Kernels for quantised bases that fuse them add into the output as they multiply
(unsloth/kernels/fast_lora.py).

A weight in 4 or 8 bits is written out in 16 bits before each product that reads it, forward and backward
(bitsandbytes/autograd/_functions.py, ``MatMul4Bit``), and the product's output has the format of its input
(bitsandbytes/nn/modules.py, ``Linear4bit.forward``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import any_of, hypot, logical_not, lookup, to_float, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.family import has_plain_modules
from opsk.costmodel.memory.states import base_weight_bytes
from opsk.costmodel.passes import Passes
from opsk.costmodel.sizes.mixers import build_gpu_widths, mixer_adapters
from opsk.costmodel.sizes.parameters import attention_adapters, mlp_adapters
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import ADAPTER_FORMATS, LORA_TARGETS, BoolColumn, FloatColumn, PlanTable
from opsk.workload.plan import AdapterFormat, LoraTargets

FORWARD_BYTES, BACKWARD_BYTES = 7.0, 9.0
"""Bytes for an input or output element of an adapted layer. The forward reads the input (2) and writes, scales and adds
the output (2 + 4 + 6); the backward reads the gradient of the output three times and writes it once (8), and reads the
input, writes its gradient and adds that (10). Half of the elements are taken as inputs."""
FP32_FORWARD_BYTES, FP32_BACKWARD_BYTES = 19.0, 21.0
"""The same of fp32 adapters outside of autocast, which cast their input and their output (6 each)."""
FUSED_FORWARD_BYTES, FUSED_BACKWARD_BYTES = 3.0, 5.0
"""The same of a quantised base with fused kernels, where both products add into their result: 2 + 4 and 6 + 4."""
DROPOUT_BYTES, FP32_DROPOUT_BYTES = 2.5, 4.5
"""What a dropout adds to each way: it reads and writes the input, and a mask of a byte."""
FORWARD_LAUNCHES, BACKWARD_LAUNCHES = 4.0, 6.0
"""Kernels of an adapter: two products, scale and sum; their gradients by input and weight, scale and sum."""
UNPACK_LAUNCHES = 2.0
"""Kernels that write out a quantised weight: its scales, then the weight."""
_ADAPTED = {LoraTargets.ALL: 7.0, LoraTargets.ATTENTION: 4.0, LoraTargets.QUERY_VALUE: 2.0}
"""Adapters of a layer of attention and a gated MLP."""
_LAYERS = 7.0
_FP32 = ADAPTER_FORMATS.index(AdapterFormat.FP32)
_COUNT = np.array([_ADAPTED[targets] for targets in LORA_TARGETS])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTime:
    """The passes of the adapters of a layer with the dense MLP, and of one with experts."""

    plain: Passes
    sparse: Passes


def adapter_time(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine, elementwise: FloatColumn
) -> AdapterTime | None:
    """Return the passes of the adapters of one layer [s]; ``None`` where no plan has any.

    Parameters
    ----------
    elementwise
        Memory traffic of the software's elementwise operations over the least.
    """
    is_adapted = (shares.lora_rank > 0) & has_plain_modules(plans)
    if not any_of(is_adapted):
        return None
    targets, widths = shares.lora_targets, build_gpu_widths(model, shares)
    attention = attention_adapters(model, widths, targets)
    if model.has_mixers:
        attention = model.attention_share * attention + model.mixer_share * mixer_adapters(model, widths)
    seconds = _Seconds.build(plans, shares, machine, elementwise, is_adapted)
    common = seconds.of(shares.tokens, attention, shares)
    plain = common + seconds.of(shares.tokens, model.mlp_share * mlp_adapters(model, widths.ffn, targets), shares)
    if not model.has_experts:
        return AdapterTime(plain=plain, sparse=plain)
    expert = model.mlp_share * mlp_adapters(model, widths.expert, targets)
    shared = when(model.shared_ffn > 0, model.mlp_share * mlp_adapters(model, widths.shared, targets))
    sparse = common + seconds.of(shares.expert_tokens, expert, shares) + seconds.of(shares.tokens, shared, shares)
    return AdapterTime(plain=plain, sparse=sparse)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seconds:
    """Seconds of an input or output element: bytes moved forward and backward, and one product of a token by rank."""

    forward: FloatColumn
    backward: FloatColumn
    product: FloatColumn
    product_of_rank: FloatColumn

    @classmethod
    def build(
        cls, plans: PlanTable, shares: Shares, machine: Machine, elementwise: FloatColumn, is_adapted: BoolColumn
    ) -> _Seconds:
        """Return the seconds of each plan's kind of adapters."""
        is_fp32, is_fused = plans.adapter_format == _FP32, plans.compiled & (plans.base_bits < 16)
        dropped = when(plans.lora_dropout, where(is_fp32, FP32_DROPOUT_BYTES, DROPOUT_BYTES))
        forward = where(is_fp32, FP32_FORWARD_BYTES, FORWARD_BYTES) + dropped
        backward = where(is_fp32, FP32_BACKWARD_BYTES, BACKWARD_BYTES) + dropped
        byte_s = elementwise / machine.hbm_bytes_per_s
        size, rank = machine.plain_size, shares.lora_rank
        return cls(
            forward=when(is_adapted, where(is_fused, FUSED_FORWARD_BYTES, forward) * byte_s),
            backward=when(is_adapted, where(is_fused, FUSED_BACKWARD_BYTES, backward) * byte_s),
            product=when(is_adapted, 2.0 * (rank + size) / machine.plain_flop_per_s),
            product_of_rank=when(is_adapted, 2.0 * size * rank / machine.plain_flop_per_s),
        )

    def of(self, tokens: FloatColumn, elements: FloatColumn, shares: Shares) -> Passes:
        """Return the passes of adapters with so many inputs and outputs for so many tokens."""
        product_s = elements * (tokens * self.product + self.product_of_rank)
        return Passes(
            forward=hypot(product_s, tokens * elements * self.forward),
            by_input=hypot(product_s, tokens * elements * self.backward),
            by_weight=product_s,
        )


def unpacked_s(plans: PlanTable, machine: Machine, weights: FloatColumn) -> FloatColumn | None:
    """Return the time to write out quantised weights in 16 bits once [s]; ``None`` where none are quantised."""
    if not any_of(plans.base_bits < 16):
        return None
    is_packed = (plans.base_bits < 16) & (plans.lora_rank > 0) & has_plain_modules(plans)
    return when(is_packed, (base_weight_bytes(plans) + 2.0) * weights / machine.hbm_bytes_per_s)


def count_launches(plans: PlanTable) -> tuple[FloatColumn, FloatColumn]:
    """Return the kernels that adapters and quantised weights add to a layer, forward and backward."""
    if not any_of(plans.lora_rank):
        return to_float(0.0), to_float(0.0)
    is_fused = plans.compiled & (plans.base_bits < 16)
    is_apart = (plans.lora_rank > 0) & has_plain_modules(plans) & logical_not(is_fused)
    adapters = when(is_apart, lookup(_COUNT, plans.lora_targets))
    unpacked = when(is_apart & (plans.base_bits < 16), UNPACK_LAUNCHES * _LAYERS)
    return FORWARD_LAUNCHES * adapters + unpacked, BACKWARD_LAUNCHES * adapters + unpacked
