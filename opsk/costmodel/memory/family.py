"""Finds the properties of a software family that affect memory: buffers, loss and the lifetime of gradients."""

from __future__ import annotations

import numpy as np

from opsk.costmodel.elementwise import logical_not, lookup
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import (
    ADAPTER_FORMATS,
    IS_WIDE,
    SHARDINGS,
    SOFTWARE,
    STATES,
    BoolColumn,
    FloatColumn,
    PlanTable,
)
from opsk.workload.plan import AdapterFormat, Sharding, Software, States

_DEEPSPEED, _PYTORCH = SOFTWARE.index(Software.DEEPSPEED), SOFTWARE.index(Software.PYTORCH)
_AUTOCAST = STATES.index(States.AUTOCAST)
_UNDER_AUTOCAST = ADAPTER_FORMATS.index(AdapterFormat.AUTOCAST)
_NO_SHARDING = SHARDINGS.index(Sharding.NONE)
_PREALLOCATED = np.array([name in (Software.MEGATRON, Software.MEGATRON_CORE) for name in SOFTWARE])


def is_deepspeed(plans: PlanTable) -> BoolColumn:
    """Return whether DeepSpeed's engine holds the states."""
    result: BoolColumn = plans.software == _DEEPSPEED
    return result


def is_preallocated(plans: PlanTable) -> BoolColumn:
    """Return whether gradients are in one buffer that is never freed (Megatron-LM, param_and_grad_buffer.py)."""
    return lookup(_PREALLOCATED, plans.software)


def has_plain_modules(plans: PlanTable) -> BoolColumn:
    """Return whether PyTorch's or HuggingFace's own modules run, kernel by kernel.

    DeepSpeed without model parallelism wraps such modules (HF Trainer); with it they are Megatron-DeepSpeed's.
    """
    result: BoolColumn = (plans.software == _PYTORCH) | is_deepspeed(plans) & (plans.tp * plans.pp == 1)
    return result


def is_pytorch(plans: PlanTable) -> BoolColumn:
    """Return whether PyTorch itself shards and runs the model."""
    result: BoolColumn = plans.software == _PYTORCH
    return result


def is_replicated_by_pytorch(plans: PlanTable, replicas: FloatColumn) -> BoolColumn:
    """Return whether PyTorch's DDP reduces the gradients of several replicas."""
    result: BoolColumn = is_pytorch(plans) & (plans.sharding == _NO_SHARDING) & (replicas > 1)
    return result


def widens_outputs(model: ShapeColumns, plans: PlanTable) -> BoolColumn:
    """Return whether products with a quantised base give back fp32.

    bitsandbytes returns the format of the input (nn/modules.py, ``Linear4bit.forward``), and that is fp32 where norms
    were made fp32, or are LayerNorms under autocast, which runs them in fp32 (PyTorch, documentation of ``torch.amp``).
    """
    is_quantised = (plans.lora_rank > 0) & (plans.base_bits < 16) & has_plain_modules(plans)
    has_wide_norms = (plans.adapter_format == _UNDER_AUTOCAST) & (model.norm_bias > 0)
    result: BoolColumn = is_quantised & (plans.upcast_base | has_wide_norms)
    return result


def has_fp32_residual(model: ShapeColumns, plans: PlanTable, shares: Shares) -> BoolColumn:
    """Return whether the stream between layers is in fp32 while products run in 16 bits.

    This is so under autocast where the weights themselves are in fp32, or where products give back fp32. FSDP's mixed
    precision casts all weights of a unit, and so has a 16-bit stream; without such a policy it gathers fp32 weights.
    """
    is_mixed = (plans.states == _AUTOCAST) & (shares.lora_rank == 0) | plans.upcast_base & (shares.lora_rank > 0)
    has_policy = shares.shards_weights & logical_not(plans.gathers_fp32)
    is_mixed = (is_mixed | plans.gathers_fp32) & logical_not(has_policy) | widens_outputs(model, plans)
    result: BoolColumn = is_pytorch(plans) & is_mixed & logical_not(lookup(IS_WIDE, plans.precision))
    return result
