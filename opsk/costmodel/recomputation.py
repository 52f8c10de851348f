"""How long does it take to pass the modules of a layer forward once more?

What each module repeats: `opsk.costmodel.memory.modules`, which has the sources.
"""

from __future__ import annotations

from opsk.costmodel.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import any_of, when, where
from opsk.costmodel.flops import expanding_weights
from opsk.costmodel.layer_time import LayerTime
from opsk.costmodel.machine import Machine
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import RECOMPUTE_BITS, SOFTWARE, FloatColumn
from opsk.workload.modules import RecomputeModule
from opsk.workload.plan import Software

SELECTED_OPERATIONS = 0.5
"""Share of a layer's products that PyTorch's selective checkpointing by operations repeats (torchtitan)."""
NORM_PASSES = 2.0
"""A norm reads its input and writes its output."""
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_CORE = RECOMPUTE_BITS[RecomputeModule.CORE_ATTN]


def repeated_s(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> FloatColumn:
    """Return what recomputation repeats of the average layer for one micro-batch [s].

    Full recomputation passes the share of layers that it is asked for; selective one the modules that are named, the
    attention core in Megatron where none is. PyTorch's by operations (torchtitan's default) keeps the attention and
    every second product, and repeats the rest.
    """
    forward = times.average.forward
    by_operation = SELECTED_OPERATIONS * (forward - times.attention)
    selective = where((shares.software == _PYTORCH) & (shares.repeated_modules == 0), by_operation, times.attention)
    named = (shares.repeated_modules & ~_CORE) | where(shares.software == _PYTORCH, shares.repeated_modules, 0)
    if any_of(named):
        modules = _modules_s(model, shares, times, machine, software)
        selective = where(shares.repeated_modules > 0, modules, selective)
    return shares.recomputed_share * forward + when(shares.selective_recompute, selective)


def _modules_s(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> FloatColumn:
    """Return the forward of all modules that are repeated, of the average layer [s]."""
    moe = model.moe_layers / model.layers
    slow = software.elementwise_factor / machine.hbm_bytes_per_s * shares.activation_bytes
    norm = NORM_PASSES * shares.plain_tokens * model.hidden * slow
    activation = (2.0 + model.gated_mlp) * shares.expert_tokens * shares.expert_width * slow
    experts = shares.repeats(RecomputeModule.MOE)
    inside = shares.repeats(RecomputeModule.MOE_ACT) * activation
    inside = inside + shares.repeats(RecomputeModule.SHARED_EXPERTS) * times.shared_experts
    return (
        shares.repeats(RecomputeModule.CORE_ATTN) * times.attention
        + shares.repeats(RecomputeModule.LAYERNORM) * (model.is_latent + moe) * norm
        + shares.repeats(RecomputeModule.MLA_UP_PROJ) * _expanded_s(model, shares, machine, slow)
        + shares.repeats(RecomputeModule.MLP) * (1.0 - moe) * times.mlp
        + moe * where(experts > 0, times.experts + times.shared_experts, inside)
    )


def _expanded_s(model: ShapeColumns, shares: Shares, machine: Machine, slow: FloatColumn) -> FloatColumn:
    """Return the products that expand latents to heads, and rotary positions [s]; nothing without latents."""
    tokens, weights = shares.tokens, expanding_weights(model, shares)
    arithmetic = 2.0 * tokens * weights / machine.matmul_flop_per_s
    rotated = 2.0 * tokens * (shares.query_width + shares.kv_width) * slow
    return model.is_latent * (arithmetic + rotated)
