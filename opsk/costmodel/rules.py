"""Checks a plan against the rules of its model and framework; plans that no framework would start are not predicted.

Sources: argument checks of Megatron-LM (megatron/training/arguments.py, transformer_config.py and pipeline_parallel/
schedules.py in megatron/core); DeepSpeed (runtime/pipe/engine.py, configuration of ZeRO); PyTorch
(distributed/pipelining/schedules.py); Transformer Engine (pytorch/utils.py). Not checked: what they only warn of, such
as experts and tensor parallelism without sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Offload,
    OffloadModule,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
    Sharding,
    Software,
)

_SPLIT_BACKWARD = (Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE_2, Schedule.ZERO_BUBBLE_V, Schedule.DUALPIPE)
_ONE_CHUNK = (Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE_2, Schedule.DUALPIPE)
_LOW_MULTIPLES = {
    Precision.FP8: 16,
    Precision.FP8_CURRENT: 16,
    Precision.FP8_ROWWISE: 16,
    Precision.FP8_BLOCK: 16,
    Precision.MXFP8: 32,
    Precision.NVFP4: 16,
}
"""Widths of products: FP8 tensor cores take multiples of 16; MXFP8 scales blocks of 32, NVFP4 of 16 numbers."""
_LOW_TOKENS = 8
"""Tokens of one product: a multiple of this (Transformer Engine); blocks of 32 and 16 for MXFP8 and NVFP4."""


class Rule(StrEnum):
    """The subject of a rule; the docstring of its function states which fields of a plan it checks."""

    TENSOR = "tensor"
    SIZE = "size"
    LAYERS = "layers"
    SCHEDULE = "schedule"
    RECOMPUTE = "recompute"
    TOKENS = "tokens"
    EXPERTS = "experts"
    SHARDING = "sharding"
    ADAPTERS = "adapters"
    OFFLOAD = "offload"
    LOW_PRECISION = "low-precision"


ALL_RULES = tuple(Rule)


def find_violations(model: ModelShape, plan: Plan, rules: Iterable[Rule] = ALL_RULES) -> tuple[str, ...]:
    """Return every rule that the plan breaks for this model, with its numbers; empty when it can run.

    Embedding, head and multi-token prediction may count as layers of the pipeline's split.

    Parameters
    ----------
    rules
        The rules to check: a search checks only those of some axes.
    """
    return tuple(violation for rule in rules for violation in _RULES[rule](model, plan))


BLOCK_SCALED = frozenset({Precision.MXFP8, Precision.NVFP4})
BLOCK_SCALING_CHIPS = ("blackwell", "cdna4")
"""Chip generations whose matrix units scale blocks of 16 or 32 elements themselves (OCP microscaling formats)."""
MAX_PARAMETERS = 1e15
"""A thousand times the largest models that were trained; more is a typo."""
MAX_TOKENS = 10**8
"""Ten times the longest sequences used in training."""


def find_cluster_violations(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return every rule that the plan breaks for this model on this cluster."""
    return (*find_violations(model, plan), *excess_gpus(plan, cluster), *missing_formats(plan, cluster))


def excess_gpus(plan: Plan, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a violation when the plan needs more GPUs than the cluster has."""
    available = cluster.nodes * cluster.node.gpus
    if plan.gpus <= available:
        return ()
    product = f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp}"
    return (f"{product} = {plan.gpus} GPUs, cluster {cluster.name} has {available}",)


def missing_formats(plan: Plan, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a violation when the cluster's GPU has no products in the plan's number format."""
    gpu, required = cluster.node.gpu, plan.precision.peak_format
    if plan.precision in BLOCK_SCALED and gpu.architecture and not gpu.architecture.startswith(BLOCK_SCALING_CHIPS):
        return (
            f"precision {plan.precision} needs scaling by blocks in hardware, {gpu.name} ({gpu.architecture}) has none",
        )
    if required in gpu.peak_flop_per_s:
        return ()
    return (f"precision {plan.precision} needs {required}, {gpu.name} has {', '.join(sorted(gpu.peak_flop_per_s))}",)


def _tensor_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Heads and widths are split over tp."""
    if plan.tp == 1:
        return
    if model.heads % plan.tp:
        yield f"heads {model.heads} is not a multiple of tp {plan.tp}"
    if not model.kv_lora_rank and model.kv_heads % plan.tp and plan.tp % model.kv_heads:
        yield f"kv_heads {model.kv_heads} and tp {plan.tp}: neither is a multiple of the other"
    if model.mixer_layers and model.mixer_heads % plan.tp:
        yield f"mixer_heads {model.mixer_heads} is not a multiple of tp {plan.tp}"
    for name, width in _split_widths(model):
        if width % plan.tp:
            yield f"{name} {width} is not a multiple of tp {plan.tp}"


def _split_widths(model: ModelShape) -> Iterator[tuple[str, int]]:
    """Yield the inner widths of the MLPs that are split over tp: all but those of routed experts."""
    if not model.experts or model.dense_layers:
        yield "ffn", model.ffn
    if model.experts and (shared := model.shared_ffn or model.shared_experts * model.expert_ffn):
        yield "shared_ffn", shared


def _size_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """No size exceeds a plausible maximum."""
    if (parameters := total_parameters(model)) > MAX_PARAMETERS:
        yield f"the model has {parameters:.3g} parameters, more than {MAX_PARAMETERS:.0e}: check layers and hidden"
    if model.seq > MAX_TOKENS:
        yield f"seq {model.seq} is more than {MAX_TOKENS:.0e} tokens"


def _layer_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Layers are split over stages and chunks."""
    if plan.first_stage_layers or plan.last_stage_layers:
        yield from _uneven_rules(model, plan)
        return
    chunks = plan.pp * plan.vpp
    if (model.layers + model.encoder_layers) % chunks:
        yield (
            f"{_layer_words(model)} is not a multiple of pp {plan.pp} x vpp {plan.vpp} = {chunks}: "
            "ask for uneven stages with first_stage_layers and last_stage_layers"
        )


def _layer_words(model: ModelShape) -> str:
    """Return the layers with their number; those of the encoder are named where there are any."""
    if not model.encoder_layers:
        return f"layers {model.layers}"
    return f"layers {model.layers} + encoder_layers {model.encoder_layers}"


def _uneven_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Explicit stages and even other stages add up to all layers."""
    requested = {"first_stage_layers": plan.first_stage_layers, "last_stage_layers": plan.last_stage_layers}
    requested = {name: layers for name, layers in requested.items() if layers}
    words = " and ".join(f"{name} {layers}" for name, layers in requested.items())
    if plan.pp == 1:
        yield f"{words}: needs pp of at least 2"
        return
    remaining, stages = model.layers + model.encoder_layers - sum(requested.values()), plan.pp - len(requested)
    if remaining < stages or (not stages and remaining):
        yield f"{words}: leaves {remaining} of {_layer_words(model)} for the {stages} other stages of pp {plan.pp}"
    elif stages and remaining % (stages * plan.vpp):
        yield (
            f"{words}: leaves {remaining} of {_layer_words(model)}, which is not a multiple of the "
            f"{stages} other stages x vpp {plan.vpp} = {stages * plan.vpp}"
        )
    full = remaining // stages if stages > 0 else -(-max(requested.values()) // plan.vpp) * plan.vpp
    for name, layers in requested.items():
        # embedding and loss take the place of layers: the chunk with them may have none, each other one has at least 1
        if layers % plan.vpp and not plan.vpp - 1 <= layers < full:
            yield (
                f"{name} {layers} is not a multiple of vpp {plan.vpp}, nor from {plan.vpp - 1} to {full - 1}: "
                "fewer than other stages, with a layer for each chunk but that of embedding or loss"
            )


def _schedule_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Schedules need stages, chunks and micro-batches of a certain number."""
    schedule, pp, vpp, count = plan.schedule, plan.pp, plan.vpp, plan.micro_batches
    if vpp > 1 and pp == 1:
        yield f"vpp {vpp} needs pp of at least 2"
    if vpp > 1 and pp == 2 and plan.software is Software.MEGATRON:
        yield f"vpp {vpp} needs pp of at least 3 in Megatron-LM before Megatron Core, not {pp}"
    if schedule in _SPLIT_BACKWARD and pp == 1:
        yield f"schedule {schedule} needs pp of at least 2, not {pp}"
    if schedule in _ONE_CHUNK and vpp > 1:
        yield f"schedule {schedule} has one chunk a stage, vpp is {vpp}"
    if schedule is Schedule.ZERO_BUBBLE_V and vpp != 2:
        yield f"schedule {schedule} has two chunks a stage, vpp is {vpp}"
    if schedule is Schedule.DUALPIPE and pp % 2 and pp > 1:
        yield f"schedule {schedule} needs an even pp, not {pp}"
    if schedule is Schedule.DUALPIPE and (count % 2 or count < 2 * pp):
        yield f"schedule {schedule} needs an even number of micro-batches ({count}), at least 2 x pp {pp}"
    if schedule is Schedule.ONE_F_ONE_B and vpp > 1 and pp > 1:
        yield from _group_rules(plan)


def _group_rules(plan: Plan) -> Iterator[str]:
    """Interleaved stages take micro-batches in groups: of pp in Megatron-LM, of pp or more in PyTorch."""
    count, pp = plan.micro_batches, plan.pp
    if plan.software is not Software.PYTORCH:
        if count % pp:
            yield f"vpp {plan.vpp} needs micro-batches ({count}) that are a multiple of pp {pp}"
    elif count % max(1, count // pp):
        yield f"vpp {plan.vpp} needs micro-batches ({count}) that make {count // pp} equal groups, pp being {pp}"


_INSIDE_EXPERTS = (OffloadModule.EXPERT_FC1, OffloadModule.MOE_ACT, OffloadModule.FUSED_GROUP_MLP)


def _recompute_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """A stage cannot recompute more layers than it has, nor modules that the model has not."""
    if RecomputeModule.MLA_UP_PROJ in plan.recompute_modules.split() and not model.kv_lora_rank:
        yield f"recompute_modules {RecomputeModule.MLA_UP_PROJ} needs latent attention"
    if not plan.recompute_layers:
        return
    if plan.recompute is not Recompute.FULL:
        yield f"recompute_layers {plan.recompute_layers} needs recompute full, not {plan.recompute}"
    fullest = max(plan.first_stage_layers, plan.last_stage_layers, -(-(model.layers + model.encoder_layers) // plan.pp))
    if plan.recompute_layers > fullest:
        yield f"recompute_layers {plan.recompute_layers} is more than the {fullest} layers of a stage"


def _token_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """The sequence is split over cp, and over tp with sequence parallelism."""
    for name, tokens in (("seq", model.seq), ("encoder_seq", model.encoder_seq)):
        if plan.cp > 1 and tokens % (2 * plan.cp):
            yield f"{name} {tokens} is not a multiple of 2 x cp {plan.cp}"
        elif plan.sequence_parallel and tokens % (plan.cp * plan.tp):
            yield f"sequence parallelism: {name} {tokens} is not a multiple of cp {plan.cp} x tp {plan.tp}"


def expert_tensor_size(plan: Plan) -> int:
    """Return over how many ranks each expert is split, Megatron Core's default where the plan leaves it open."""
    return plan.etp or (plan.tp if plan.dp * plan.cp % plan.ep == 0 else 1)


def _expert_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Experts are split over ep, and each over etp."""
    if not model.experts:
        for name, size in (("ep", plan.ep), ("etp", plan.etp)):
            if size > 1:
                yield f"{name} {size}, but the model has no experts"
        return
    ranks, words = plan.dp * plan.cp * plan.tp, f"dp {plan.dp} x cp {plan.cp} x tp {plan.tp}"
    etp = expert_tensor_size(plan)
    if model.experts % plan.ep:
        yield f"experts {model.experts} is not a multiple of ep {plan.ep}"
    if model.expert_ffn % etp:
        yield f"expert_ffn {model.expert_ffn} is not a multiple of {'etp' if plan.etp else 'tp'} {etp}"
    if plan.etp and ranks % (plan.etp * plan.ep):
        yield f"{words} is not a multiple of etp {plan.etp} x ep {plan.ep}"
    elif ranks % plan.ep:
        yield f"{words} is not a multiple of ep {plan.ep}"


def _sharding_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """States are sharded over equal groups of replicas."""
    replicas = plan.dp * plan.cp
    if plan.shard_gpus and plan.sharding is Sharding.NONE:
        yield f"shard_gpus {plan.shard_gpus} needs sharding, which is none"
    if plan.shard_gpus and replicas % plan.shard_gpus:
        yield f"shard_gpus {plan.shard_gpus} does not divide the replicas dp {plan.dp} x cp {plan.cp} = {replicas}"
    if plan.software is Software.DEEPSPEED and plan.pp > 1 and plan.sharding in (Sharding.ZERO2, Sharding.ZERO3):
        yield f"DeepSpeed cannot combine {plan.sharding} with pp {plan.pp}: zero1 at most"


def _adapter_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """LoRA freezes the base, and only a frozen base can be quantised."""
    if plan.lora_rank > model.hidden:
        yield f"lora_rank {plan.lora_rank} is more than hidden {model.hidden}"
    if plan.lora_rank and plan.frozen_fraction:
        yield f"lora_rank {plan.lora_rank} freezes the base: frozen_fraction {plan.frozen_fraction} must be 0"
    if not plan.lora_rank and plan.base_bits < 16:
        yield f"base_bits {plan.base_bits} cannot be trained: needs lora_rank of at least 1"
    if not plan.lora_rank and plan.frozen_fraction == 1:
        yield "frozen_fraction 1 leaves nothing to train"


def _offload_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Offloaded data must be sharded, and must be stored at all."""
    if plan.offload is Offload.OPTIMIZER_AND_WEIGHTS and plan.sharding is not Sharding.ZERO3:
        yield f"offload {plan.offload} needs sharding zero3, not {plan.sharding}"
    if plan.offload is Offload.OPTIMIZER and plan.software is Software.DEEPSPEED and plan.sharding is Sharding.NONE:
        yield f"offload {plan.offload} needs sharding zero1 or more in DeepSpeed, not {plan.sharding}"
    moved = plan.offload_modules.split()
    if moved and plan.offload is Offload.ACTIVATIONS:
        yield f"offload_modules {plan.offload_modules} cannot be combined with offload {plan.offload}"
    if OffloadModule.ATTN_PROJ in moved and OffloadModule.CORE_ATTN not in moved:
        yield f"offload_modules {OffloadModule.ATTN_PROJ} needs {OffloadModule.CORE_ATTN}, which keeps the same tensor"
    if plan.recompute is Recompute.SELECTIVE and RecomputeModule.MOE in plan.recompute_modules.split():
        inside = [name for name in _INSIDE_EXPERTS if name in moved]
        if inside:
            yield f"offload_modules {' '.join(inside)}: nothing of experts is kept with recompute_modules moe"
    if plan.offload is Offload.ACTIVATIONS and plan.software is Software.MEGATRON_CORE:
        if plan.recompute is not Recompute.NONE:
            yield f"offload {plan.offload} cannot be combined with recompute {plan.recompute} in Megatron Core"
        if plan.pp > 1:
            yield f"offload {plan.offload} cannot be combined with pp {plan.pp} in Megatron Core"


def _low_precision_rules(model: ModelShape, plan: Plan) -> Iterator[str]:
    """Products in 8 and 4 bits need widths and tokens of a certain multiple."""
    multiple = _LOW_MULTIPLES.get(plan.precision)
    if multiple is None:
        return
    for name, width, divisor in _product_widths(model, plan):
        if width % (divisor * multiple):
            shared = f" / {divisor} GPUs" if divisor > 1 else ""
            yield f"precision {plan.precision}: {name} {width}{shared} is not a multiple of {multiple}"
    tokens = _LOW_TOKENS if multiple == 16 and plan.precision is not Precision.NVFP4 else multiple
    divisor = plan.cp * (plan.tp if plan.sequence_parallel else 1)
    if model.seq * plan.micro_batch % (divisor * tokens):
        yield (
            f"precision {plan.precision}: seq {model.seq} x micro_batch {plan.micro_batch}"
            f"{f' / {divisor} GPUs' if divisor > 1 else ''} is not a multiple of {tokens} tokens"
        )


def _product_widths(model: ModelShape, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Yield name, width and the GPUs it is split over, of the products that run in low precision."""
    yield "hidden", model.hidden, 1
    yield "heads x head_dim", model.heads * model.head_dim, plan.tp
    for name, width in _split_widths(model):
        yield name, width, plan.tp
    if model.experts:
        etp = expert_tensor_size(plan)
        yield "expert_ffn", model.expert_ffn, etp


_RULES: Mapping[Rule, Callable[[ModelShape, Plan], Iterator[str]]] = {
    Rule.TENSOR: _tensor_rules,
    Rule.SIZE: _size_rules,
    Rule.LAYERS: _layer_rules,
    Rule.SCHEDULE: _schedule_rules,
    Rule.RECOMPUTE: _recompute_rules,
    Rule.TOKENS: _token_rules,
    Rule.EXPERTS: _expert_rules,
    Rule.SHARDING: _sharding_rules,
    Rule.ADAPTERS: _adapter_rules,
    Rule.OFFLOAD: _offload_rules,
    Rule.LOW_PRECISION: _low_precision_rules,
}
