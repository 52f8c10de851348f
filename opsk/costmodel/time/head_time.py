"""Computes the time of the head and of the loss on one GPU for one micro-batch.

The traffic of a loss is counted in its code, in bytes for a logit beyond those that the products themselves read and
write. Where the operations of a loss are kernels of their own, each reads and writes all logits; one kernel reads them
once forward and once backward.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import any_of, ceil, hypot, lookup, minimum, to_float, to_int, where
from opsk.costmodel.machine import Machine, generations
from opsk.costmodel.memory.family import has_plain_modules, is_pytorch
from opsk.costmodel.passes import GRADIENT_UPDATE_BYTES
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import LOSSES, PRECISIONS, SOFTWARE, FloatColumn, PlanTable
from opsk.costmodel.time.gradient_time import accumulation_s
from opsk.workload.plan import Loss, Precision, Software

EAGER_LOSS_BYTES = 34.0
"""PyTorch's cross entropy on fp32 logits: cast (6), logarithm of the softmax (8), its gradient (14), cast back (6)."""
NATIVE_LOSS_BYTES = 12.0
"""The same on 16-bit logits: logarithm of the softmax (4), a gradient of zeros but for the labels (2), its own (6)."""
SPLIT_LOSS_BYTES = 52.0
"""Megatron's vocabulary-parallel loss, and those after it: cast (6), maximum (4), shifted (8), exponents (8), sum (4),
divided (8); gradient scaled (8), cast back (6) (megatron/core/tensor_parallel/cross_entropy.py)."""
COMPILED_LOSS_BYTES = 30.0
"""The same compiled: cast with the maximum (6), exponents (8), divided (8), gradient and cast back (8)
(megatron/core/fusions/fused_cross_entropy.py)."""
KERNEL_LOSS_BYTES = 8.0
"""One kernel on 16-bit logits reads them once or twice, and once more to write their gradient
(flash_attn/ops/triton/cross_entropy.py; Liger's works on chunks of logits, ops/fused_linear_cross_entropy.py)."""
RECOMPUTED_LOSS_BYTES = 48.0
"""`EAGER_LOSS_BYTES`, and cast and logarithm of the softmax once more."""
RECOMPUTED_FP32_LOSS_BYTES = 76.0
"""The same without casts of the logits (8 + 14 + 8), and twice what TRL logs, largest logit and entropy (4 + 8 + 8 + 3:
trl/trainer/sft_trainer.py, ``_chunk``)."""
FP32_KERNEL_LOSS_BYTES = 48.0
"""A shifted fp32 copy of fp32 logits, a kernel on it, and back: 44 (cast 6, copy 8, kernel 12, copy back 12, cast 6:
transformers 4.45, modeling_llama.py; unsloth/kernels/cross_entropy_loss.py); nanotron's operations take 52, as
Megatron's (nanotron/parallel/tensor_parallel/functional.py)."""
_LOSS_BYTES = np.array(
    [
        {
            Loss.PLAIN: SPLIT_LOSS_BYTES,
            Loss.NATIVE: NATIVE_LOSS_BYTES,
            Loss.KERNEL: KERNEL_LOSS_BYTES,
            Loss.FUSED: KERNEL_LOSS_BYTES,
            Loss.FP32_KERNEL: FP32_KERNEL_LOSS_BYTES,
            Loss.RECOMPUTED: RECOMPUTED_LOSS_BYTES,
            Loss.RECOMPUTED_FP32: RECOMPUTED_FP32_LOSS_BYTES,
            Loss.MEGATRON_FUSED: COMPILED_LOSS_BYTES,
        }.get(name, EAGER_LOSS_BYTES)
        for name in LOSSES
    ]
)
"""Traffic of a logit by the loss; the plain one is Megatron's where no plain modules of PyTorch run."""
ALIGNED_ELEMENTS = 8.0
"""Tensor cores take rows of 16 bytes (NVIDIA, Matrix Multiplication Background, section 3): 8 elements."""
UNALIGNED_ROW_FACTORS = {
    **dict.fromkeys(("volta", "turing", "ampere", "ada"), 3.0),
    **dict.fromkeys(("hopper", "blackwell", "blackwell-ultra", "blackwell-rtx"), 5.0),
}
"""How much slower products that read rows of logits run where a row is no multiple of 16 bytes, by chip generation.
GPT-2's 50257 rows padded to 50304 make a whole step of 124M weights on A100 1.14 times as fast (compiled; Raschka, LLMs
from Scratch, chapter 5) to 1.25 times (Karpathy, nanoGPT, 2023): the head's two backward products, a sixth of its work,
3 times. Newer GPUs fall back to the same kernels of two-byte loads, whose rate grew with multiprocessors and clock (1.5
times from A100 to H100) and not with tensor cores (2.6 times)."""
_UNALIGNED_ROWS = np.array([UNALIGNED_ROW_FACTORS.get(name, 1.0) for name in generations()])
_AGAIN = np.array([name in (Loss.RECOMPUTED, Loss.RECOMPUTED_FP32) for name in LOSSES])
_IN_FP32 = np.array([name is Loss.RECOMPUTED_FP32 for name in LOSSES])
_FP32 = PRECISIONS.index(Precision.FP32)
_PLAIN, _PYTORCH = LOSSES.index(Loss.PLAIN), SOFTWARE.index(Software.PYTORCH)


def head_s(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine, software: SoftwareColumns
) -> FloatColumn:
    """Return the time of final norm, head and loss, forward and backward, for one micro-batch [s].

    Three products: forward, gradient by input, and by weight as far as the head is trained. The latter two read the
    gradient of the logits. A loss that recomputes them has the first twice.
    """
    tokens, size, hidden = shares.tokens, machine.plain_size, model.hidden
    weights, trained = shares.vocab * hidden, shares.trained_share
    products = (tokens + size) * weights + size * tokens * (hidden + shares.vocab)
    backward = (2.0 + 2.0 * trained) * _unaligned_factor(model, plans, shares, machine)
    forward: FloatColumn = to_float(2.0)
    rate = machine.plain_flop_per_s
    again = lookup(_AGAIN, plans.loss)
    if any_of(again):
        forward = where(again, 4.0, 2.0)
        rate = where(lookup(_IN_FP32, plans.loss), minimum(machine.fp32_flop_per_s, rate), rate)
    arithmetic = (forward + backward) / rate * products
    logits = tokens * shares.vocab
    moved = (2.0 + trained) * (logits + weights + tokens * hidden) * shares.activation_bytes
    moved = moved + trained * weights * GRADIENT_UPDATE_BYTES
    loss = logits * loss_bytes(plans) * software.elementwise_factor
    if any_of(plans.gathers_logits) and any_of(shares.tp > 1):
        loss = loss * where(plans.gathers_logits & is_pytorch(plans), shares.tp, 1.0)
    result: FloatColumn = hypot(arithmetic, moved / machine.hbm_bytes_per_s) + loss / machine.hbm_bytes_per_s
    added_up = accumulation_s(plans, shares, machine, weights)
    return result if added_up is None else result + added_up


def loss_bytes(plans: PlanTable) -> FloatColumn:
    """Return what the loss reads and writes for a logit, forward and backward [bytes]."""
    by_name = lookup(_LOSS_BYTES, plans.loss)
    result: FloatColumn = where((plans.loss == _PLAIN) & has_plain_modules(plans), EAGER_LOSS_BYTES, by_name)
    return result


def _unaligned_factor(model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine) -> FloatColumn:
    """Return how much slower products run that read rows of logits, which only some software pads.

    Megatron pads the vocabulary, and torch.compile the operands of its products; kernels in fp32 read single elements.
    """
    rows = ceil(model.vocab / shares.tp)
    is_padded = plans.compiled | (plans.software != _PYTORCH) | (rows % ALIGNED_ELEMENTS == 0)
    is_padded = is_padded | (plans.precision == _FP32)
    return where(is_padded, 1.0, lookup(_UNALIGNED_ROWS, to_int(machine.generation)))
