"""Generates the HuggingFace ``config.json`` of a model, its layer class, and the list of what it cannot express.

The family is selected by the features of the model; what it cannot express is found by reading the text back
(`opsk.workload.huggingface`). Source: ``src/transformers/models/<family>/configuration_*.py`` and ``modeling_*.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields

from opsk.errors import InputError
from opsk.frameworks.layers import dense_layers
from opsk.frameworks.options import one_line
from opsk.workload.huggingface.model import parse_model_config
from opsk.workload.model import ModelShape

_BY_STYLE = ("qkv_bias", "output_bias", "mlp_bias", "norm_bias")
_NOT_COMPARED = frozenset({"name", "seq", "position_rows", "dropout", "expert_imbalance", "encoder_seq", *_BY_STYLE})
_COMPARED_BY_WIDTH = frozenset({"shared_experts", "shared_ffn"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """A configuration, the ``layer`` class that FSDP wraps, and the ``missing`` features of the model."""

    content: Mapping[str, object]
    layer: str
    missing: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file."""
        return json.dumps(self.content, indent=2) + "\n"


def hf_config(model: ModelShape) -> HfConfig:
    """Return the configuration that comes nearest to a model."""
    family = _family(model)
    content = {**_ARCHITECTURES[family], **_sizes(model), **_own(family, model)}
    if family == "gpt2":
        content = {**_ARCHITECTURES[family], **_gpt2(model)}
    return HfConfig(content=content, layer=_LAYERS[family], missing=_missing(model, content))


def _architecture(family: str, head: str) -> dict[str, object]:
    """Return the keys that name a family."""
    return {"model_type": family, "architectures": [head]}


_ARCHITECTURES = {
    family: _architecture(family, head)
    for family, head in (
        ("deepseek_v2", "DeepseekV2ForCausalLM"),
        ("deepseek_v3", "DeepseekV3ForCausalLM"),
        ("glm4_moe", "Glm4MoeForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("llama", "LlamaForCausalLM"),
        ("mixtral", "MixtralForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("qwen2_moe", "Qwen2MoeForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"),
        ("qwen3_moe", "Qwen3MoeForCausalLM"),
        ("starcoder2", "Starcoder2ForCausalLM"),
    )
}
_LAYERS = {
    "deepseek_v2": "DeepseekV2DecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
    "glm4_moe": "Glm4MoeDecoderLayer",
    "gpt2": "GPT2Block",
    "llama": "LlamaDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
}


def _family(model: ModelShape) -> str:
    """Return the family with the features of the model."""
    if model.kv_lora_rank:
        return "deepseek_v3" if model.router_bias or not model.experts else "deepseek_v2"
    if model.experts:
        if model.shared_gate:
            return "qwen2_moe"
        if model.router_bias or model.shared_experts or model.shared_ffn:
            return "glm4_moe"
        return "qwen3_moe" if model.qk_norm or model.dense_layers else "mixtral"
    if not model.gated_mlp:
        return "gpt2" if model.learned_positions else "starcoder2"
    if model.qk_norm:
        return "qwen3"
    return "qwen2" if model.has("qkv_bias") and not model.has("output_bias") else "llama"


def _sizes(model: ModelShape) -> dict[str, object]:
    """Return the keys that most families share."""
    return {
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocab,
        "max_position_embeddings": max(model.seq, model.position_rows),
        "tie_word_embeddings": model.tied_embeddings,
        "hidden_act": "silu" if model.gated_mlp else "gelu_pytorch_tanh",
        "use_cache": False,
    }


def _own(family: str, model: ModelShape) -> dict[str, object]:
    """Return the keys of one family."""
    dense = [index for index, is_dense in enumerate(dense_layers(model)) if is_dense]
    experts: dict[str, object] = {"num_experts_per_tok": model.top_k}
    shared = model.shared_ffn or model.shared_experts * model.expert_ffn
    if family in ("deepseek_v2", "deepseek_v3"):
        return {
            **({"n_routed_experts": model.experts, **experts} if model.experts else {}),
            "moe_intermediate_size": model.expert_ffn or model.ffn,
            "n_shared_experts": shared // model.expert_ffn if shared and model.expert_ffn else 0,
            "first_k_dense_replace": model.dense_layers if model.experts else model.layers,
            "n_group": 1,
            "topk_group": 1,
            "q_lora_rank": model.q_lora_rank or None,
            "kv_lora_rank": model.kv_lora_rank,
            "qk_nope_head_dim": model.head_dim - model.qk_rope_dim,
            "qk_rope_head_dim": model.qk_rope_dim,
            "v_head_dim": model.v_head_dim,
        }
    head: dict[str, object] = {"head_dim": model.head_dim, "attention_bias": model.has("qkv_bias")}
    by_family: dict[str, dict[str, object]] = {
        "glm4_moe": {
            **head,
            **experts,
            "n_routed_experts": model.experts,
            "moe_intermediate_size": model.expert_ffn,
            "n_shared_experts": shared // model.expert_ffn if shared else 0,
            "first_k_dense_replace": model.dense_layers,
            "use_qk_norm": model.qk_norm,
            "n_group": 1,
            "topk_group": 1,
        },
        "llama": {**head, "mlp_bias": model.has("mlp_bias")},
        "mixtral": {
            **experts,
            "head_dim": model.head_dim,
            "num_local_experts": model.experts,
            "intermediate_size": model.expert_ffn,
        },
        "qwen2": {"use_sliding_window": False},
        "qwen2_moe": {
            **experts,
            "num_experts": model.experts,
            "moe_intermediate_size": model.expert_ffn,
            "shared_expert_intermediate_size": shared,
            "mlp_only_layers": dense,
            "decoder_sparse_step": 1,
        },
        "qwen3": head,
        "qwen3_moe": {
            **head,
            **experts,
            "num_experts": model.experts,
            "moe_intermediate_size": model.expert_ffn,
            "mlp_only_layers": dense,
            "decoder_sparse_step": 1,
        },
        "starcoder2": {"use_bias": model.has("mlp_bias"), "sliding_window": None, "norm_epsilon": 1e-5},
    }
    return by_family.get(family, {})


def _gpt2(model: ModelShape) -> dict[str, object]:
    """Return the keys of GPT-2, which has its own names for all sizes."""
    return {
        "n_embd": model.hidden,
        "n_inner": model.ffn,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_positions": model.position_rows or model.seq,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied_embeddings,
        "use_cache": False,
    }


def _missing(model: ModelShape, content: Mapping[str, object]) -> tuple[str, ...]:
    """Return the fields whose value differs when read back."""
    try:
        back = parse_model_config(json.dumps(content), origin="config.json", seq=model.seq).shape
    except InputError as error:
        return (one_line(f"this model: {error.message}"),)
    own_width = model.shared_ffn or model.shared_experts * model.expert_ffn
    back_width = back.shared_ffn or back.shared_experts * back.expert_ffn
    wrong = [
        f"{item.name} {getattr(model, item.name)} (it would be {getattr(back, item.name)})"
        for item in fields(model)
        if item.name not in _NOT_COMPARED | _COMPARED_BY_WIDTH
        and getattr(back, item.name) != getattr(model, item.name)
        and not (item.name == "ffn" and not any(dense_layers(model)))
    ]
    wrong += [f"{name} {model.has(name)}" for name in _BY_STYLE if back.has(name) != model.has(name)]
    if own_width != back_width:
        wrong.append(f"shared experts of width {own_width} (it would be {back_width})")
    return tuple(wrong)
