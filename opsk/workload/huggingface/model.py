"""Builds a complete model from the text of a ``config.json``, and lists what was assumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsk.errors import InputError
from opsk.workload.defaults import Assumption
from opsk.workload.huggingface import families
from opsk.workload.huggingface.config_shape import MAX_COUNT, ConfigShape, by_family
from opsk.workload.huggingface.hybrids import read_hybrid
from opsk.workload.model import ModelShape


def read_details(config: ConfigShape) -> None:
    """Add the details to ``config``, whose sizes must have been read."""
    _read_latent_attention(config)
    if config.fields.get("experts"):
        _read_dense_layers(config)
        _read_shared_experts(config)
    _read_biases(config)
    _read_norms(config)
    _read_positions(config)
    _read_window(config)
    if config.family == "gpt_oss":
        config.state("attention_sinks", True, config.or_family(""))
    read_hybrid(config)


def read_count(config: ConfigShape, key: str, minimum: int = 0) -> int | None:
    """Return the count of a key, ``None`` where it is not a valid count."""
    value = config.values.get(key)
    return value if type(value) is int and minimum <= value < MAX_COUNT else None


def read_flag(config: ConfigShape, *keys: str) -> tuple[bool | None, str]:
    """Return the first boolean among several keys, and its key."""
    for key in keys:
        value = config.values.get(key)
        if isinstance(value, bool):
            return value, key
    return None, ""


def _read_latent_attention(config: ConfigShape) -> None:
    """Read multi-head latent attention; a query head is as wide as its plain and its rotary part together."""
    rank, plain = read_count(config, "kv_lora_rank", 1), read_count(config, "qk_nope_head_dim", 1)
    rotary, value = read_count(config, "qk_rope_head_dim", 1), read_count(config, "v_head_dim", 1)
    if rank is None:
        return
    if plain is None or rotary is None or value is None:
        what = "kv_lora_rank without qk_nope_head_dim, qk_rope_head_dim and v_head_dim: counted as ordinary attention"
        config.doubt(what, (*config.path, "kv_lora_rank"), "expect the real need to be lower")
        return
    for name, number, key in (
        ("kv_lora_rank", rank, "kv_lora_rank"),
        ("q_lora_rank", read_count(config, "q_lora_rank") or 0, "q_lora_rank"),
        ("head_dim", plain + rotary, "qk_nope_head_dim"),
        ("qk_rope_dim", rotary, "qk_rope_head_dim"),
        ("v_head_dim", value, "v_head_dim"),
    ):
        config.state(name, number, config.or_family(key))


def _read_dense_layers(config: ConfigShape) -> None:
    """Read which layers of a mixture of experts have the dense MLP, and whether they come first."""
    layers = config.fields.get("layers") or 0
    for key in ("first_k_dense_replace", "moe_layer_start_index"):
        first = read_count(config, key)
        if first is not None:
            config.state("dense_layers", min(first, layers or first), (*config.path, key))
            return
    only = config.values.get("mlp_only_layers")
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period"):
        step = read_count(config, key, 1)
        if step is not None and step > 1 and layers:
            config.state("dense_layers", layers - layers // step, (*config.path, key))
            config.state("dense_interleaved", True, (*config.path, key))
            return
    if isinstance(only, list) and only:
        config.state("dense_layers", min(len(only), layers), (*config.path, "mlp_only_layers"))


def _read_shared_experts(config: ConfigShape) -> None:
    """Read the width of shared experts, their gate, the router's bias, and multi-token prediction."""
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        width = read_count(config, key, 1)
        if width is not None:
            config.state("shared_ffn", width, (*config.path, key))
    if config.family in families.SHARED_GATE:
        config.state("shared_gate", True, config.or_family(""))
    if config.family in families.ROUTER_BIAS:
        config.state("router_bias", True, config.or_family(""))
    config.take_first("mtp_layers", ("num_nextn_predict_layers",), config.values, config.path, minimum=0)


def _read_biases(config: ConfigShape) -> None:
    """Read the biases; a key takes precedence over the family."""
    family = config.family
    no_bias, key = read_flag(config, "no_bias")
    if family == "mpt":
        for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias"):
            config.state(name, no_bias is False, config.or_family(key))
        return
    everywhere, general = read_flag(config, "use_bias", "bias", "enable_bias")
    stated: dict[str, tuple[bool | None, str]] = {
        "qkv_bias": read_flag(config, "qkv_bias", "use_qkv_bias", "attention_bias", "add_qkv_bias"),
        "output_bias": read_flag(config, "attention_out_bias", "attention_bias"),
        "mlp_bias": read_flag(config, "mlp_bias"),
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
    head, key = read_flag(config, "lm_head_bias")
    if head or family in families.HEAD_BIAS:
        config.state("head_bias", True, config.or_family(key))


def _read_norms(config: ConfigShape) -> None:
    """Read how many norms a layer has, whether they have a bias, and whether queries and keys are normalised."""
    family = config.family
    if family in families.NORM_WITH_BIAS:
        config.state("norm_bias", True, config.or_family(""))
    norms = 1 if family in families.ONE_NORM else 4 if family in families.FOUR_NORMS else 2
    if family == "falcon" and config.values.get("parallel_attn", True) is True:
        stated = read_count(config, "num_ln_in_parallel_attn", 1)
        norms = stated or (2 if config.values.get("new_decoder_architecture") is True else 1)
    if family in families.NO_NORM_PARAMETERS:
        norms = 0
    if norms != 2:
        config.state("norms_per_layer", norms, config.or_family(""))
    if family in families.EMBEDDING_NORM:
        config.state("embedding_norm", True, config.or_family(""))
    requested, key = read_flag(config, "use_qk_norm", "qk_layernorm", "use_qk_layernorm")
    whole = family in families.NORMS_QK_WHOLE or family == "cohere"
    if requested or (requested is None and family in families.NORMS_QK_BY_HEAD | families.NORMS_QK_WHOLE):
        config.state("qk_norm", True, config.or_family(key))
        if whole:
            config.state("qk_norm_whole", True, config.or_family(key))


def _read_positions(config: ConfigShape) -> None:
    """Read the rows of a table of learned positions; OPT's has two more than it can use."""
    if config.fields.get("learned_positions") is not True:
        return
    for key in ("n_positions", "max_position_embeddings", "n_ctx"):
        rows = read_count(config, key, 1)
        if rows is not None:
            config.state("position_rows", rows + 2 * (config.family == "opt"), (*config.path, key))
            break
    inner = read_count(config, "word_embed_proj_dim", 1)
    if inner is not None and inner != config.fields.get("hidden"):
        what = f"the embedding is {inner} wide, not {config.fields.get('hidden')}: counted as wide as the model"
        config.doubt(what, (*config.path, "word_embed_proj_dim"), "expect slightly fewer parameters")


def _read_window(config: ConfigShape) -> None:
    """Read a sliding window and how many layers have it."""
    window, layers = read_count(config, "sliding_window", 1), config.fields.get("layers") or 0
    if window is None or not layers or config.values.get("use_sliding_window") is False:
        return
    number, key = _count_windowed_layers(config, layers)
    if number:
        config.state("attention_window", window, (*config.path, "sliding_window"))
        config.state("windowed_layers", number, config.or_family(key))


def _count_windowed_layers(config: ConfigShape, layers: int) -> tuple[int, str]:
    """Return how many layers have the window, and the key that states it."""
    kinds: Any = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return kinds.count("sliding_attention"), "layer_types"
    pattern = read_count(config, "sliding_window_pattern", 1)
    if pattern is not None:
        return layers - layers // pattern, "sliding_window_pattern"
    if config.family in families.SLIDING:
        of, windowed = families.SLIDING[config.family]
        return layers // of * windowed + min(layers % of, windowed), ""
    if config.values.get("use_sliding_window") is True:
        whole = read_count(config, "max_window_layers") or 0
        return max(layers - whole, 0), "max_window_layers"
    return (layers, "sliding_window") if config.family in families.ALWAYS_SLIDING else (0, "")


MAX_CHARACTERS = 4 << 20
USUAL_SEQ = 4096
"""Tokens of a training sequence where they are not stated and the model accepts as many."""
_HINT = "give the config.json of a transformer"
_MAX_SEQ_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
"""Keys of the longest sequence that a model accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigModel:
    """A complete model, its assumptions, and what of the file is modelled only approximately."""

    shape: ModelShape
    assumed: tuple[Assumption, ...] = ()
    doubts: tuple[str, ...] = ()


def read_shape(root: Mapping[str, Any]) -> ConfigShape:
    """Return the shape that a parsed ``config.json`` states; never raises.

    Of an encoder-decoder, ``layers`` are the decoder's.
    """
    config = ConfigShape(root)
    if config.is_decoder or config.family in families.ENCODER_DECODERS:
        config.read_sizes()
        read_details(config)
        if config.family in families.ENCODER_DECODERS:
            _read_t5(config)
    else:
        config.refuse()
    return config


def _read_t5(config: ConfigShape) -> None:
    """Read the keys that are specific to T5 (configuration_t5.py)."""
    config.forget("ffn")
    config.take_first("ffn", ("d_ff",), config.values, ())
    config.forget("head_dim")
    config.take_first("head_dim", ("d_kv",), config.values, ())
    encoder = config.fields.get("layers")
    config.forget("layers")
    config.take_first("layers", ("num_decoder_layers", "num_layers"), config.values, ())
    config.state_if("encoder_layers", encoder, ("num_layers",))
    config.state_if("kv_heads", config.fields.get("heads"), ("num_heads",))
    buckets = read_count(config, "relative_attention_num_buckets", 1) or 32
    config.state("relative_positions", buckets, config.or_family("relative_attention_num_buckets"))
    activation = config.values.get("feed_forward_proj", "relu")
    gated = isinstance(activation, str) and activation.startswith("gated")
    config.state("gated_mlp", gated, config.or_family("feed_forward_proj"))
    for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias", "learned_positions", "flash_attention"):
        config.state(name, False, config.or_family(""))


def parse_model_config(
    text: str, *, origin: str, seq: int | None = None, encoder_seq: int | None = None
) -> ConfigModel:
    """Return the complete model that the text of a ``config.json`` describes.

    Parameters
    ----------
    text
        The whole file.
    origin
        Its name, for messages.
    seq, encoder_seq
        Tokens of a training sequence, which the file does not state; ``None`` assumes what the model accepts, at most
        4,096.

    Raises
    ------
    InputError
        Lists everything that prevents a model: no JSON, wrong values, missing sizes, impossible shapes.
    """
    config = read_shape(_parse(text, origin))
    wrong = [fault.what for fault in config.faults if not fault.is_doubt]
    doubts = [f"{fault.what}: {fault.hint}" for fault in config.faults if fault.is_doubt]
    if not config.is_decoder and config.family not in families.ENCODER_DECODERS:
        raise InputError(f"{origin}: {'; '.join(doubts)}", hint=_HINT)
    known = families.GATED | families.PLAIN | families.ENCODER_DECODERS
    if config.family not in known:
        doubts.append(
            f"model_type {config.family or 'is missing'!r} is not known: read by the keys that most files use"
        )
    assumed = _complete(config, seq, encoder_seq)
    wrong += [
        f"{name} is missing" for name in ("layers", "hidden", "heads", "ffn", "vocab") if name not in config.fields
    ]
    if "head_dim" not in config.fields and not wrong:
        wrong.append(f"hidden {config.fields['hidden']} is not a multiple of heads {config.fields['heads']}")
    if wrong:
        raise InputError(f"{origin}: {'; '.join(wrong)}", hint=_HINT)
    try:
        shape = ModelShape(**config.fields)
    except InputError as error:
        raise InputError(f"{origin}: {error.message}", hint=_HINT) from error
    return ConfigModel(shape=shape, assumed=tuple(assumed), doubts=tuple(doubts))


def _parse(text: str, origin: str) -> Mapping[str, Any]:
    """Parse the JSON object of a text."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{origin}: larger than {MAX_CHARACTERS} characters", hint=_HINT)
    try:
        root = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise InputError(f"{origin}: no JSON: {error.msg} (line {error.lineno})", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: no JSON that can be read: too deep, or a number too long", hint=_HINT) from error
    if not isinstance(root, dict):
        raise InputError(f"{origin}: holds no JSON object", hint=_HINT)
    return root


def _complete(config: ConfigShape, seq: int | None, encoder_seq: int | None) -> list[Assumption]:
    """Fill in what the file leaves open, and return the assumptions."""
    values, assumed = config.fields, []

    def assume(name: str, value: object, why: str) -> None:
        if name not in values and value is not None:
            values[name] = value
            assumed.append(Assumption(field=f"model.{name}", value=value, why=why))

    hidden, heads = values.get("hidden"), values.get("heads")
    if values.get("experts"):
        values.setdefault("ffn", values.get("expert_ffn"))
    assume("kv_heads", heads, "no groups are stated: every head has its own key and value")
    if "head_dim" not in values and config.family in families.HEAD_DIM:
        values["head_dim"] = families.HEAD_DIM[config.family]
    if hidden and heads and hidden % heads == 0:
        values.setdefault("head_dim", hidden // heads)
    assume("gated_mlp", True, "not stated; most models of today have a gated MLP")
    assume("tied_embeddings", False, "not stated; a head of its own needs more memory")
    if seq is not None:
        values["seq"] = seq
    max_seq = next((size for key in _MAX_SEQ_KEYS if (size := read_count(config, key, 1))), USUAL_SEQ)
    assume("seq", min(max_seq, USUAL_SEQ), "the file states the longest sequence only, not the trained one")
    if values.get("encoder_layers"):
        values |= {"encoder_seq": encoder_seq} if encoder_seq is not None else {}
        assume("encoder_seq", values["seq"], "the encoder's sequence is as long as the decoder's")
    if values.get("experts"):
        assume("top_k", min(2, values["experts"]), "two experts a token")
    return assumed
