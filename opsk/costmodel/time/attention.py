"""Computes the time of fused attention from the rates that public benchmarks of kernels reach on each chip generation.

The rates are data (``attention.toml``). They are measured with one launch over a whole batch; the differences in
training are modelled here: chunks of context parallelism, and launches with too few tiles for all multiprocessors.
"""

from __future__ import annotations

from opsk.costmodel.efficiency.kernel_rates import load_kernel_rates
from opsk.costmodel.elementwise import log2, lookup, maximum, minimum, to_int, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import FloatColumn, PlanTable

FUSED_BACKWARD_FLOP = 2.5
"""Fused attention's backward over its forward: five products against two (FlashAttention-2, section 3.1)."""
CAUSAL_SHARE = 0.5
"""Fused attention skips the masked half of the scores."""
TILE_QUERIES = 128.0
"""Queries of a head that one multiprocessor works on at a time (FlashAttention-2 and -3, cuDNN: 64 to 192)."""
BENCHMARK_TILES = 2048.0
"""Tiles of the benchmarks: 16k tokens of 16 heads."""
LATENT_WIDTH = 128.0
"""Kernels for latent attention (192 wide queries, 128 wide values) reach what those for heads of 128 do: 0.98 to 1.05
of it forward and 0.81 to 0.93 backward on H200 and GB200 (benchmarks/published/attention_fits.csv)."""
_WIDTHS = (64.0, 128.0, 256.0)


def attention_s(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine
) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of one layer's fused attention for one micro-batch [s].

    ``shares.attended`` are the keys a query attends to, before the causal mask halves them.
    """
    value = (model.head_dim + model.v_head_dim) / (2.0 * model.head_dim)
    flop = CAUSAL_SHARE * 4.0 * shares.tokens * shares.attended * shares.query_width * value
    rates = lookup(load_kernel_rates(), slice(None), to_int(machine.generation), plans.attention, plans.software)
    forward_share, backward_share = (_at_width(model, rates[first : first + 3]) for first in (0, 3))
    chunk = minimum(model.seq / shares.cp, shares.attended)
    filled = _filled(model, shares, rates[8], chunk)
    peak = machine.attention_flop_per_s * filled / flop
    forward = peak * forward_share * (chunk / (chunk + rates[6]))
    backward = peak * backward_share * (chunk / (chunk + rates[7])) / FUSED_BACKWARD_FLOP
    return 1.0 / forward, 1.0 / backward


def _at_width(model: ShapeColumns, shares: FloatColumn) -> FloatColumn:
    """Return the share of products' rate at the width of a head, between those that were measured."""
    width = where(model.is_latent > 0, LATENT_WIDTH, model.head_dim) if model.has_latent else model.head_dim
    doublings = minimum(maximum(log2(width / _WIDTHS[0]), -1.0), 2.0)
    low = shares[0] + (shares[1] - shares[0]) * doublings
    high = shares[1] + (shares[2] - shares[1]) * (doublings - 1.0)
    return maximum(where(doublings < 1.0, low, high), 0.1 * shares[1])


def _filled(model: ShapeColumns, shares: Shares, units: FloatColumn, chunk: FloatColumn) -> FloatColumn:
    """Return how full multiprocessors are over how full the benchmarks had them.

    Tiles run in waves: on average half of the last one is empty.
    """
    tiles = shares.tokens / chunk * maximum(model.heads / shares.tp, 1.0) * maximum(chunk / TILE_QUERIES, 1.0)
    return (1.0 + 0.5 * units / BENCHMARK_TILES) / (1.0 + 0.5 * units / tiles)
