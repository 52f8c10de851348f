"""Maps the flags of Megatron to the fields that they state. Data only.

Source: Megatron-LM ``megatron/training/arguments.py`` (2019 to 2026), Megatron-DeepSpeed's and bigcode's forks of it,
Megatron-Bridge's recipe configuration. Both names of a flag that a fork renamed are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.frameworks.megatron.memory_flags import SWITCHES

FSDP_STRATEGY = "--data-parallel-sharding-strategy"
FSDP_FLAGS = ("--use-megatron-fsdp", "--use-custom-fsdp")
"""Without one of them Megatron-LM ignores the strategy."""

LAST_WORDS: Mapping[str, int] = MappingProxyType(
    {
        FSDP_STRATEGY: 1,
        "--use-torch-fsdp2": 2,
        "--recompute-activations": 1,
        "--fp8-format": 1,
        "--fp8-hybrid": 1,
        "--fp8-e4m3": 1,
        "--fp4-format": 1,
    }
)
"""Flags that override others about the same field, wherever they stand; the higher number overrides the lower."""

LAYOUTS = (
    "--num-layers-per-virtual-pipeline-stage",
    "--pipeline-model-parallel-layout",
    "model.pipeline_model_parallel_layout",
)
"""Flags and overrides that set VPP in another unit than chunks."""

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
        "--sequence-parallel": {"plan.sequence_parallel": True},
        "--fp16": {"plan.precision": "fp16"},
        "--bf16": {"plan.precision": "bf16"},
        "--fp8-hybrid": {"plan.precision": "fp8"},
        "--fp8-e4m3": {"plan.precision": "fp8"},
        "--use-distributed-optimizer": {"plan.sharding": "zero1"},
        "--use-torch-fsdp2": {"plan.sharding": "zero3"},
        "--recompute-activations": {"plan.recompute": "selective"},
        "--checkpoint-activations": {"plan.recompute": "full"},
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
        "--recompute-granularity": ("plan.recompute", {"full": "full", "selective": "selective"}),
        "--zero-stage": ("plan.sharding", _ZERO_STAGES),
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
        "--recompute-num-layers": "recompute.layers",
        "--recompute-method": "recompute.method",
        "--moe-shared-expert-intermediate-size": "moe.shared_expert_ffn",
        "--num-layers-per-virtual-pipeline-stage": "pipeline.layers_per_chunk",
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
        "comm_overlap.overlap_moe_expert_parallel_comm": "overlap.ep",
    }
)
"""Megatron-Bridge's overrides whose value the completion uses as an option."""

BOOLEAN_OVERRIDES: Mapping[str, str] = MappingProxyType({"model.sequence_parallel": "plan.sequence_parallel"})
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
