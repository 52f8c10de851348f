"""Computes the size of a checkpoint, the time that it stalls training, the best interval and the cost.

One plan at a time: nothing here is searched over. Sizes are those of Megatron Core's distributed checkpoints and
PyTorch's distributed state dictionaries: each value once, whatever holds copies of it, written by all nodes together.
Not modelled: metadata and file creation, which depend on metadata servers rather than on bytes; compression; reading
back, except for ``restart_s``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from opsk.costmodel.memory.states import MOMENT_COUNTS, QUANTIZED_MOMENT_BYTES, RECIPES
from opsk.costmodel.sizes.mixers import build_model_widths, mixer_adapters
from opsk.costmodel.sizes.parameters import attention_adapters, encoder_adapters, mlp_adapters, total_parameters
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import LORA_TARGETS
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, States

GPU_HOURS_BETWEEN_FAILURES = 16_384 * 54 * 24 / 419
"""Unexpected interruptions of Llama 3 405B: 419 in 54 days on 16,384 H100 (Llama team 2024, arXiv 2407.21783, section
3.3.4), 50,700 GPU hours each: every 3.1 hours there, once in 33 days on 64 GPUs."""
RESTART_S = 600.0
"""Time from failure to training again: detection, scheduling, start, load. Chosen by hand; a site measures its own."""
FILE_SYSTEM_BYTES_PER_S = 62e9 / 32
"""Default write rate of a file system for each node that writes [bytes/s]: 62 GB/s from 32 nodes, the enhanced
level for storage of NVIDIA's DGX SuperPOD H100 reference architecture (from memory)."""
PINNED_FRACTION = 0.8
"""Share of the host link's rate that copies into pinned memory reach [ratio], from memory."""
STORAGE_FRACTION = 0.8
"""Share of a storage NIC's data rate that a client of a parallel file system reaches [ratio], from memory."""


MIN_VALUE, MAX_VALUE = 1e-6, 1e18
"""Rates and times outside these are typos, and could lead to infinite results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """How checkpoints are written; ``None`` is "not stated".

    Parameters
    ----------
    write_bytes_per_s
        Write rate of the file system for all nodes together [bytes/s]; default ``FILE_SYSTEM_BYTES_PER_S`` each.
    node_write_bytes_per_s
        Write rate of one node [bytes/s]; default its storage NICs, or its compute NICs where it has no others.
    asynchronous
        True where training continues once the state is copied to host memory, and writing runs in the background.
    interval_s
        Training time from one checkpoint to the next [s]; default the best one.
    mtbf_s
        Mean time between failures of the whole job [s]; default from its GPUs by ``GPU_HOURS_BETWEEN_FAILURES``.
    restart_s
        Time from a failure until training resumes from the last checkpoint [s].
    """

    write_bytes_per_s: float | None = None
    node_write_bytes_per_s: float | None = None
    asynchronous: bool = False
    interval_s: float | None = None
    mtbf_s: float | None = None
    restart_s: float = RESTART_S

    def __post_init__(self) -> None:
        """Validate the times and rates; the error lists all that is wrong."""
        names = [item.name for item in fields(self) if item.name != "asynchronous"]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        wrong = [
            f"{name} is {value}, must be above 0 and finite: from {MIN_VALUE:g} to {MAX_VALUE:g}"
            for name, value in given.items()
            if not MIN_VALUE <= value <= MAX_VALUE
        ]
        if wrong:
            raise InputError("; ".join(wrong), hint="rates are in bytes/s, times in s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Size and cost of checkpoints: ``stall_s`` is how long training stalls, ``write_s`` until one is written.

    ``lost_fraction`` is the share of the job's time without new training: writing, repeated work, restarting.
    """

    size_bytes: float
    write_s: float
    stall_s: float
    interval_s: float
    best_interval_s: float
    mtbf_s: float
    lost_fraction: float


def compute_checkpoint(model: ModelShape, plan: Plan, cluster: ClusterSpec, options: CheckpointOptions) -> Checkpoint:
    """Return size, times, best interval and cost of the checkpoints of a plan on a cluster.

    Asynchronous ones stall only for the copy to the host: the GPU's share of the bytes over its host link.
    """
    size_bytes = checkpoint_bytes(model, plan)
    write_s = write_time_s(size_bytes, plan, cluster, options)
    copy_s = size_bytes / plan.gpus / (PINNED_FRACTION * cluster.node.gpu.pcie_bytes_per_s)
    stall_s = min(copy_s, write_s) if options.asynchronous else write_s
    mtbf_s = options.mtbf_s or GPU_HOURS_BETWEEN_FAILURES * 3600 / plan.gpus
    background_s = write_s if options.asynchronous else 0.0
    best_s = max(best_interval_s(stall_s, mtbf_s), background_s)
    interval_s = options.interval_s or best_s
    return Checkpoint(
        size_bytes=size_bytes,
        write_s=write_s,
        stall_s=stall_s,
        interval_s=interval_s,
        best_interval_s=best_s,
        mtbf_s=mtbf_s,
        lost_fraction=lost_fraction(interval_s, stall_s, mtbf_s, options.restart_s + background_s),
    )


def checkpoint_bytes(model: ModelShape, plan: Plan) -> float:
    """Return the bytes of one checkpoint: weights and optimizer states, no gradients.

    Adam: mixed 2 + 4 + 4 + 4 = 14 bytes a parameter (16-bit weights, fp32 master weights and moments), autocast and
    fp32 4 + 8 = 12, pure 16-bit 2 + 4 = 6. Frozen parameters have weights alone. Under LoRA only the adapters are
    written, not the base.

    Checked against 2.3 TB of BLOOM-176B and 13.8 TB of GPT-1T (Narayanan et al. 2021, section 5.10; both from memory):
    14 bytes a parameter give 2.47 and 14.1.
    """
    recipe = RECIPES[States.AUTOCAST if plan.precision.is_wide else plan.states]
    moment = QUANTIZED_MOMENT_BYTES.get(plan.optimizer, recipe.moment)
    states = recipe.master + MOMENT_COUNTS.get(plan.optimizer, 2.0) * moment
    if plan.lora_rank:
        return plan.lora_rank * _count_adapters(model, plan) * (recipe.weights + states)
    return total_parameters(model) * (recipe.weights + (1.0 - plan.frozen_fraction) * states)


def _count_adapters(model: ModelShape, plan: Plan) -> float:
    """Return the parameters of a plan's adapters, for each unit of rank."""
    shape = build_shape(model)
    widths = build_model_widths(shape)
    targets: Any = LORA_TARGETS.index(plan.lora_targets)
    sparse = mlp_adapters(shape, widths.shared, targets) * (shape.shared_ffn > 0)
    sparse = sparse + shape.experts * mlp_adapters(shape, widths.expert, targets)
    mixing = shape.attention_share * attention_adapters(shape, widths, targets)
    if model.mixer_layers:
        mixing = mixing + shape.mixer_share * mixer_adapters(shape, widths)
    decoder = shape.layers * mixing + shape.mlp_share * shape.moe_layers * sparse
    encoder = shape.encoder_layers * encoder_adapters(shape, widths, targets) if model.encoder_layers else 0.0
    plain = shape.mlp_share * shape.plain_layers * mlp_adapters(shape, widths.ffn, targets)
    return float(decoder + plain + encoder)


def write_time_s(size_bytes: float, plan: Plan, cluster: ClusterSpec, options: CheckpointOptions) -> float:
    """Return the time until all of it is written, at the lower of the rates of the file system and the nodes [s].

    10 TB from 128 nodes of 2 x 50 GB/s at 400 GB/s of the file system: 25 s.
    """
    node = cluster.node
    nodes = count_nodes(plan, cluster)
    nic, ports = (node.storage_nic, node.storage_nics) if node.storage_nic else (node.nic, node.nics)
    node_bytes_per_s = options.node_write_bytes_per_s or STORAGE_FRACTION * nic.bytes_per_s * ports
    return size_bytes / min(nodes * node_bytes_per_s, options.write_bytes_per_s or nodes * FILE_SYSTEM_BYTES_PER_S)


def count_nodes(plan: Plan, cluster: ClusterSpec) -> int:
    """Return the nodes that a plan's GPUs occupy, including a partial one."""
    return math.ceil(plan.gpus / cluster.node.gpus)


def best_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Return the training time between checkpoints that loses least [s].

    To first order sqrt(2 C M) (Young 1974, CACM 17(9)); here Daly's: sqrt(2 C M) (1 + 1/3 sqrt(C / 2M) + C / 18 M) - C
    where C < 2 M, else M (Daly 2006, Future Generation Computer Systems 22, equation 37; from memory). C = 60 s and
    M = 3 h: 1,138 s by Young, 1,098 s by Daly.
    """
    if stall_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stall_s / (2 * mtbf_s)
    return math.sqrt(2 * stall_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s


def lost_fraction(interval_s: float, stall_s: float, mtbf_s: float, restart_s: float) -> float:
    """Return the share of the job's time without progress, with exponentially distributed failures.

    Time for one interval: M e^(R/M) (e^((t + C)/M) - 1) (Daly 2006, equation 20; from memory). To first order the share
    is C / t + t / 2M + R / M. A checkpoint that is still being written is lost with its interval: asynchronous writing
    adds to R.
    """
    exponent = (interval_s + stall_s) / mtbf_s
    if exponent + restart_s / mtbf_s > 700:  # beyond floating point: nothing ever ends
        return 1.0
    return 1.0 - interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent))
