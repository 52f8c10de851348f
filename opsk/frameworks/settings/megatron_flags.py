"""Lists the flags of Megatron-LM and the overrides of Megatron-Bridge, and builds those that change a plan.

Source: ``megatron/training/arguments.py`` of Megatron-LM 0.5 to 0.20 (2019 to 2026) and the configuration classes that
it is made from, Megatron-DeepSpeed's and bigcode's forks of it, BioNeMo's ``train_esm2.py``, and
``training/mixed_precision.py`` and the recipes of Megatron-Bridge. Both names of a flag that a fork renamed are listed;
of several flags for one field the first is today's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from opsk.frameworks.settings.deepspeed_config import STAGES
from opsk.frameworks.settings.megatron_layout import (
    COUNTS_EMBEDDING,
    COUNTS_LOSS,
    FIRST,
    FLAGS,
    LAST,
    LAYOUT,
    STATED,
    choose_stage_fields,
)
from opsk.frameworks.settings.setting_names import SettingNames, Style, first_names
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Workload

_SEQUENCE_PARALLEL = "--sequence-parallel"
_DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer"
_ZERO_STAGE = "--zero-stage"
_RECOMPUTE_ACTIVATIONS = "--recompute-activations"
_CHECKPOINT_ACTIVATIONS = "--checkpoint-activations"
_GRANULARITY = "--recompute-granularity"
_METHOD = "--recompute-method"
_NUM_LAYERS = "--recompute-num-layers"
PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
_BRIDGE_SEQUENCE_PARALLEL = "model.sequence_parallel"
_BRIDGE_METHOD = "model.recompute_method"
SECTIONS = ("model", "trainer.strategy", "model.config")
"""Where Megatron-Bridge and NeMo 1, and where NeMo 2 has the fields of ``TransformerConfig``."""
_BRIDGE_NUM_LAYERS = "model.recompute_num_layers"
SWITCHES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "--use-precision-aware-optimizer": {"option.optimizer.precision_aware": "true"},
        "--fp8-param-gather": {"option.fp8.params": "true"},
        "--fine-grained-activation-offloading": {"option.offload.fine_grained": "true"},
        "--cross-entropy-loss-fusion": {"option.loss.fusion": "true"},
        "--account-for-embedding-in-pipeline-split": {"option.pipeline.counts_embedding": "true"},
        "--account-for-loss-in-pipeline-split": {"option.pipeline.counts_loss": "true"},
        "--moe-layer-recompute": {"plan.recompute": "selective", "option.recompute.moe_layer": "true"},
    }
)
"""Flags without a value, as those of `opsk.frameworks.settings.megatron_flags.CONSTANTS`."""
VALUES: Mapping[str, str] = MappingProxyType(
    {
        "--main-grads-dtype": "optimizer.main_grads",
        "--main-params-dtype": "optimizer.main_params",
        "--exp-avg-dtype": "optimizer.exp_avg",
        "--exp-avg-sq-dtype": "optimizer.exp_avg_sq",
        "--optimizer-offload-fraction": "optimizer.offload_fraction",
        "--cpu-offloading-num-layers": "offload.layers",
        "--moe-expert-capacity-factor": "moe.capacity_factor",
        "--mtp-num-layers": "mtp.layers",
        "--cross-entropy-fusion-impl": "loss.kernel",
    }
)
"""Flags of one value, and the option that it becomes."""
LISTS: Mapping[str, str] = MappingProxyType(
    {"--recompute-modules": "recompute.modules", "--offload-modules": "offload.modules"}
)
"""Flags of several words."""
_BUFFERS = "registered buffers that NCCL works on directly are not counted"
_TWICE = "a second buffer for what FSDP gathers is not counted"
UNMODELLED: Mapping[str, str] = MappingProxyType(
    {
        "--use-nccl-ub": _BUFFERS,
        "--gtp-remat-nccl-ub": _BUFFERS,
        "--gtp-expert-remat-nccl-ub": _BUFFERS,
        "--use-sharp": "what the switches' reduction keeps on a GPU is not counted",
        "--fsdp-double-buffer": _TWICE,
        "--megatron-fsdp-max-pool-double-buffer": _TWICE,
        "--keep-fp8-transpose-cache": "one more byte a weight is not counted",
        "--fp4-param-gather": "weights are counted in 16 bits beside their FP4 copies",
        "--distribute-saved-activations": "inputs of recomputed layers are counted whole on each rank",
        "--fp16-lm-cross-entropy": "logits are counted in fp32",
        "--activation-func-fp8-input-store": "the input of the activation function is counted in 16 bits",
        "--fp8-dot-product-attention": "query, key and value are counted in 16 bits",
        "--fp8-multi-head-attention": "query, key and value are counted in 16 bits",
        "--empty-unused-memory-level": "cached blocks are counted as if they were never given back",
        "--moe-router-padding-for-quantization": "tokens that fill up an expert's part are not counted",
        "--moe-router-padding-for-fp8": "tokens that fill up an expert's part are not counted",
        "--ddp-reduce-scatter-with-fp32-accumulation": "the copy of a bucket is not counted",
        "--ddp-pad-buckets-for-high-nccl-busbw": "what fills up buckets is not counted",
        "--use-layer-wise-distributed-optimizer": "states are counted as evenly sharded",
        "--megatron-fsdp-main-params-dtype": "master weights are counted in fp32",
        "--megatron-fsdp-main-grads-dtype": "gradients are counted as without it",
        "--outer-dp-sharding-strategy": "the outer groups' sharing of the optimizer is not counted",
        "--activation-offload-fraction": "all groups of the modules are counted as moved",
        "--delta-offload-bytes-across-pp-ranks": "each stage is counted as moving as much",
        "--cuda-graph-impl": "buffers of captured graphs are not counted",
        "--enable-cuda-graph": "buffers of captured graphs are not counted",
        "--external-cuda-graph": "buffers of captured graphs are not counted",
        "--check-weight-hash-across-dp-replicas-interval": "the buffer that it compares in is not counted",
        "--keep-ema": "a second copy of the weights is not counted",
        "--mhc-recompute-layer-num": "opsk does not count hyper-connections",
        "--fp32-residual-connection": "the stream between layers is counted in 16 bits",
    }
)
"""Flags that change memory and that no prediction counts, and what is taken instead."""
NO_CHANGE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--empty-unused-memory-level": ("0",),
        "--cuda-graph-impl": ("none",),
        "--activation-offload-fraction": ("1", "1.0"),
        "--outer-dp-sharding-strategy": ("no_shard",),
    }
)
"""The values with which such a flag changes nothing."""
BRIDGE_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer.main_grads_dtype": "optimizer.main_grads",
        "optimizer.main_params_dtype": "optimizer.main_params",
        "optimizer.exp_avg_dtype": "optimizer.exp_avg",
        "optimizer.exp_avg_sq_dtype": "optimizer.exp_avg_sq",
        "optimizer.optimizer_offload_fraction": "optimizer.offload_fraction",
        "model.recompute_modules": "recompute.modules",
        _BRIDGE_METHOD: "recompute.method",
        _BRIDGE_NUM_LAYERS: "recompute.layers",
        "model.offload_modules": "offload.modules",
        "model.cpu_offloading_num_layers": "offload.layers",
        "model.moe_expert_capacity_factor": "moe.capacity_factor",
        "model.cross_entropy_fusion_impl": "loss.kernel",
        "model.mtp_num_layers": "mtp.layers",
        "model.fp8_recipe": "fp8.recipe",
        "ddp.num_distributed_optimizer_instances": "optimizer.instances",
    }
)
"""Overrides of Megatron-Bridge whose value becomes an option; what is null is left out."""
BRIDGE_SWITCHES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "optimizer.use_precision_aware_optimizer": ("optimizer.precision_aware", "true", "false"),
        "optimizer.optimizer_cpu_offload": ("optimizer.offload", "cpu", "false"),
        "model.fine_grained_activation_offloading": ("offload.fine_grained", "true", "false"),
        "ddp.grad_reduce_in_fp32": ("optimizer.main_grads", "fp32", "bf16"),
        "mixed_precision.grad_reduce_in_fp32": ("optimizer.main_grads", "fp32", "bf16"),
        "model.cross_entropy_loss_fusion": ("loss.fusion", "true", "false"),
        "ddp.fp8_param_gather": ("fp8.params", "true", "false"),
        "mixed_precision.fp8_param_gather": ("fp8.params", "true", "false"),
    }
)
"""Overrides that are true or false: the option, and its value for either."""
BRIDGE_PRECISIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "bf16_mixed": ("bf16", ""),
        "fp16_mixed": ("fp16", ""),
        "bf16_with_fp8_delayed_scaling_mixed": ("fp8", "true"),
        "bf16_with_fp8_current_scaling_mixed": ("fp8-current", "true"),
        "bf16_with_fp8_subchannel_scaling_mixed": ("fp8-block", "false"),
        "bf16_with_mxfp8_mixed": ("mxfp8", "true"),
        "bf16_with_nvfp4_mixed": ("nvfp4", ""),
    }
)
"""Recipes of ``mixed_precision=``: number format of products, and whether weights are gathered in FP8."""
FSDP_STRATEGY = "--data-parallel-sharding-strategy"
FSDP_FLAGS = ("--use-megatron-fsdp", "--use-custom-fsdp")
"""Without one of them Megatron-LM ignores the strategy."""
LAST_WORDS: Mapping[str, int] = MappingProxyType(
    {
        FSDP_STRATEGY: 1,
        "--use-torch-fsdp2": 2,
        _RECOMPUTE_ACTIVATIONS: 1,
        "--fp8-format": 1,
        "--fp8-hybrid": 1,
        "--fp8-e4m3": 1,
        "--fp4-format": 1,
    }
)
"""Flags that override others about the same field, wherever they stand; the higher number overrides the lower."""
LAYOUTS = ("--pipeline-model-parallel-layout", *(f"{place}.pipeline_model_parallel_layout" for place in SECTIONS))
"""Flags and overrides that lay out the layers of every chunk, read by `opsk.frameworks.settings.megatron_layout`."""
END_STAGES: Mapping[str, str] = MappingProxyType(
    {
        "num_layers_in_first_pipeline_stage": "pipeline.first_layers",
        "num_layers_in_last_pipeline_stage": "pipeline.last_layers",
        "first_pipeline_num_layers": "pipeline.first_layers",
        "last_pipeline_num_layers": "pipeline.last_layers",
        "account_for_embedding_in_pipeline_split": "pipeline.counts_embedding",
        "account_for_loss_in_pipeline_split": "pipeline.counts_loss",
    }
)
"""Fields of Megatron Core's ``TransformerConfig`` that lay out the first and the last stage.

``first_pipeline_num_layers`` and its pair are the names of Megatron Core 0.9 and 0.10.
"""
NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "--num-layers": "model.layers",
        "--hidden-size": "model.hidden",
        "--ffn-hidden-size": "model.ffn",
        "--num-attention-heads": "model.heads",
        "--num-attention-head": "model.heads",
        "--num-query-groups": "model.kv_heads",
        "--num-key-value-heads": "model.kv_heads",
        "--kv-channels": "model.head_dim",
        "--seq-length": "model.seq",
        "--encoder-seq-length": "model.seq",
        "--max-seq-length": "model.seq",
        "--vocab-size": "model.vocab",
        "--padded-vocab-size": "model.vocab",
        "--pad-vocab-size-to": "model.vocab",
        "--num-experts": "model.experts",
        "--moe-router-topk": "model.top_k",
        "--topk": "model.top_k",
        "--moe-ffn-hidden-size": "model.expert_ffn",
        "--tensor-model-parallel-size": "plan.tp",
        "--model-parallel-size": "plan.tp",
        "--pipeline-model-parallel-size": "plan.pp",
        "--pipe-parallel-size": "plan.pp",
        "--context-parallel-size": "plan.cp",
        "--ds-sequence-parallel-size": "plan.cp",
        "--expert-model-parallel-size": "plan.ep",
        "--moe-expert-parallel-size": "plan.ep",
        "--num-virtual-stages-per-pipeline-rank": "plan.vpp",
        "--micro-batch-size": "plan.micro_batch",
        "--batch-size": "plan.micro_batch",
        "--global-batch-size": "plan.global_batch",
    }
)
"""Flags whose value is a number, and the field it states."""
CONSTANTS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "--swiglu": {"model.gated_mlp": True},
        "--gated-linear-unit": {"model.gated_mlp": True},
        "--untie-embeddings-and-output-weights": {"model.tied_embeddings": False},
        "--use-rotary-position-embeddings": {"model.learned_positions": False},
        "--no-position-embedding": {"model.learned_positions": False},
        "--use-flash-attn": {"model.flash_attention": True},
        "--use-flash-attn-v1": {"model.flash_attention": True},
        "--use-flash-attn-v2": {"model.flash_attention": True},
        "--use-flash-attn-triton": {"model.flash_attention": True},
        _SEQUENCE_PARALLEL: {"plan.sequence_parallel": True},
        "--fp16": {"plan.precision": "fp16"},
        "--bf16": {"plan.precision": "bf16"},
        "--fp8-hybrid": {"plan.precision": "fp8"},
        "--fp8-e4m3": {"plan.precision": "fp8"},
        _DISTRIBUTED_OPTIMIZER: {"plan.sharding": "zero1"},
        "--use-torch-fsdp2": {"plan.sharding": "zero3"},
        _RECOMPUTE_ACTIVATIONS: {"plan.recompute": "selective"},
        _CHECKPOINT_ACTIVATIONS: {"plan.recompute": "full"},
        "--cpu-offload": {"option.optimizer.offload": "cpu"},
        "--optimizer-cpu-offload": {"option.optimizer.offload": "cpu"},
        **SWITCHES,
        "--overlap-grad-reduce": {"option.overlap.grad_reduce": "true"},
        "--overlap-param-gather": {"option.overlap.param_gather": "true"},
        "--tp-comm-overlap": {"option.overlap.tp": "true"},
        "--overlap-moe-expert-parallel-comm": {"option.overlap.ep": "true"},
        "--moe-enable-deepep": {"option.moe.flex_backend": "deepep"},
        "--moe-grouped-gemm": {"option.moe.grouped_gemm": "true"},
        "--moe-permute-fusion": {"option.moe.permute_fusion": "true"},
        "--moe-pad-expert-input-to-capacity": {"option.moe.pads": "true"},
        "--moe-router-force-load-balancing": {"option.moe.balanced": "true"},
        "--moe-router-fusion": {"option.moe.router_fusion": "true"},
        "--moe-shared-expert-overlap": {"option.moe.shared_overlap": "true"},
        "--grad-reduce-in-bf16": {"option.optimizer.main_grads": "bf16"},
        "--disable-bias-linear": {"option.bias_linear": "false"},
        "--qk-layernorm": {"model.qk_norm": True},
        "--add-qkv-bias": {},
        "--moe-router-enable-expert-bias": {},
        "--multi-latent-attention": {},
    }
)
"""Flags without a value, and the values that they state."""
_ZERO_STAGES = MappingProxyType(
    {f"{stage}{end}": name for stage, name in enumerate(("none", "zero1", "zero2", "zero3")) for end in ("", ".", ".0")}
)
"""Megatron-DeepSpeed takes the stage as a float."""
WORDS: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        _GRANULARITY: ("plan.recompute", {"full": "full", "selective": "selective"}),
        _ZERO_STAGE: ("plan.sharding", _ZERO_STAGES),
        "--precision": (
            "plan.precision",
            {"bf16-mixed": "bf16", "bf16": "bf16", "16-mixed": "fp16", "fp16": "fp16", "32": "fp32", "fp32": "fp32"},
        ),
        "--fp8-format": ("plan.precision", {"hybrid": "fp8", "e4m3": "fp8"}),
        "--fp4-format": ("plan.precision", {"e2m1": "nvfp4"}),
        "--attention-backend": ("model.flash_attention", {"flash": True, "fused": True, "unfused": False}),
        FSDP_STRATEGY: (
            "plan.sharding",
            {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"},
        ),
        "--position-embedding-type": (
            "model.learned_positions",
            {
                "learned_absolute": True,
                "absolute": True,
                "rope": False,
                "rotary": False,
                "alibi": False,
                "mrope": False,
                "yarn": False,
                "relative": False,
                "none": False,
            },
        ),
    }
)
"""Flags whose value is a word, and the field and value that each word states."""
OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "--optimizer": "optimizer.name",
        "--position-embedding-type": "position_embedding_type",
        "--pp-partition-method": "pipeline.partition",
        "--tokenizer-type": "tokenizer.type",
        "--transformer-impl": "transformer_impl",
        "--attention-head-type": "attention.head_type",
        "--make-vocab-size-divisible-by": "vocab.divisor",
        _NUM_LAYERS: "recompute.layers",
        _METHOD: "recompute.method",
        "--moe-shared-expert-intermediate-size": "moe.shared_expert_ffn",
        PER_CHUNK: "pipeline.layers_per_chunk",
        "--decoder-first-pipeline-num-layers": "pipeline.first_layers",
        "--decoder-last-pipeline-num-layers": "pipeline.last_layers",
        "--expert-tensor-parallel-size": "expert.tensor",
        "--moe-token-dispatcher-type": "moe.dispatcher",
        "--moe-flex-dispatcher-backend": "moe.flex_backend",
        "--moe-expert-capacity-factor": "moe.capacity_factor",
        "--num-distributed-optimizer-instances": "optimizer.instances",
        "--fp8-recipe": "fp8.recipe",
    }
)
"""Flags whose value the completion uses as an option."""
CORE_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "num_layers": "model.layers",
        "hidden_size": "model.hidden",
        "ffn_hidden_size": "model.ffn",
        "num_attention_heads": "model.heads",
        "num_query_groups": "model.kv_heads",
        "kv_channels": "model.head_dim",
        "num_moe_experts": "model.experts",
        "moe_router_topk": "model.top_k",
        "tensor_model_parallel_size": "plan.tp",
        "pipeline_model_parallel_size": "plan.pp",
        "virtual_pipeline_model_parallel_size": "plan.vpp",
        "context_parallel_size": "plan.cp",
        "expert_model_parallel_size": "plan.ep",
    }
)
"""Numbers of Megatron Core's ``TransformerConfig``, which Megatron-Bridge and NeMo set under names of their own."""
OVERRIDES: Mapping[str, str] = MappingProxyType(
    {
        **{f"model.{name}": field for name, field in CORE_CONFIG.items()},
        "model.vocab_size": "model.vocab",
        "model.seq_length": "model.seq",
        "model.moe_ffn_hidden_size": "model.expert_ffn",
        "dataset.sequence_length": "model.seq",
        "dataset.seq_length": "model.seq",
        "train.micro_batch_size": "plan.micro_batch",
        "train.global_batch_size": "plan.global_batch",
    }
)
"""Megatron-Bridge's ``key=value`` overrides that state a number."""
OPTION_OVERRIDES: Mapping[str, str] = MappingProxyType(
    {
        "model.moe_token_dispatcher_type": "moe.dispatcher",
        "model.moe_flex_dispatcher_backend": "moe.flex_backend",
        "model.moe_grouped_gemm": "moe.grouped_gemm",
        "model.moe_permute_fusion": "moe.permute_fusion",
        "model.moe_expert_capacity_factor": "moe.capacity_factor",
        "model.moe_pad_expert_input_to_capacity": "moe.pads",
        "model.expert_tensor_parallel_size": "expert.tensor",
        **{f"model.{name}": option for name, option in END_STAGES.items()},
        "comm_overlap.overlap_moe_expert_parallel_comm": "overlap.ep",
    }
)
"""Megatron-Bridge's overrides whose value the completion uses as an option."""
BOOLEAN_OVERRIDES: Mapping[str, str] = MappingProxyType({_BRIDGE_SEQUENCE_PARALLEL: "plan.sequence_parallel"})
"""Megatron-Bridge's overrides that state true or false."""
VALUELESS = frozenset(CONSTANTS)
"""Flags that never take the next word as their value."""
ONE_VALUE = frozenset(
    {
        *("--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-id", "--rdzv-backend", "--rdzv-endpoint"),
        *("--master-addr", "--master-port", "--hostfile", "--log-dir", "--num-nodes", "--node-list", "--job-name"),
        *("--data-path", "--data-cache-path", "--save", "--load", "--tensorboard-dir", "--wandb-exp-name"),
        *("--wandb-project", "--wandb-save-dir", "--tokenizer-model", "--vocab-file", "--merge-file"),
    }
)
"""Flags of launchers, and of paths and names, that take exactly one word: a flag cannot hide in it."""
_NUMBERED = ("tp", "pp", "vpp", "micro_batch", "global_batch")
LM_NAMES: Mapping[str, str] = MappingProxyType(first_names(NUMBERS, *_NUMBERED))
"""Today's flag of a number."""
BRIDGE_NAMES: Mapping[str, str] = MappingProxyType(first_names(OVERRIDES, *_NUMBERED))
_WRITTEN = ("tp", "pp", "micro_batch")
BEFORE_2 = ("--model-parallel-size", "--batch-size")
"""Names that 2.0 replaced, and refuses since."""
_STAGES = ("pp", "vpp", "first_stage_layers", "last_stage_layers")
_SWITCHED = (COUNTS_EMBEDDING, COUNTS_LOSS)
BIONEMO = SettingNames(
    style=Style.FLAG,
    numbers={
        **{field: LM_NAMES[field].removeprefix("--") for field in _WRITTEN},
        "micro_batches": "accumulate-grad-batches",
    },
    computes_batch=True,
)


def build_megatron_flags(
    workload: Workload, requested: Plan, target: Plan, *, deepspeed: bool, model: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the difference as Megatron-LM flags, in the script's own spelling where it has one.

    Empty where the release that the script's flags belong to lacks a flag. ``model`` is for flags that lay out stages.
    """
    if _is_before_2(workload):
        return _build_flags_before_2(workload, requested, target)
    flags = [
        f"{_find_name(workload, field)} {getattr(target, field)}"
        for field in _WRITTEN
        if _differ(requested, target, field)
    ]
    fields, dropped = _list_stage_fields(workload, model, requested, target)
    flags += [f"(without {FLAGS[name]})" for name in dropped]
    if LAYOUT in fields:
        flags += [f"(without {name})" for name in (LM_NAMES["vpp"], PER_CHUNK) if _is_chunk_flag(workload, name)]
    else:
        flags += _build_chunk_flags(workload, requested, target, fields=fields, dropped=dropped)
    flags += [FLAGS[name] if value is True else f"{FLAGS[name]} {_quote(value)}" for name, value in fields.items()]
    if _is_batch_left_open(workload, requested, target):
        flags.append(f"{LM_NAMES['global_batch']} {target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        flags.append(_SEQUENCE_PARALLEL)
    if requested.sharding != target.sharding and deepspeed:
        flags.append(f"{_ZERO_STAGE} {STAGES[target.sharding]}")
    elif requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        flags.append(_DISTRIBUTED_OPTIMIZER)
    if _changes_recompute(workload, requested, target):
        flags += _build_recompute_flags(workload, target, deepspeed=deepspeed)
    return tuple(flags)


def _find_name(workload: Workload, field: str) -> str:
    """Return the flag with which the script states a number, else today's: one with two names has forks for both."""
    stated = next((entry.text for entry in workload.evidence if entry.field == f"plan.{field}"), "")
    name = stated.replace("=", " ").partition(" ")[0].replace("_", "-")
    return name if NUMBERS.get(name) == f"plan.{field}" else LM_NAMES[field]


def _is_before_2(workload: Workload) -> bool:
    """Return whether the script's flags are those of Megatron-LM before 2.0 (December 2020), and of forks of it."""
    return any(_find_name(workload, field) in BEFORE_2 for field in _WRITTEN)


def _build_flags_before_2(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the difference as flags of Megatron-LM before 2.0; empty where that release lacks one of them."""
    changed = {field for field in Plan.__dataclass_fields__ if _differ(requested, target, field)}
    if changed - {"tp", "micro_batch", "dp", "recompute"}:
        return ()
    flags = [
        f"{next(name for name in BEFORE_2 if NUMBERS[name] == f'plan.{field}')} {getattr(target, field)}"
        for field in ("tp", "micro_batch")
        if field in changed
    ]
    if "recompute" in changed and Recompute.SELECTIVE in (requested.recompute, target.recompute):
        return ()
    if "recompute" in changed and target.recompute is Recompute.FULL:
        flags += [_CHECKPOINT_ACTIVATIONS, "(older spelling, for releases before 2.6)"]
    elif "recompute" in changed:
        flags.append(f"(without {_CHECKPOINT_ACTIVATIONS})")
    return tuple(flags)


def _list_stage_fields(
    workload: Workload, model: ModelShape | None, requested: Plan, target: Plan
) -> tuple[dict[str, int | str | bool], tuple[str, ...]]:
    """Return the fields that lay out the stages of a target, and those of a script that it does without.

    Both are empty where the stages stay as they are.
    """
    options = dict(workload.options)
    if model is None or all(not _differ(requested, target, field) for field in _STAGES):
        return {}, ()
    fields = choose_stage_fields(model, target)
    stated = (LAYOUT,) if STATED[LAYOUT] in options else tuple(name for name in FLAGS if STATED[name] in options)
    return fields, tuple(name for name in stated if name not in fields)


def _quote(value: int | str) -> str:
    """Return a value as a shell takes it: a layout has signs of its own."""
    return f"'{value}'" if isinstance(value, str) else str(value)


def _is_chunk_flag(workload: Workload, name: str) -> bool:
    """Return whether a script sets the number of chunks with this flag."""
    if name == PER_CHUNK:
        return "pipeline.layers_per_chunk" in dict(workload.options)
    return any(entry.field == "plan.vpp" and entry.text.startswith(name) for entry in workload.evidence)


def _build_chunk_flags(
    workload: Workload,
    requested: Plan,
    target: Plan,
    *,
    fields: Mapping[str, object] = MappingProxyType({}),
    dropped: tuple[str, ...] = (),
) -> list[str]:
    """Return the flag for the number of model chunks per stage, in the unit that the script uses.

    A script that has none gets the layers of a chunk, which every release since 2.1 takes; chunks of equal layers alone
    can be written so, and their number is a flag since Core 0.11 (February 2025). Where a layout is dropped that gave
    the number, or layers of the first or last stage are given, the number is written.
    """
    if all(not _differ(requested, target, field) for field in _STAGES):
        return []
    options, layers = dict(workload.options), workload.model.layers
    per_chunk = options.get("pipeline.layers_per_chunk")
    is_counted = _is_chunk_flag(workload, LM_NAMES["vpp"]) or LAYOUT in dropped
    chunks, counted = target.pp * target.vpp, (layers or 0) + sum(value is True for value in fields.values())
    if per_chunk is not None and target.vpp > 1 and (FIRST in fields or LAST in fields):
        return [f"(without {PER_CHUNK})", f"{LM_NAMES['vpp']} {target.vpp}"]
    if per_chunk is None and (is_counted or not layers or counted % chunks):
        if requested.vpp == target.vpp and LAYOUT not in dropped:
            return []
        if target.vpp == 1:
            return [] if LAYOUT in dropped else [f"(without {LM_NAMES['vpp']})"]
        return [f"{LM_NAMES['vpp']} {target.vpp}"]
    if target.vpp == 1:
        # the same layers a chunk may be one chunk of the stages before, and several of these
        return [f"(without {PER_CHUNK})"] if requested.vpp > 1 or per_chunk is not None else []
    if per_chunk is None and requested.vpp == target.vpp:
        return []
    target_chunk = str(counted // chunks)
    return [f"{PER_CHUNK} {target_chunk}"] if layers and target_chunk != per_chunk else []


def _changes_recompute(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the flags for recomputation are others for the target."""
    if requested.recompute != target.recompute:
        return True
    stated = -(-requested.recompute_layers // requested.vpp) * target.vpp  # the script counts layers of each chunk
    unchanged = replace(target, recompute_layers=stated)
    is_full = target.recompute is Recompute.FULL
    return is_full and _count_recomputed(workload, unchanged) != _count_recomputed(workload, target)


def _count_recomputed(workload: Workload, plan: Plan) -> int:
    """Return the recomputed layers of each chunk, 0 for all of them."""
    chunk_layers = -(-(workload.model.layers or 0) // (plan.pp * plan.vpp))
    layers = -(-plan.recompute_layers // plan.vpp)
    return 0 if chunk_layers and layers >= chunk_layers else layers


def _build_recompute_flags(workload: Workload, target: Plan, *, deepspeed: bool) -> list[str]:
    """Return the flags of the target's recomputation, and the removal of flags that contradict it."""
    mode = target.recompute
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.recompute"), "")
    short = stated.split(" ")[0]
    is_simple = short in (_RECOMPUTE_ACTIVATIONS, _CHECKPOINT_ACTIVATIONS)
    options = dict(workload.options)
    if mode is Recompute.NONE:
        return [f"(without {short or 'recompute flags'})"]
    flags = [f"(without {short})"] if is_simple else []
    if mode is Recompute.FULL:
        layers = _count_recomputed(workload, target)
        full = (
            f"{_GRANULARITY} full {_METHOD} {f'block {_NUM_LAYERS} {layers}' if layers else f'uniform {_NUM_LAYERS} 1'}"
        )
        return [*flags, _CHECKPOINT_ACTIVATIONS if deepspeed else full]
    if "recompute.method" in options:
        flags.append(f"(without {_METHOD})")
    return [*flags, _RECOMPUTE_ACTIVATIONS if deepspeed else f"{_GRANULARITY} selective"]


def build_bridge_overrides(
    workload: Workload, requested: Plan, target: Plan, *, model: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the difference as Megatron-Bridge overrides; ``model`` is for those that lay out stages."""
    overrides = [
        f"{BRIDGE_NAMES[field]}={getattr(target, field)}" for field in _WRITTEN if _differ(requested, target, field)
    ]
    if requested.vpp != target.vpp:
        value = target.vpp if target.vpp > 1 else "null"
        overrides.append(f"{BRIDGE_NAMES['vpp']}={value}")
    fields, dropped = _list_stage_fields(workload, model, requested, target)
    overrides += [f"model.{name}={'false' if name in _SWITCHED else 'null'}" for name in dropped]
    overrides += [f"model.{name}={'true' if value is True else _quote(value)}" for name, value in fields.items()]
    if _is_batch_left_open(workload, requested, target):
        overrides.append(f"{BRIDGE_NAMES['global_batch']}={target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        overrides.append(f"{_BRIDGE_SEQUENCE_PARALLEL}=true")
    if requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        overrides.append("ddp.use_distributed_optimizer=true")
    if _changes_recompute(workload, requested, target):
        mode = "null" if target.recompute is Recompute.NONE else target.recompute.value
        overrides.append(f"model.recompute_granularity={mode}")
        if target.recompute is Recompute.FULL:
            layers = _count_recomputed(workload, target)
            method = "block" if layers else "uniform"
            overrides += [f"{_BRIDGE_METHOD}={method}", f"{_BRIDGE_NUM_LAYERS}={layers or 1}"]
    return tuple(overrides)


def _is_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the framework would compute another global batch for the new plan than for the requested one."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    is_computed = workload.plan.global_batch is None or " × dp " in stated
    return is_computed and (_differ(requested, target, "dp") or _differ(requested, target, "micro_batch"))


def _differ(requested: Plan, target: Plan, field: str) -> bool:
    """Return whether two plans differ in a field."""
    return bool(getattr(requested, field) != getattr(target, field))
