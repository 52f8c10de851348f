"""How long do dispatch and combine of one MoE layer take on the links, by who does it?

Megatron's all-to-all sends a copy of a token for each of its experts; DeepEP and HybridEP send a token once to each
node and there once to each rank; the all-gather brings every token of the group to all its ranks. Where experts are
picked evenly, k of n ranks chosen with repetition are n (1 - (1 - 1/n)^k) different ones.

DeepEP's first release reaches 43 to 58 GB/s of a 50 GB/s NIC so counted (16 to 64 ranks on H800), and what NVLink
carries reaches about as much of it as NCCL's all-to-all: 300 to 316 of 450 GB/s on 8 H100 (NCCL 292 to 315), 410 to 560
of 900 on B200 (NCCL 496 to 563), HybridEP 393 to 569 on GB200. Rings reach more of it: 360 to 380 and 680.
"""

from __future__ import annotations

from opsk.costmodel import volumes
from opsk.costmodel.collectives.hierarchical import Carried, Forwarding, all_gather, all_to_all, group_of
from opsk.costmodel.elementwise import any_of, maximum, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import DISPATCHERS, FloatColumn
from opsk.workload.plan import MoeDispatcher

SCATTERED_FRACTION = 0.83
"""What messages to all ranks at once reach of NVLink over what rings do: nccl-tests of 512 MiB on 8 GPUs, 315 of 372
GB/s (H100), 563 of 680 (B200); ``benchmarks/published/links.csv``."""
DEEPEP_CALL_S = 4e-5
"""What a dispatch or combine of DeepEP takes for 256 tokens on 8 GPUs of a node (42 to 55 us on H100, 50 to 63 on B200:
aiconfigurator's tables of SGLang 0.5.12, 24 SMs)."""

_ALLGATHER = DISPATCHERS.index(MoeDispatcher.ALLGATHER)


def exchange(model: ShapeColumns, shares: Shares, machine: Machine) -> Carried:
    """Return dispatch and combine of one layer in one pass of a micro-batch."""
    group = group_of(machine, stride=shares.etp, size=shares.ep, ranks=shares.gpus)
    size_bytes = 2.0 * volumes.expert_parallel_bytes(model, shares)
    copies = all_to_all(machine, group, size_bytes, 2.0, hb_share=SCATTERED_FRACTION)
    if any_of(machine.is_rail_only):
        forwarded = all_to_all(machine, group, size_bytes, 2.0, Forwarding.RAIL_ONLY, hb_share=SCATTERED_FRACTION)
        copies = forwarded.otherwise(machine.is_rail_only > 0, copies)
    once = shares.moe_dispatcher > _ALLGATHER
    if any_of(once):
        picks = maximum(model.top_k, 1.0)
        nodes, ranks = (_different(count, picks) / picks for count in (group.across, group.size))
        across, inside = group.across, group.inside
        nic = size_bytes * nodes * (across - 1.0) / across / machine.nic_bytes_per_s
        hb = size_bytes * ranks * (inside - 1.0) / inside / (SCATTERED_FRACTION * machine.hb_bytes_per_s)
        calls_s = where(shares.ep > 1, 2.0 * DEEPEP_CALL_S, 0.0)
        copies = Carried(total=maximum(nic, hb) + calls_s, hb=hb, nic=nic).otherwise(once, copies)
    gathers = shares.moe_dispatcher == _ALLGATHER
    if any_of(gathers):
        tokens_bytes = shares.plain_tokens * model.hidden * shares.activation_bytes
        everything = all_gather(machine, group, 2.0 * shares.ep * tokens_bytes, 2.0)
        copies = everything.otherwise(gathers, copies)
    return copies


def _different(count: FloatColumn, picks: FloatColumn) -> FloatColumn:
    """Return how many of ``count`` are among so many picks."""
    found: FloatColumn = count * (1.0 - (1.0 - 1.0 / count) ** picks)
    return found
