"""What of a family of training software decides its memory? Its buffers, its loss and how long gradients live."""

from __future__ import annotations

import numpy as np

from opsk.costmodel.elementwise import looked_up, unless
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import PRECISIONS, SHARDINGS, SOFTWARE, STATES, BoolColumn, FloatColumn, PlanTable
from opsk.workload.plan import Precision, Sharding, Software, States

_DEEPSPEED, _PYTORCH = SOFTWARE.index(Software.DEEPSPEED), SOFTWARE.index(Software.PYTORCH)
_AUTOCAST, _FP32 = STATES.index(States.AUTOCAST), PRECISIONS.index(Precision.FP32)
_NO_SHARDING = SHARDINGS.index(Sharding.NONE)
_PREALLOCATED = np.array([name in (Software.MEGATRON, Software.MEGATRON_CORE) for name in SOFTWARE])


def is_deepspeed(plans: PlanTable) -> BoolColumn:
    """Return whether DeepSpeed's engine holds the states."""
    found: BoolColumn = plans.software == _DEEPSPEED
    return found


def is_preallocated(plans: PlanTable) -> BoolColumn:
    """Return whether gradients lie in one buffer that is never freed (Megatron-LM, param_and_grad_buffer.py)."""
    return looked_up(_PREALLOCATED, plans.software)


def has_plain_modules(plans: PlanTable) -> BoolColumn:
    """Return whether PyTorch's or HuggingFace's own modules run, kernel by kernel.

    DeepSpeed without model parallelism wraps such modules (HF Trainer); with it they are Megatron-DeepSpeed's.
    """
    found: BoolColumn = (plans.software == _PYTORCH) | is_deepspeed(plans) & (plans.tp * plans.pp == 1)
    return found


def is_pytorch(plans: PlanTable) -> BoolColumn:
    """Return whether PyTorch itself shards and runs the model."""
    found: BoolColumn = plans.software == _PYTORCH
    return found


def is_replicated_by_pytorch(plans: PlanTable, replicas: FloatColumn) -> BoolColumn:
    """Return whether PyTorch's DDP reduces the gradients of several replicas."""
    found: BoolColumn = is_pytorch(plans) & (plans.sharding == _NO_SHARDING) & (replicas > 1)
    return found


def has_fp32_residual(plans: PlanTable, shares: Shares) -> BoolColumn:
    """Return whether the stream between layers is in fp32 while products run in 16 bits.

    So it is under autocast where the weights themselves are in fp32, or those of embedding and norms. FSDP's mixed
    precision casts all weights of a unit, and so has a 16-bit stream.
    """
    is_mixed = (plans.states == _AUTOCAST) & (shares.lora_rank == 0) | plans.upcast_base & (shares.lora_rank > 0)
    found: BoolColumn = is_pytorch(plans) & is_mixed & (plans.precision != _FP32) & unless(shares.shards_weights)
    return found
