"""Converts a model shape to Megatron-LM flags, and lists what the flags cannot express.

Source: ``megatron/training/arguments.py`` of core_v0.15.0, functions ``_add_network_size_args``,
``_add_regularization_args``, ``_add_moe_args``, ``_add_mla_args`` and ``_add_transformer_engine_args``.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.frameworks.layers import dense_layers, pattern, windowed_layers
from opsk.frameworks.options import Option, flag
from opsk.workload.model import ModelShape

VOCAB_DIVISOR = 128
"""Megatron's default of ``--make-vocab-size-divisible-by``."""


def model_flags(model: ModelShape, *, tp: int) -> Iterator[Option]:
    """Yield the flags of a model's shape.

    Parameters
    ----------
    tp
        Ranks over which the embedding is split: its rows are padded to a multiple of them.
    """
    yield flag("--num-layers", model.layers)
    yield flag("--hidden-size", model.hidden)
    yield flag("--ffn-hidden-size", model.ffn)
    yield flag("--num-attention-heads", model.heads)
    yield from _attention(model)
    yield flag("--seq-length", model.seq)
    yield flag("--max-position-embeddings", max(model.seq, model.position_rows))
    yield flag("--vocab-size", model.vocab, "for the tokenizers that do not know it; others bring their own")
    if (divisor := vocab_divisor(model.vocab, tp)) != VOCAB_DIVISOR:
        yield flag("--make-vocab-size-divisible-by", divisor, f"{model.vocab} rows, not padded further")
    yield flag("--position-embedding-type", "learned_absolute" if model.learned_positions else "rope")
    yield flag("--normalization", "LayerNorm" if model.has("norm_bias") else "RMSNorm")
    if model.gated_mlp:
        yield flag("--swiglu")
    if not model.tied_embeddings:
        yield flag("--untie-embeddings-and-output-weights")
    yield from _biases(model)
    if not model.has("dropout"):
        yield flag("--attention-dropout", 0)
        yield flag("--hidden-dropout", 0)
    if model.mtp_layers:
        yield flag("--mtp-num-layers", model.mtp_layers)
    if model.experts:
        yield from _experts(model)


def missing_of_model(model: ModelShape) -> Iterator[str]:
    """Yield the features of the model that the flags of ``pretrain_gpt.py`` cannot express."""
    biases = model.has("qkv_bias"), model.has("output_bias"), model.has("mlp_bias")
    if biases not in ((True,) * 3, (False,) * 3, (True, False, False)):
        yield "biases of linear layers: all, none, or those into attention alone"
    details = {
        "an encoder": model.encoder_layers,
        "a table of relative positions of its own size": model.relative_positions,
        "a bias of the output head": model.head_bias,
        "norms as wide as all heads for queries and keys": model.qk_norm and model.qk_norm_whole,
        "a norm of the embedding": model.embedding_norm,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "a gate of the shared experts (a flag of releases after 0.15)": model.shared_gate,
        f"layers of {model.mixer} (pretrain_mamba.py has Mamba-2)": model.mixer_layers,
        "layers that are an MLP alone (pretrain_mamba.py)": model.mlp_layers,
        "a gate of attention": model.attention_gate,
        "windows that are chunks": model.windowed_layers and model.chunked_windows,
        "sparse attention": model.index_top_k,
    }
    yield from (name for name, there in details.items() if there)


def vocab_divisor(vocab: int, tp: int) -> int:
    """Return the largest divisor up to Megatron's own by which the rows need no padding, its own if there is none."""
    return next(
        (
            divisor
            for divisor in (VOCAB_DIVISOR >> shift for shift in range(VOCAB_DIVISOR.bit_length()))
            if vocab % (divisor * tp) == 0
        ),
        VOCAB_DIVISOR,
    )


def _attention(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of attention: heads, latent attention, windows and sinks."""
    if model.kv_lora_rank:
        yield flag("--multi-latent-attention")
        if model.q_lora_rank:
            yield flag("--q-lora-rank", model.q_lora_rank)
        yield flag("--kv-lora-rank", model.kv_lora_rank)
        yield flag("--qk-head-dim", model.head_dim - model.qk_rope_dim, "without its rotary part")
        yield flag("--qk-pos-emb-head-dim", model.qk_rope_dim)
        yield flag("--v-head-dim", model.v_head_dim)
    else:
        if model.kv_heads < model.heads:
            yield flag("--group-query-attention")
            yield flag("--num-query-groups", model.kv_heads)
        yield flag("--kv-channels", model.head_dim, "width of a head")
    if model.qk_norm:
        yield flag("--qk-layernorm")
    if model.attention_sinks:
        yield flag("--softmax-type", "learnable", "a learned sink a head")
    if model.attention_window and model.windowed_layers:
        yield flag("--window-size", f"{model.attention_window - 1},0", "tokens before, and after, its own")
        if model.windowed_layers < model.layers:
            yield flag("--window-attn-skip-freq", pattern(windowed_layers(model)), "1 has the window")
    if not model.flash_attention:
        yield flag("--attention-backend", "unfused", "stores the scores")


def _biases(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of biases: one flag sets all but those of the norms."""
    if model.has("mlp_bias"):
        return
    yield flag("--disable-bias-linear")
    if model.has("qkv_bias"):
        yield flag("--add-qkv-bias")


def _experts(model: ModelShape) -> Iterator[Option]:
    """Yield the flags of a mixture of experts."""
    yield flag("--num-experts", model.experts)
    yield flag("--moe-router-topk", model.top_k)
    yield flag("--moe-ffn-hidden-size", model.expert_ffn)
    if model.dense_layers:
        marks = tuple(not dense for dense in dense_layers(model))
        yield flag("--moe-layer-freq", pattern(marks), "1 has experts, 0 the dense MLP")
    if shared := model.shared_ffn or model.shared_experts * model.expert_ffn:
        yield flag("--moe-shared-expert-intermediate-size", shared)
    if model.router_bias:
        yield flag("--moe-router-score-function", "sigmoid", "a bias of the router needs it")
        yield flag("--moe-router-enable-expert-bias")
    elif model.top_k == 1:
        yield flag("--moe-router-pre-softmax", None, "one expert a token needs it")
    if model.capacity_factor:
        yield flag("--moe-expert-capacity-factor", f"{model.capacity_factor:g}")
        yield flag("--moe-pad-expert-input-to-capacity")
        yield flag("--moe-router-load-balancing-type", "aux_loss")
