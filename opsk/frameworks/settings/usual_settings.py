"""Lists the names and words that training programs of any kind usually give to their settings.

A framework's own names are in a table of its own. Names are written with underscores and in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _table(**names: str) -> Mapping[str, str]:
    """Return the field by each of the names that are listed for it."""
    fields = {field: field.replace("__", ".") for field in names}
    return MappingProxyType({name: fields[field] for field, row in names.items() for name in row.split()})


NUMBERS = _table(
    model__layers="num_layers n_layers n_layer num_hidden_layers nlayers num_layer n_blocks",
    model__hidden="hidden_size n_embd d_model n_embed embed_dim emb_dim model_dim d_embed dim_model",
    model__heads="num_attention_heads num_heads n_heads n_head nhead nheads num_attn_heads n_attention_heads",
    model__kv_heads="num_key_value_heads num_kv_heads n_kv_heads n_kv_head n_head_kv kv_heads num_query_groups",
    model__head_dim="head_dim kv_channels d_head",
    model__ffn=(
        "intermediate_size ffn_hidden_size d_ff n_inner ffn_dim dim_feedforward ff_dim d_ffn dim_ff mlp_hidden_dim"
    ),
    model__vocab="padded_vocab_size vocab_size n_vocab",
    model__experts="num_experts num_local_experts n_routed_experts moe_num_experts",
    model__top_k="num_experts_per_tok moe_top_k moe_router_topk num_experts_per_token",
    model__seq=(
        "seq_len seq_length sequence_length block_size context_length context_len max_seq_len max_seq_length ctx_len"
        " sequence_len max_sequence_length model_max_length train_seq_len cutoff_len"
    ),
    plan__micro_batch=(
        "per_device_train_batch_size per_gpu_train_batch_size micro_batch_size train_micro_batch_size_per_gpu"
        " device_batch_size batch_size_per_gpu per_gpu_batch_size local_batch_size per_device_batch_size"
        " batch_size_per_device microbatch_size device_train_microbatch_size device_microbatch_size"
    ),
    plan__global_batch="global_batch_size global_train_batch_size effective_batch_size",
    plan__tp="tp tp_size tp_degree tensor_parallel_size tensor_model_parallel_size tensor_parallel_degree",
    plan__pp="pp pp_size pp_degree pipeline_parallel_size pipeline_model_parallel_size pipeline_parallel_degree",
    plan__cp="context_parallel_size context_parallel_degree",
    plan__ep="expert_parallel_size expert_model_parallel_size expert_parallel_degree",
)
"""Numbers, and the field that each states."""
MAX_SEQUENCES = 1 << 16
"""A larger batch may count tokens, as that of nanoGPT's descendants does."""
LAST_WIDTHS = ("dim", "width")
"""The width of the model, where layers and heads are given and no name of `NUMBERS` gives it."""
IMAGE_SIDES = ("image_size", "img_size", "input_size", "resolution", "train_crop_size", "crop_size")
"""The side of an image."""
DATA_SETS = ("dataset", "dataset_name", "data_set", "data_name", "train_dataset")
"""The data set, by the name of a public one or a folder."""
LAST_LENGTHS = ("max_length", "max_len")
"""The tokens of a sequence, where no name of `NUMBERS` gives them."""
BATCHES = ("batch_size", "train_batch_size", "bs", "batch")
"""The samples of a rank, or of all ranks: which of them only the program says."""
STEPS = (
    *("gradient_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches", "grad_accumulation_steps"),
    *("accumulation_steps", "accum_iter", "accum_steps", "gradient_accumulation", "grad_accum", "update_freq"),
)
"""Steps of gradient accumulation."""
PRECISIONS = ("mixed_precision", "precision", "amp_dtype", "dtype", "torch_dtype")
RECOMPUTES = (
    *("gradient_checkpointing", "activation_checkpointing", "grad_checkpointing", "use_gradient_checkpointing"),
    *("use_activation_checkpointing", "enable_activation_checkpointing", "fsdp_activation_checkpointing"),
    *("use_checkpoint", "grad_checkpoint", "gradient_checkpoint"),
)
SHARDINGS = ("sharding_strategy", "fsdp_sharding_strategy", "zero_stage", "strategy", "distributed_strategy")
MODELS = (
    *("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id", "base_model", "model_path"),
    *(
        "pretrained_model_name",
        "pretrained_model",
        "model",
        "arch",
        "model_type",
        "hf_model",
        "init_from",
        "checkpoint",
    ),
    *("base_model_name", "base_model_name_or_path", "base_model_id", "hf_model_name", "hf_model_id"),
    *("model_checkpoint", "pretrained_model_path", "pre_trained_model", "pretrained_model_id", "vla_path"),
)
"""The model that is trained, by the name of a public one or a folder."""
CONFIGS = ("config", "config_file", "cfg", "config_path", "cfg_path", "conf", "yaml", "yml", "config_name", "cfg_file")
"""A file that holds more settings."""
OTHER_PARTS = frozenset(
    {
        *(
            "teacher",
            "critic",
            "ref",
            "reference",
            "reward",
            "discriminator",
            "generator",
            "vae",
            "text_encoder",
            "encoder",
        ),
        *(
            "vision",
            "vision_tower",
            "vision_config",
            "vision_encoder",
            "image_encoder",
            "audio_encoder",
            "draft",
            "judge",
        ),
        *(
            "eval",
            "evaluation",
            "val",
            "valid",
            "validation",
            "test",
            "inference",
            "sampler",
            "generation",
            "tokenizer",
        ),
        *("rollout", "value", "predictor", "adapter", "lora", "peft", "connector", "projector"),
    }
)
"""Sections whose settings are those of another model, or of no training."""

PRECISION_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("bf16", "bfloat16", "torch.bfloat16", "bf16-mixed", "bf16-true", "amp_bf16", "bf16_mixed"),
                *("amp_bfloat16", "pure_bf16"),
            ),
            "bf16",
        ),
        **dict.fromkeys(
            ("fp16", "float16", "half", "torch.float16", "16-mixed", "16-true", "amp_fp16", "amp", "16", "pure_fp16"),
            "fp16",
        ),
        **dict.fromkeys(("fp32", "float32", "float", "torch.float32", "32", "32-true"), "fp32"),
        **dict.fromkeys(("fp8", "amp_fp8"), "fp8"),
    }
)
"""Number formats by the words for them."""
TRUE_FORMATS: Mapping[str, str] = MappingProxyType(
    {"bf16-true": "bf16", "16-true": "fp16", "pure_bf16": "bf16", "pure_fp16": "fp16"}
)
"""Words with which weights, gradients and moments are in 16 bits too: Lightning's, and OpenCLIP's ``--precision``."""
FSDP_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("full_shard", "hybrid_shard", "full", "hybrid"), "zero3"),
        **dict.fromkeys(("shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2"), "zero2"),
        **dict.fromkeys(("no_shard", "no"), "none"),
    }
)
"""What FSDP's strategies shard."""
STRATEGY_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **FSDP_WORDS,
        **{f"shardingstrategy.{word}": stage for word, stage in FSDP_WORDS.items()},
        **dict.fromkeys(
            ("ddp", "ddp_find_unused_parameters_true", "ddp_spawn", "ddp_find_unused_parameters_false"), "none"
        ),
        **dict.fromkeys(("fsdp", "fsdp2"), "zero3"),
        **{f"deepspeed_stage_{stage}": f"zero{stage}" for stage in (1, 2, 3)},
        **{str(stage): name for stage, name in enumerate(("none", "zero1", "zero2", "zero3"))},
    }
)
"""What the strategies of launchers and of Lightning shard, and DeepSpeed's stages."""
