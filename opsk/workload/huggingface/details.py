"""Which details of a model does its ``config.json`` state: latent attention, dense layers, biases, norms, windows?

A detail is stated by its key, or fixed by the family (``opsk.workload.huggingface.families``).
"""

from __future__ import annotations

from typing import Any

from opsk.workload.huggingface import families
from opsk.workload.huggingface.hybrids import read_hybrid
from opsk.workload.huggingface.reading import MAX_COUNT, ConfigShape, by_family


def read_details(config: ConfigShape) -> None:
    """Add the details to what ``config`` has found; its sizes must have been read."""
    _latent_attention(config)
    if config.found.get("experts"):
        _layers_without_experts(config)
        _beside_experts(config)
    _biases(config)
    _norms(config)
    _positions(config)
    _window(config)
    if config.family == "gpt_oss":
        config.state("attention_sinks", True, config.or_family(""))
    read_hybrid(config)


def count(config: ConfigShape, key: str, least: int = 0) -> int | None:
    """Return a key's number, ``None`` where it is none that can be meant."""
    value = config.values.get(key)
    return value if type(value) is int and least <= value < MAX_COUNT else None


def flag(config: ConfigShape, *keys: str) -> tuple[bool | None, str]:
    """Return the first of several yes-or-no keys that is given, and which it is."""
    for key in keys:
        value = config.values.get(key)
        if isinstance(value, bool):
            return value, key
    return None, ""


def _latent_attention(config: ConfigShape) -> None:
    """Read multi-head latent attention; a query head is as wide as its plain and its rotary part together."""
    rank, plain = count(config, "kv_lora_rank", 1), count(config, "qk_nope_head_dim", 1)
    rotary, value = count(config, "qk_rope_head_dim", 1), count(config, "v_head_dim", 1)
    if rank is None:
        return
    if plain is None or rotary is None or value is None:
        what = "kv_lora_rank without qk_nope_head_dim, qk_rope_head_dim and v_head_dim: counted as ordinary attention"
        config.doubt(what, (*config.path, "kv_lora_rank"), "expect the real need to be lower")
        return
    for name, number, key in (
        ("kv_lora_rank", rank, "kv_lora_rank"),
        ("q_lora_rank", count(config, "q_lora_rank") or 0, "q_lora_rank"),
        ("head_dim", plain + rotary, "qk_nope_head_dim"),
        ("qk_rope_dim", rotary, "qk_rope_head_dim"),
        ("v_head_dim", value, "v_head_dim"),
    ):
        config.state(name, number, config.or_family(key))


def _layers_without_experts(config: ConfigShape) -> None:
    """Tell the layers of a mixture of experts that have the dense MLP, and whether they come first."""
    layers = config.found.get("layers") or 0
    for key in ("first_k_dense_replace", "moe_layer_start_index"):
        first = count(config, key)
        if first is not None:
            config.state("dense_layers", min(first, layers or first), (*config.path, key))
            return
    only = config.values.get("mlp_only_layers")
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period"):
        step = count(config, key, 1)
        if step is not None and step > 1 and layers:
            config.state("dense_layers", layers - layers // step, (*config.path, key))
            config.state("dense_interleaved", True, (*config.path, key))
            return
    if isinstance(only, list) and only:
        config.state("dense_layers", min(len(only), layers), (*config.path, "mlp_only_layers"))


def _beside_experts(config: ConfigShape) -> None:
    """Tell shared experts of their own width, their gate, the router's bias, and multi-token prediction."""
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        width = count(config, key, 1)
        if width is not None:
            config.state("shared_ffn", width, (*config.path, key))
    if config.family in families.SHARED_GATE:
        config.state("shared_gate", True, config.or_family(""))
    if config.family in families.ROUTER_BIAS:
        config.state("router_bias", True, config.or_family(""))
    config.first_of("mtp_layers", ("num_nextn_predict_layers",), config.values, config.path, least=0)


def _biases(config: ConfigShape) -> None:
    """Tell the biases; a key wins over the family."""
    family = config.family
    no_bias, key = flag(config, "no_bias")
    if family == "mpt":
        for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias"):
            config.state(name, no_bias is False, config.or_family(key))
        return
    everywhere, general = flag(config, "use_bias", "bias", "enable_bias")
    stated: dict[str, tuple[bool | None, str]] = {
        "qkv_bias": flag(config, "qkv_bias", "use_qkv_bias", "attention_bias", "add_qkv_bias"),
        "output_bias": flag(config, "attention_out_bias", "attention_bias"),
        "mlp_bias": flag(config, "mlp_bias"),
    }
    fixed = {
        "qkv_bias": by_family(family, families.QKV_BIAS, families.NO_QKV_BIAS),
        "output_bias": by_family(family, families.OUTPUT_BIAS, families.NO_OUTPUT_BIAS),
        "mlp_bias": by_family(family, families.MLP_BIAS, frozenset()),
    }
    for name, (value, key) in stated.items():
        if name == "output_bias" and fixed[name] is False:
            config.state(name, False, config.or_family(""))
        elif value is not None:
            config.state(name, value, (*config.path, key))
        elif everywhere is not None and not (name == "mlp_bias" and family in ("internlm", "internlm2")):
            config.state(name, everywhere, (*config.path, general))
        elif fixed[name] is not None:
            config.state(name, fixed[name], config.or_family(""))
        elif family in families.PLAIN:
            config.state(name, False, config.or_family(""))
    head, key = flag(config, "lm_head_bias")
    if head or family in families.HEAD_BIAS:
        config.state("head_bias", True, config.or_family(key))


def _norms(config: ConfigShape) -> None:
    """Tell how many norms a layer has, whether they have a bias, and whether queries and keys are normalised."""
    family = config.family
    if family in families.NORM_WITH_BIAS:
        config.state("norm_bias", True, config.or_family(""))
    norms = 1 if family in families.ONE_NORM else 4 if family in families.FOUR_NORMS else 2
    if family == "falcon" and config.values.get("parallel_attn", True) is True:
        own = count(config, "num_ln_in_parallel_attn", 1)
        norms = own or (2 if config.values.get("new_decoder_architecture") is True else 1)
    if family in families.NO_NORM_PARAMETERS:
        norms = 0
    if norms != 2:
        config.state("norms_per_layer", norms, config.or_family(""))
    if family in families.EMBEDDING_NORM:
        config.state("embedding_norm", True, config.or_family(""))
    asked, key = flag(config, "use_qk_norm", "qk_layernorm", "use_qk_layernorm")
    whole = family in families.NORMS_QK_WHOLE or family == "cohere"
    if asked or (asked is None and family in families.NORMS_QK_BY_HEAD | families.NORMS_QK_WHOLE):
        config.state("qk_norm", True, config.or_family(key))
        if whole:
            config.state("qk_norm_whole", True, config.or_family(key))


def _positions(config: ConfigShape) -> None:
    """Tell the rows of a table of learned positions; OPT's has two more than it can use."""
    if config.found.get("learned_positions") is not True:
        return
    for key in ("n_positions", "max_position_embeddings", "n_ctx"):
        rows = count(config, key, 1)
        if rows is not None:
            config.state("position_rows", rows + 2 * (config.family == "opt"), (*config.path, key))
            break
    inner = count(config, "word_embed_proj_dim", 1)
    if inner is not None and inner != config.found.get("hidden"):
        what = f"the embedding is {inner} wide, not {config.found.get('hidden')}: counted as wide as the model"
        config.doubt(what, (*config.path, "word_embed_proj_dim"), "expect slightly fewer parameters")


def _window(config: ConfigShape) -> None:
    """Tell a sliding window and how many layers have it."""
    window, layers = count(config, "sliding_window", 1), config.found.get("layers") or 0
    if window is None or not layers or config.values.get("use_sliding_window") is False:
        return
    number, key = _windowed_layers(config, layers)
    if number:
        config.state("attention_window", window, (*config.path, "sliding_window"))
        config.state("windowed_layers", number, config.or_family(key))


def _windowed_layers(config: ConfigShape, layers: int) -> tuple[int, str]:
    """Return how many layers have the window, and the key that says so."""
    kinds: Any = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return kinds.count("sliding_attention"), "layer_types"
    pattern = count(config, "sliding_window_pattern", 1)
    if pattern is not None:
        return layers - layers // pattern, "sliding_window_pattern"
    if config.family in families.SLIDING:
        of, windowed = families.SLIDING[config.family]
        return layers // of * windowed + min(layers % of, windowed), ""
    if config.values.get("use_sliding_window") is True:
        whole = count(config, "max_window_layers") or 0
        return max(layers - whole, 0), "max_window_layers"
    return (layers, "sliding_window") if config.family in families.ALWAYS_SLIDING else (0, "")
