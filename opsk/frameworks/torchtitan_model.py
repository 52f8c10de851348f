"""Generates the module that registers a model shape with torchtitan, and lists what torchtitan cannot express of it.

torchtitan's configuration names a model and one of its flavours, without sizes: the module registers a flavour of the
required shape, and ``experimental.custom_import`` loads it. Source: ``torchtitan/models/{llama3,qwen3,
deepseek_v3}/model/args.py`` and ``model.py``, ``models/moe/moe.py`` and ``protocols/train_spec.py`` of v0.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.workload.model import ModelShape

NAME = "opsk"
"""Name and flavour under which the shape is registered."""
MODULE = "opsk_model"
PIPELINED = ("llama3", "deepseek_v3")
"""Models whose train spec has a ``pipelining_fn``."""
_ARGS = {
    "llama3": ("torchtitan.models.llama3.model.args", "TransformerModelArgs"),
    "qwen3": ("torchtitan.models.qwen3.model.args", "Qwen3ModelArgs"),
    "deepseek_v3": ("torchtitan.models.deepseek_v3.model.args", "DeepSeekV3ModelArgs"),
}


def select_base(model: ModelShape) -> str:
    """Return the model of torchtitan that comes nearest: latent attention, Llama's layers, else Qwen 3's."""
    if model.kv_lora_rank:
        return "deepseek_v3"
    is_llama = not (model.experts or model.tied_embeddings or model.qk_norm)
    return "llama3" if is_llama and model.heads * model.head_dim == model.hidden else "qwen3"


def render_module(model: ModelShape) -> str:
    """Return the text of the module that registers the shape."""
    base = select_base(model)
    package, kind = _ARGS[base]
    arguments = {"llama3": _llama3, "qwen3": _qwen3, "deepseek_v3": _deepseek_v3}[base](model)
    imports = [
        "from dataclasses import replace",
        "",
        f"from torchtitan.models.{base} import get_train_spec",
        f"from {package} import {kind}",
        *(["from torchtitan.models.moe import MoEArgs"] if model.experts else []),
        "from torchtitan.protocols.train_spec import register_train_spec",
    ]
    lines = [
        f'"""The shape of the model, registered as flavour {NAME} of {base}."""',
        "",
        *imports,
        "",
        f"SHAPE = {kind}(",
        *(f"    {name}={value}," for name, value in arguments.items()),
        ")",
        f'register_train_spec("{NAME}", replace(get_train_spec(), model_args={{"{NAME}": SHAPE}}))',
    ]
    return "\n".join(lines) + "\n"


def missing_of_model(model: ModelShape) -> Iterator[str]:
    """Yield the features of the model that torchtitan's models do not have."""
    base = select_base(model)
    shared = model.shared_ffn or model.shared_experts * model.expert_ffn
    details = {
        "an MLP of two matrices": not model.gated_mlp,
        "an encoder": model.encoder_layers,
        "a trained table of positions": model.learned_positions,
        "relative positions": model.relative_positions,
        "biases": any(model.has(name) for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias")),
        "a bias of the output head": model.head_bias,
        "dropout": model.has("dropout"),
        "norms as wide as all heads for queries and keys": model.qk_norm and model.qk_norm_whole,
        "norms of queries and keys beside latent attention": model.qk_norm and base == "deepseek_v3",
        "an output head that reuses the embedding": model.tied_embeddings and base == "deepseek_v3",
        "a norm of the embedding": model.embedding_norm,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "attention sinks": model.attention_sinks,
        "windows of attention": model.attention_window and model.windowed_layers,
        f"layers of {model.mixer}": model.mixer_layers,
        "layers that are an MLP alone": model.mlp_layers,
        "a gate of attention": model.attention_gate,
        "sparse attention": model.index_top_k,
        "attention that stores its scores": not model.flash_attention,
        "multi-token prediction": model.mtp_layers,
    }
    experts = {
        "layers without experts in this model": model.dense_layers and base == "qwen3",
        "layers without experts between the others": model.dense_layers and model.dense_interleaved,
        "a gate of the shared experts": model.shared_gate,
        "shared experts whose width is no multiple of an expert's": shared % model.expert_ffn if shared else False,
        "a limit on the tokens of an expert": model.capacity_factor,
    }
    yield from (name for name, there in details.items() if there)
    if model.experts:
        yield from (name for name, there in experts.items() if there)


def _llama3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``TransformerModelArgs``.

    It has no inner width but computes one, a share of 8/3 of the width rounded up to ``multiple_of``: with the required
    width as the multiple, and half of it before rounding, the result is the required width.
    """
    before = max(int(8 * model.hidden / 3), 1)
    half = -(-model.ffn // 2) + 0.5
    return _plain(
        dim=model.hidden,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.kv_heads,
        vocab_size=model.vocab,
        multiple_of=model.ffn,
        ffn_dim_multiplier=round(half / before, 9),
        max_seq_len=model.seq,
    )


def _qwen3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``Qwen3ModelArgs``."""
    arguments = _plain(
        dim=model.hidden,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.kv_heads,
        vocab_size=model.vocab,
        head_dim=model.head_dim,
        hidden_dim=model.ffn,
        qk_norm=model.qk_norm,
        max_seq_len=model.seq,
        enable_weight_tying=model.tied_embeddings,
    )
    if model.experts:
        arguments |= _plain(moe_enabled=True, moe_inter_dim=model.expert_ffn)
        arguments["moe_args"] = _moe(model, "softmax")
    return arguments


def _deepseek_v3(model: ModelShape) -> dict[str, str]:
    """Return the arguments of ``DeepSeekV3ModelArgs``; without experts all its layers are dense ones."""
    arguments = _plain(
        dim=model.hidden,
        inter_dim=model.ffn,
        moe_inter_dim=model.expert_ffn or model.ffn,
        n_layers=model.layers,
        n_dense_layers=model.dense_layers if model.experts else model.layers,
        n_heads=model.heads,
        vocab_size=model.vocab,
        q_lora_rank=model.q_lora_rank,
        kv_lora_rank=model.kv_lora_rank,
        qk_nope_head_dim=model.head_dim - model.qk_rope_dim,
        qk_rope_head_dim=model.qk_rope_dim,
        v_head_dim=model.v_head_dim,
        max_seq_len=model.seq,
    )
    if model.experts:
        arguments["moe_args"] = _moe(model, "sigmoid")
    return arguments


def _moe(model: ModelShape, score: str) -> str:
    """Return the call that makes ``MoEArgs``; the router's bias is what balances without a loss."""
    shared = (model.shared_ffn or model.shared_experts * model.expert_ffn) // model.expert_ffn
    arguments = _plain(
        num_experts=model.experts,
        num_shared_experts=shared,
        top_k=model.top_k,
        score_func=score,
        route_norm=True,
        score_before_experts=False,
        load_balance_coeff=1e-3 if model.router_bias else None,
    )
    return f"MoEArgs({', '.join(f'{name}={value}' for name, value in arguments.items())})"


def _plain(**values: str | float | bool | None) -> dict[str, str]:
    """Return values as Python writes them."""
    return {name: repr(value) for name, value in values.items()}
