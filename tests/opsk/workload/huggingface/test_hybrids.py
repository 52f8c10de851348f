from __future__ import annotations

import json
from typing import Any

import pytest

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.workload.huggingface.model import ConfigModel, parse_model_config
from opsk.workload.model import Mixer
from opsk.workload.public_models.lookup import public_model

CONFIGS: dict[str, dict[str, Any]] = {
    "nemotron-3-nano-30b-a3b": {
        "model_type": "nemotron_h",
        "vocab_size": 131072,
        "hidden_size": 2688,
        "intermediate_size": 1856,
        "num_hidden_layers": 52,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mlp_hidden_act": "relu2",
        "ssm_state_size": 128,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "conv_kernel": 4,
        "chunk_size": 128,
        "n_groups": 8,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "tie_word_embeddings": False,
    },
    "jamba": {
        "model_type": "jamba",
        "attn_layer_offset": 4,
        "attn_layer_period": 8,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "mamba_dt_rank": 256,
        "mamba_expand": 2,
        "num_attention_heads": 32,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 65536,
    },
    "falcon-h1-0.5b": {
        "model_type": "falcon_h1",
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "mamba_chunk_size": 128,
        "mamba_d_conv": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_n_heads": 24,
        "mamba_rms_norm": False,
        "num_attention_heads": 8,
        "num_hidden_layers": 36,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "vocab_size": 32784,
        "attn_layer_indices": None,
    },
    "qwen3.5-0.8b": {
        "model_type": "qwen3_5_text",
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_value_head_dim": 128,
        "num_attention_heads": 8,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vocab_size": 248320,
        "mlp_only_layers": [],
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        "decoder_sparse_step": 1,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "mlp_only_layers": [],
        "moe_intermediate_size": 512,
        "num_attention_heads": 16,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "kimi-linear-48b-a3b": {
        "model_type": "kimi_linear",
        "hidden_size": 2304,
        "head_dim": 72,
        "intermediate_size": 9216,
        "moe_intermediate_size": 1024,
        "num_hidden_layers": 27,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_experts": 256,
        "num_shared_experts": 1,
        "num_experts_per_token": 8,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "linear_attn_config": {
            "kda_layers": [layer for layer in range(1, 27) if layer % 4],
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "head_dim": 128,
            "num_heads": 32,
            "short_conv_kernel_size": 4,
        },
        "vocab_size": 163840,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
    },
    "minimax-text-01": {
        "model_type": "minimax_m1",
        "hidden_size": 6144,
        "intermediate_size": 9216,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 200064,
        "hidden_act": "silu",
        "num_local_experts": 32,
        "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
        "shared_intermediate_size": 0,
        "attn_type_list": ([0] * 7 + [1]) * 10,
    },
    "granite-4.0-h-tiny": {
        "model_type": "granitemoehybrid",
        "hidden_size": 1536,
        "num_hidden_layers": 40,
        "vocab_size": 100352,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "mamba_n_heads": 48,
        "mamba_d_head": "auto",
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_chunk_size": 256,
        "num_local_experts": 64,
        "num_experts_per_tok": 6,
        "intermediate_size": 512,
        "shared_intermediate_size": 1024,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "layer_types": ["mamba"] * 5 + (["attention"] + ["mamba"] * 9) * 3 + ["attention"] + ["mamba"] * 4,
    },
    "bamba-9b": {
        "model_type": "bamba",
        "attn_layer_indices": [9, 18, 27],
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "mamba_chunk_size": 256,
        "mamba_d_conv": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 128,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
    },
}
"""As published beside the checkpoints, what says nothing of the shape left out."""


def read(name: str, **changes: object) -> ConfigModel:
    """Return the model of a configuration, some of it changed."""
    return parse_model_config(json.dumps({**CONFIGS[name], **changes}), origin="config.json", seq=4096)


@pytest.mark.parametrize("name", [name for name in CONFIGS if public_model(name)])
def test_a_published_configuration_is_the_model_of_the_catalogue(name: str):
    reading, public = read(name), public_model(name)
    assert public is not None
    assert total_parameters(reading.shape) == total_parameters(public)
    for field in ("mixer", "mixer_layers", "mlp_layers", "attention_layers", "mixer_groups", "attention_gate"):
        assert getattr(reading.shape, field) == getattr(public, field), field
    assert not reading.doubts


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # of the checkpoints, from memory: Falcon-H1-0.5B 521 million; Qwen3.5's language model of 0.75 billion
        ("falcon-h1-0.5b", 521_411_104),
        ("qwen3.5-0.8b", 752_393_024),
    ],
)
def test_parameters_of_models_that_the_catalogue_lacks(name: str, parameters: int):
    assert total_parameters(read(name).shape) == parameters


def test_a_list_of_blocks_says_the_same_as_a_pattern():
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    pattern = CONFIGS["nemotron-3-nano-30b-a3b"]["hybrid_override_pattern"]
    listed = read(
        "nemotron-3-nano-30b-a3b", hybrid_override_pattern=None, layers_block_type=[words[letter] for letter in pattern]
    )
    assert listed.shape == read("nemotron-3-nano-30b-a3b").shape


def test_a_pattern_without_experts_has_none():
    shape = read("nemotron-3-nano-30b-a3b", hybrid_override_pattern="M-M-M*-", num_hidden_layers=7).shape
    assert (shape.layers, shape.mixer_layers, shape.mlp_layers, shape.attention_layers) == (7, 3, 3, 1)
    assert shape.experts == 0


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "what"}),
        ("bamba-9b", {"mamba_n_heads": "many"}),
        ("qwen3-next-80b-a3b", {"linear_num_value_heads": -1}),
        ("kimi-linear-48b-a3b", {"linear_attn_config": {"kda_layers": [1, 2]}}),
        ("nemotron-3-nano-30b-a3b", {"moe_latent_size": 1024}),
    ],
)
def test_what_cannot_be_read_of_a_mixer_is_a_doubt(name: str, changes: dict[str, object]):
    assert read(name, **changes).doubts


def test_a_family_whose_mixer_is_not_modelled_is_read_with_a_doubt():
    reading = read("bamba-9b", model_type="zamba2")
    assert reading.shape.mixer is Mixer.NONE
    assert any("zamba2" in doubt for doubt in reading.doubts)


def test_the_indexer_of_sparse_attention_is_read():
    v32 = {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    shape = read("kimi-linear-48b-a3b", linear_attn_config=None, **v32).shape
    assert (shape.index_heads, shape.index_head_dim, shape.index_top_k) == (64, 128, 2048)


def test_chunks_of_llama_4_are_read():
    text = {**CONFIGS["bamba-9b"], "model_type": "llama4_text", "attention_chunk_size": 8192, "num_hidden_layers": 48}
    text = {key: value for key, value in text.items() if not key.startswith(("mamba", "attn_layer"))}
    shape = parse_model_config(json.dumps(text), origin="config.json").shape
    assert (shape.attention_window, shape.windowed_layers, shape.chunked_windows) == (8192, 36, True)
    listed = {**text, "no_rope_layers": [1, 0] * 24}
    assert parse_model_config(json.dumps(listed), origin="config.json").shape.windowed_layers == 24
