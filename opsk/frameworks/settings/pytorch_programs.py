"""Lists the settings of training programs on PyTorch that shard or copy whole replicas.

Sources: the YAML of llm-foundry's ``scripts/train`` (Composer); ``olmo/config.py`` of OLMo; ``configs/training.py`` and
``configs/fsdp.py`` of llama-cookbook; ``fms_fsdp/config/training.py``; torchtune's recipes; ``litgpt/args.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.frameworks.settings.setting_names import SettingNames, Style, first_names
from opsk.workload.plan import Recompute, Sharding

STEPS = "gradient_accumulation_steps"
"""Of llama-cookbook and torchtune."""
STRATEGY = "sharding_strategy"
_STRATEGIES = {Sharding.NONE: "NO_SHARD", Sharding.ZERO2: "SHARD_GRAD_OP", Sharding.ZERO3: "FULL_SHARD"}
"""PyTorch's own words."""

# Composer and OLMo
DEVICE_MICRO_BATCH = "device_train_microbatch_size"
FSDP_SECTION = "fsdp_config"
COMPOSER_RECOMPUTE = "activation_checkpointing"
COMPOSER_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "model.max_seq_len": "model.seq",
        "max_seq_len": "model.seq",
        "model.d_model": "model.hidden",
        "model.n_heads": "model.heads",
        "model.n_layers": "model.layers",
        "model.head_dim": "model.head_dim",
        "model.vocab_size": "model.vocab",
        "model.attn_config.kv_n_heads": "model.kv_heads",
        "model.ffn_config.moe_num_experts": "model.experts",
        "model.ffn_config.moe_top_k": "model.top_k",
        "model.ffn_config.moe_world_size": "plan.ep",
        "tp_config.tensor_parallel_degree": "plan.tp",
        "parallelism_config.tp.tensor_parallel_degree": "plan.tp",
        "global_train_batch_size": "plan.global_batch",
    }
)
COMPOSER = SettingNames(
    style=Style.FILE,
    numbers={"micro_batch": DEVICE_MICRO_BATCH},
    recompute={
        Recompute.NONE: ((f"{FSDP_SECTION}.{COMPOSER_RECOMPUTE}", "false"),),
        Recompute.FULL: ((f"{FSDP_SECTION}.{COMPOSER_RECOMPUTE}", "true"),),
    },
    sharding={kind: ((f"{FSDP_SECTION}.{STRATEGY}", word),) for kind, word in _STRATEGIES.items()},
)
OLMO_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "model.d_model": "model.hidden",
        "model.n_layers": "model.layers",
        "model.n_heads": "model.heads",
        "model.n_kv_heads": "model.kv_heads",
        "model.max_sequence_length": "model.seq",
        "model.vocab_size": "model.vocab",
        "model.embedding_size": "model.vocab",
        DEVICE_MICRO_BATCH: "plan.micro_batch",
        "global_train_batch_size": "plan.global_batch",
    }
)
OLMO_RECOMPUTE, OLMO_ALL_LAYERS = "activation_checkpointing", "whole_layer"
OLMO_STRATEGY = f"fsdp.{STRATEGY}"
OLMO = SettingNames(
    style=Style.FILE,
    numbers=first_names(OLMO_NUMBERS, "micro_batch"),
    recompute={
        Recompute.NONE: ((OLMO_RECOMPUTE, "null"),),
        Recompute.FULL: ((OLMO_RECOMPUTE, OLMO_ALL_LAYERS),),
    },
    sharding={kind: ((OLMO_STRATEGY, word),) for kind, word in _STRATEGIES.items()},
)

# llama-cookbook and fms-fsdp
FSDP_RECOMPUTE = "fsdp_activation_checkpointing"
COOKBOOK_BATCH = "batch_size_training"
COOKBOOK = SettingNames(
    style=Style.FLAG,
    numbers={"micro_batch": COOKBOOK_BATCH, "micro_batches": STEPS},
    recompute={
        Recompute.NONE: ((f"{FSDP_SECTION}.{FSDP_RECOMPUTE}", "False"),),
        Recompute.FULL: ((f"{FSDP_SECTION}.{FSDP_RECOMPUTE}", "True"),),
    },
    sharding=COMPOSER.sharding,
    computes_batch=True,
)
FMS_NUMBERS: Mapping[str, str] = MappingProxyType(
    {"batch_size": "plan.micro_batch", "seq_length": "model.seq", "vocab_size": "model.vocab"}
)
FMS_SHARDING: Mapping[str, object] = MappingProxyType({"fsdp": "zero3", "hsdp": "zero3", "ddp": "none"})
FMS_PART = "selective_checkpointing"
"""The share of the layers that is recomputed."""
FMS = SettingNames(
    style=Style.FLAG,
    numbers=first_names(FMS_NUMBERS, "micro_batch"),
    recompute={
        Recompute.NONE: ((FSDP_RECOMPUTE, "False"),),
        Recompute.FULL: ((FSDP_RECOMPUTE, "True"), (FMS_PART, "1")),
    },
    sharding={Sharding.NONE: ((STRATEGY, "ddp"),), Sharding.ZERO3: ((STRATEGY, "fsdp"),)},
)

# torchtune and LitGPT
TORCHTUNE_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "batch_size": "plan.micro_batch",
        "tokenizer.max_seq_len": "model.seq",
        "tensor_parallel_dim": "plan.tp",
        "context_parallel_dim": "plan.cp",
    }
)
TORCHTUNE_RECOMPUTE = "enable_activation_checkpointing"
TORCHTUNE = SettingNames(
    style=Style.OVERRIDE,
    numbers={**first_names(TORCHTUNE_NUMBERS, "micro_batch"), "micro_batches": STEPS},
    recompute={
        Recompute.NONE: ((TORCHTUNE_RECOMPUTE, "False"),),
        Recompute.FULL: ((TORCHTUNE_RECOMPUTE, "True"),),
    },
    computes_batch=True,
)
LITGPT_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "train.micro_batch_size": "plan.micro_batch",
        "train.global_batch_size": "plan.global_batch",
        "model_config.n_layer": "model.layers",
        "model_config.n_embd": "model.hidden",
        "model_config.n_head": "model.heads",
        "model_config.n_query_groups": "model.kv_heads",
        "model_config.intermediate_size": "model.ffn",
        "model_config.padded_vocab_size": "model.vocab",
        "model_config.block_size": "model.seq",
        # the training's setting overrides the model's maximum
        "train.max_seq_length": "model.seq",
    }
)
LITGPT = SettingNames(style=Style.FLAG, numbers=first_names(LITGPT_NUMBERS, "micro_batch"))
