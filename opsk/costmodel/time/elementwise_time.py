"""Computes the time of norms, activation functions, residuals and rotary positions of one layer on one GPU.

All of it is memory traffic, in elements or in bytes, times what the software moves over the least. An fp32 stream
between layers, which autocast leaves behind fp32 weights and quantised layers give back, moves more.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import any_of, to_float, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.family import has_fp32_residual, widens_outputs
from opsk.costmodel.passes import Passes
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import BoolColumn, FloatColumn, PlanTable

FORWARD_KERNELS, BACKWARD_KERNELS = 24.0, 44.0
"""Kernels of one layer: products, norms, bias, activation, dropout, residual, reshapes; counted in Megatron traces."""
UNFUSED_NORM_PASSES, UNFUSED_NORM_BACKWARD_PASSES = 24.0, 40.0
"""What two norms written in Python read and write beyond fused ones, in elements of 2 bytes: cast to fp32 (6 bytes),
square and mean (4), scale (8), cast back (6), weight (4), 28 bytes against 4 each; their backward about twice."""
UNFUSED_ROTARY_PASSES = 10.0
"""The same of rotary positions in complex fp32, for each element of query and key."""
UNFUSED_GATE_PASSES, UNFUSED_GATE_BACKWARD_PASSES = 2.0, 4.0
"""The same of silu and product apart, for each inner element: 5 against 3; backward two products (6) and silu's own
gradient (3) against 5."""
WIDE_STREAM_BYTES, WIDE_STREAM_BACKWARD_BYTES = 22.0, 44.0
"""What an fp32 stream adds for each of its elements: five products cast their inputs (30 bytes) and two residuals are
read and written in 4 bytes (8), less what norms in Python need not cast (16); backward the gradients of the casts (30),
their sums (18) and residuals (12), less the same."""
WIDE_OUTPUT_BYTES, WIDE_OUTPUT_BACKWARD_BYTES = 16.0, 14.0
"""What outputs in fp32 add to that: two of them are cast (12) and added in 4 bytes (4)."""
FUSED_SHARE = 0.5
"""Share of that where kernels are fused: reads and writes of 4 bytes for 2 remain, casts do not."""
WIDE_INNER_BYTES, WIDE_INNER_BACKWARD_BYTES = 16.0, 18.0
"""What outputs in fp32 add for each inner element of an MLP: cast of the output (6), activation function (4), cast
before the next product (6); its backward the same with one more read."""
WIDE_GATE_BYTES, WIDE_GATE_BACKWARD_BYTES = 12.0, 22.0
"""The same of the gate and its product."""
WIDE_HEADS_BYTES = 12.0
"""The same of each element of queries, keys and values, cast to fp32 and back for fused attention; rotary positions
of queries and keys move as much again."""
_NOTHING = to_float(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatWidths:
    """1.0 where the stream between layers is in fp32, less with fused kernels, and where outputs of products are."""

    stream: FloatColumn
    outputs: FloatColumn

    @classmethod
    def of(cls, model: ShapeColumns, plans: PlanTable, shares: Shares) -> FormatWidths | None:
        """Return the widths of each plan; ``None`` where all formats have 16 bits."""
        is_wide = has_fp32_residual(model, plans, shares)
        widens: BoolColumn = widens_outputs(model, plans)
        if not (any_of(is_wide) or any_of(widens)):
            return None
        stream = when(is_wide | widens, where(plans.compiled, FUSED_SHARE, 1.0))
        return cls(stream=stream, outputs=when(widens, 1.0))


def activation_time(
    model: ShapeColumns,
    shares: Shares,
    machine: Machine,
    software: SoftwareColumns,
    elements: FloatColumn,
    wide: FormatWidths | None,
) -> Passes:
    """Return the passes of the activation function: 2 and 3 times the inner elements, 3 and 5 when gated [s]."""
    byte_s = elements * software.elementwise_factor / machine.hbm_bytes_per_s
    cost = byte_s * shares.activation_bytes
    forward = (2.0 + model.gated_mlp + UNFUSED_GATE_PASSES * shares.runs_unfused) * cost
    backward = (3.0 + 2.0 * model.gated_mlp + UNFUSED_GATE_BACKWARD_PASSES * shares.runs_unfused) * cost
    if wide is not None:
        forward = forward + wide.outputs * (WIDE_INNER_BYTES + WIDE_GATE_BYTES * model.gated_mlp) * byte_s
        more = WIDE_INNER_BACKWARD_BYTES + WIDE_GATE_BACKWARD_BYTES * model.gated_mlp
        backward = backward + wide.outputs * more * byte_s
    return Passes(forward=forward, by_input=backward, by_weight=_NOTHING)


def around_attention(
    model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns, wide: FormatWidths | None
) -> Passes:
    """Return the passes of norms, dropout, residual and rotary positions, and of the gaps before all kernels [s].

    Passes over the residual stream (elements read or written): norm 2 x 2 and bias-dropout-add 2 x 3.5 forward; norm
    2 x 3, dropout 2 x 2.5 and residual 2 x 1.5 backward. Rotary positions read and write query and key once each way.
    """
    apart, rotated = shares.runs_unfused, 1.0 - model.learned_positions
    norms_apart = where(shares.fuses_norms, 0.0, apart)
    heads = shares.tokens * (shares.query_width + shares.kv_width)
    rotary = rotated * (2.0 + UNFUSED_ROTARY_PASSES * apart) * heads
    stream = shares.plain_tokens * model.hidden
    byte_s = software.elementwise_factor / machine.hbm_bytes_per_s
    cost, gaps = shares.activation_bytes * byte_s, software.kernel_gap_s
    forward = ((11.0 + UNFUSED_NORM_PASSES * norms_apart) * stream + rotary) * cost
    backward = ((14.0 + UNFUSED_NORM_BACKWARD_PASSES * norms_apart) * stream + rotary) * cost
    if wide is not None:
        cast = WIDE_HEADS_BYTES * ((1.0 + rotated) * heads + shares.tokens * shares.kv_width) * wide.outputs
        more = wide.stream * WIDE_STREAM_BYTES + wide.outputs * WIDE_OUTPUT_BYTES
        forward = forward + (more * stream + cast) * byte_s
        more = wide.stream * WIDE_STREAM_BACKWARD_BYTES + wide.outputs * WIDE_OUTPUT_BACKWARD_BYTES
        backward = backward + (more * stream + cast) * byte_s
    return Passes(
        forward=forward + FORWARD_KERNELS * gaps, by_input=backward + BACKWARD_KERNELS * gaps, by_weight=_NOTHING
    )
