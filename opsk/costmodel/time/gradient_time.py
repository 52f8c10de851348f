"""Computes the time in which weight gradients are added up over micro-batches, where no product does that itself.

Megatron adds a weight gradient to the fp32 buffer inside its product (unless ``--no-gradient-accumulation-fusion`` is
set). Elsewhere the product writes a new 16-bit gradient, and another kernel reads it and adds it to the one that is
held: ``AccumulateGrad`` of PyTorch, the fp32 accumulators of nanotron (nanotron/optim/gradient_accumulator.py) and of
DeepSpeed's optimizers (runtime/bf16_optimizer.py, runtime/zero/stage_1_and_2.py). Every weight pays for that read and
write once a micro-batch, however few its tokens are (both are described in Primus-Turbo's PR 454). FSDP and ZeRO-3 add
up shards only. Not modelled: frameworks of PyTorch that fuse it.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.elementwise import any_of, logical_not, lookup, maximum, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.states import RECIPES
from opsk.costmodel.sizes.shares import Shares, names_formats, state_sizes
from opsk.costmodel.table import IS_WIDE, SOFTWARE, STATES, FloatColumn, PlanTable
from opsk.workload.plan import Software, States

_GRADIENT, _MASTER, _MOMENT = (
    np.array([getattr(RECIPES[name], part) for name in STATES]) for part in ("gradients", "master", "moment")
)
_MIXED = STATES.index(States.MIXED)
_PYTORCH, _DEEPSPEED = (SOFTWARE.index(name) for name in (Software.PYTORCH, Software.DEEPSPEED))


def accumulation_s(plans: PlanTable, shares: Shares, machine: Machine, weights: FloatColumn) -> FloatColumn | None:
    """Return the time to add the new gradients of ``weights`` to those held, each micro-batch [s].

    ``None`` where no plan does. A new gradient is read in the format of the products, the one held is read and written.
    The first micro-batch of a step adds to nothing; but to fp32 gradients of 16-bit weights it is added, too.
    """
    is_apart = (plans.software == _PYTORCH) | (plans.software == _DEEPSPEED)
    often = where(plans.states == _MIXED, 1.0, 1.0 - 1.0 / maximum(shares.micro_batches, 1.0))
    is_apart = is_apart & (often > 0) & logical_not(shares.gathers_each)
    if not any_of(is_apart):
        return None
    held = where(lookup(IS_WIDE, plans.precision), 4.0, lookup(_GRADIENT, plans.states))
    if names_formats(plans):
        held = state_sizes(plans, held, lookup(_MASTER, plans.states), lookup(_MOMENT, plans.states)).gradient
    moved = often * (shares.activation_bytes + 2.0 * held) * weights * shares.trained_share
    result: FloatColumn = when(is_apart, moved / machine.hbm_bytes_per_s)
    return result
