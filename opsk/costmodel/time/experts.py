"""Computes the time of the experts of one layer on one GPU: products, permutation, router, and waits for the host.

Products of experts reach the rate of dense ones of the same size where one kernel does all of them: forward passes of
whole expert MLPs (aiconfigurator's tables of TensorRT-LLM 1.2/1.3, H100 and B200, 8 to 384 experts, widths of 256 to
16,384, 64 to 16,384 rows an expert) are 4 to 6 % off in the median with the same smooth loss at the sides,
``1 / (1 + s (e/m + 1/k + 1/n))`` for m rows over e experts, at 760 to 890 TFLOP/s on H100 and 1,880 to 2,080 on B200,
where dense products of the same tables have 740 to 840 and 1,700 to 1,900; DeepGEMM's FP8 ones equal the dense ones,
too, from 4,096 rows an expert on. Small products one by one fill a part of the GPU only, and each waits for its launch.

The rest of the layer is memory traffic and many small kernels. Where the host must know how many tokens arrive, the
queue runs empty once in each forward pass.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import any_of, hypot, logical_not, lookup, maximum, minimum, to_float, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.passes import GRADIENT_UPDATE_BYTES, Passes
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import DISPATCHERS, MOE_GEMMS, PRECISIONS, FloatColumn
from opsk.workload.plan import MoeDispatcher, MoeGemm

CONCURRENT_PRODUCTS = {MoeGemm.GROUPED: np.inf, MoeGemm.STREAMS: 4.0, MoeGemm.SEQUENTIAL: 1.0}
"""Products of experts that run at the same time; Transformer Engine's GroupedLinear has four streams (its PR 853)."""
WAVE_ELEMENTS = 132 * 128 * 256.0
"""Outputs of a product that fill a GPU: a tile of 128 x 256 on each of an H100's 132 multiprocessors. cuBLAS in a loop,
512 x 1,536 outputs: 0.18 of the GPU, 130 TFLOP/s measured (grouped_gemm's PR 37)."""
TILE_ROWS = 128.0
"""Rows of a tile: a product of fewer takes as long."""
PRODUCT_LAUNCH_S = 33e-6
"""Host time of one expert's product in a loop: 0.267 ms for 8 of 128 rows (Transformer Engine's PR 3134, B200)."""
CAST_FACTOR = 2.0
"""What a product of a loop takes the host where its operand is cast before: Transformer Engine's ``split_quantize``
launches for each expert (its PR 3317: 320 to 640 launches), and a layer takes twice as long in FP8 (its issue 761).
Weight gradients read what was cast."""
PASSES_OF = {
    MoeDispatcher.ALLTOALL: 3.0,
    MoeDispatcher.ALLGATHER: 4.0,
    MoeDispatcher.DEEPEP: 4.0,
    MoeDispatcher.HYBRIDEP: 2.0,
}
"""How often the vector of a dispatched token is read or written around the experts, one way: a permutation reads and
writes (2), the last one back reads k and writes 1 (Megatron's ``token_dispatcher.py``); HybridEP permutes as it sends.
Whole expert MLPs of TensorRT-LLM, which permute as DeepEP does, take 3 (H100) to 6 (B200)."""
SORTED_PASSES = 4.0
"""The same for sorting the output of an all-to-all by local expert, and back, where a rank has more than one."""
UNFUSED_PASSES = 4.0
"""The same for permutations by PyTorch's operations: zeros, products with the probabilities, scatter-add."""
LOGIT_PASSES, UNFUSED_LOGIT_PASSES = 4.0, 12.0
"""How often the router's fp32 logits and masks of their size are read or written, one way: softmax, top k, map of
tokens to experts and auxiliary loss, in one or two kernels (``--moe-router-fusion``) or one by one."""
LOGIT_BYTES = 4.0
KERNELS, UNFUSED_KERNELS = 22.0, 45.0
"""Small kernels of a MoE layer beyond its products, one way: router, counts, map, permutation and sum. 30 to 60 where
nothing is fused (counted in Megatron's router and dispatcher); a router of 4 and a permutation of 4 where they are."""
GRAPH_KERNEL_S = 1.3e-6
"""Gap and start of a kernel inside a CUDA graph (0.55 + 0.72 us, Megatron-LM's PR 6453)."""
SYNC_S = 1.1e-4
"""Wait for the host where the counts of tokens go there: 26 us there and back, and about 8 launches of 10 us until the
products run (``benchmarks/published/host.md``)."""

_CONCURRENT = np.array([CONCURRENT_PRODUCTS[kind] for kind in MOE_GEMMS])
_PASSES = np.array([PASSES_OF[kind] for kind in DISPATCHERS])
_IS_ALLTOALL = np.array([kind is MoeDispatcher.ALLTOALL for kind in DISPATCHERS])
_WAITS = np.array([kind is not MoeDispatcher.HYBRIDEP for kind in DISPATCHERS])
_GROUPED = MOE_GEMMS.index(MoeGemm.GROUPED)
_CASTS = np.array([CAST_FACTOR if precision.is_low else 1.0 for precision in PRECISIONS])
_NOTHING = to_float(0.0)


def expert_time(model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns) -> Passes:
    """Return the passes of the routed experts of one layer, without the activation function and the links [s]."""
    local = maximum(model.experts / shares.ep, 1.0)
    around = _permuted_s(model, shares, machine, local) + _router_s(model, shares, machine)
    around = around + _kernels_s(shares, software)
    waiting = Passes(forward=around + _waiting_s(model, shares), by_input=around, by_weight=_NOTHING)
    return _products(model, shares, machine, local) + waiting


def _products(model: ShapeColumns, shares: Shares, machine: Machine, local: FloatColumn) -> Passes:
    """Return the passes of the products of the experts of one rank [s]."""
    hidden, size, tokens = model.hidden, machine.matmul_size, shares.expert_tokens
    matrices = 2.0 + model.gated_mlp
    width = maximum(shares.expert_width, 1.0)
    weights, sides = matrices * hidden * width, matrices * (hidden + width)
    rate = machine.matmul_flop_per_s
    arithmetic_s = 2.0 / rate * ((tokens + size * local) * weights + size * tokens * sides)
    moved = tokens * (2.0 * hidden + matrices * width) * shares.activation_bytes
    held = weights * local
    read_s = (moved + held * shares.activation_bytes) / machine.hbm_bytes_per_s
    updated_s = (moved + held * GRADIENT_UPDATE_BYTES) / machine.hbm_bytes_per_s
    is_loop = shares.moe_gemm != _GROUPED
    if not any_of(is_loop):
        forward, by_weight = hypot(arithmetic_s, read_s), hypot(arithmetic_s, updated_s)
    else:
        # one product for the up projection, gate included, and one for the way down
        launched_s = where(is_loop, 2.0 * local * PRODUCT_LAUNCH_S, 0.0)
        rows = maximum(tokens / local, TILE_ROWS)
        outputs = rows * ((1.0 + model.gated_mlp) * width + hidden) / 2.0
        concurrent = lookup(_CONCURRENT, shares.moe_gemm)
        filled_s = arithmetic_s * _underfill(outputs, concurrent, local)
        by_weight_s = arithmetic_s * _underfill(hidden * width, concurrent, local)
        forward = maximum(hypot(filled_s, read_s), launched_s * lookup(_CASTS, shares.precision))
        by_weight = maximum(hypot(by_weight_s, updated_s), launched_s)
    return Passes(forward=forward, by_input=forward, by_weight=by_weight * shares.trained_share)


def _underfill(outputs: FloatColumn, concurrent: FloatColumn, local: FloatColumn) -> FloatColumn:
    """Return how many times longer concurrent products take than if they filled the GPU."""
    return maximum(WAVE_ELEMENTS / (outputs * minimum(concurrent, local)), 1.0)


def _permuted_s(model: ShapeColumns, shares: Shares, machine: Machine, local: FloatColumn) -> FloatColumn:
    """Return the time to permute tokens to the order of experts and back, one way [s]."""
    sorts = lookup(_IS_ALLTOALL, shares.moe_dispatcher) & (local > 1) & (shares.ep > 1)
    passes = lookup(_PASSES, shares.moe_dispatcher) + where(sorts, SORTED_PASSES, 0.0)
    passes = passes + where(shares.fuses_permutation, 0.0, UNFUSED_PASSES)
    moved = passes * shares.expert_tokens * model.hidden * shares.activation_bytes
    result: FloatColumn = moved / machine.hbm_bytes_per_s
    return result


def _router_s(model: ShapeColumns, shares: Shares, machine: Machine) -> FloatColumn:
    """Return the time of the router: its product, and the processing of the fp32 logits, one way [s]."""
    tokens = shares.plain_tokens
    product_s = 2.0 * tokens * model.hidden * model.experts / machine.plain_flop_per_s
    passes = where(shares.fuses_permutation, LOGIT_PASSES, UNFUSED_LOGIT_PASSES)
    logits = passes * tokens * model.experts * LOGIT_BYTES + tokens * model.hidden * shares.activation_bytes
    result: FloatColumn = product_s + logits / machine.hbm_bytes_per_s
    return result


def _kernels_s(shares: Shares, software: SoftwareColumns) -> FloatColumn:
    """Return the gaps before the small kernels of the layer, one way [s]."""
    kernels = where(shares.fuses_permutation, KERNELS, UNFUSED_KERNELS)
    gap_s = where(shares.leaves_host_out, minimum(software.kernel_gap_s, GRAPH_KERNEL_S), software.kernel_gap_s)
    result: FloatColumn = kernels * gap_s
    return result


def _waiting_s(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the wait for the counts of tokens on the host; 0 with a padded capacity, which makes them known [s]."""
    waits = lookup(_WAITS, shares.moe_dispatcher) & logical_not(shares.leaves_host_out)
    return when(waits, where(model.capacity_factor > 0, 0.0, SYNC_S))
