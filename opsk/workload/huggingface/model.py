"""Which complete model does the text of a ``config.json`` describe, and what of it had to be assumed?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsk.errors import InputError
from opsk.workload.defaults import Assumption
from opsk.workload.huggingface import families
from opsk.workload.huggingface.hybrids import read_hybrid
from opsk.workload.huggingface.reading import MAX_COUNT, ConfigShape, by_family
from opsk.workload.model import ModelShape


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


MAX_CHARACTERS = 4 << 20
USUAL_SEQ = 4096
"""Tokens of a training sequence where nobody states them and the model can take as many."""
_HINT = "give the config.json of a transformer"
_LONGEST = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
"""Keys of the longest sequence that a model can take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigModel:
    """A complete model, what was assumed of it, and what of the file is counted only roughly."""

    shape: ModelShape
    assumed: tuple[Assumption, ...] = ()
    doubts: tuple[str, ...] = ()


def read_shape(root: Mapping[str, Any]) -> ConfigShape:
    """Return what a parsed ``config.json`` states of the shape; never raises.

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
    """Read what T5 names its own way (configuration_t5.py)."""
    config.forget("ffn")
    config.first_of("ffn", ("d_ff",), config.values, ())
    config.forget("head_dim")
    config.first_of("head_dim", ("d_kv",), config.values, ())
    encoder = config.found.get("layers")
    config.forget("layers")
    config.first_of("layers", ("num_decoder_layers", "num_layers"), config.values, ())
    config.state_if("encoder_layers", encoder, ("num_layers",))
    config.state_if("kv_heads", config.found.get("heads"), ("num_heads",))
    buckets = count(config, "relative_attention_num_buckets", 1) or 32
    config.state("relative_positions", buckets, config.or_family("relative_attention_num_buckets"))
    activation = config.values.get("feed_forward_proj", "relu")
    gated = isinstance(activation, str) and activation.startswith("gated")
    config.state("gated_mlp", gated, config.or_family("feed_forward_proj"))
    for name in ("qkv_bias", "output_bias", "mlp_bias", "norm_bias", "learned_positions", "flash_attention"):
        config.state(name, False, config.or_family(""))


def model_of_config(text: str, *, origin: str, seq: int | None = None, encoder_seq: int | None = None) -> ConfigModel:
    """Return the complete model that the text of a ``config.json`` describes.

    Parameters
    ----------
    text
        The whole file.
    origin
        Its name, for messages.
    seq, encoder_seq
        Tokens of a training sequence, which the file does not state; ``None`` takes what the model can take, at most
        4,096, and says so.

    Raises
    ------
    InputError
        Lists everything for which no model can be had: no JSON, wrong values, missing sizes, impossible shapes.
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
        f"{name} is missing" for name in ("layers", "hidden", "heads", "ffn", "vocab") if name not in config.found
    ]
    if "head_dim" not in config.found and not wrong:
        wrong.append(f"hidden {config.found['hidden']} is not a multiple of heads {config.found['heads']}")
    if wrong:
        raise InputError(f"{origin}: {'; '.join(wrong)}", hint=_HINT)
    try:
        shape = ModelShape(**config.found)
    except InputError as error:
        raise InputError(f"{origin}: {error.message}", hint=_HINT) from error
    return ConfigModel(shape=shape, assumed=tuple(assumed), doubts=tuple(doubts))


def _parse(text: str, origin: str) -> Mapping[str, Any]:
    """Return the JSON object that a text holds."""
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
    """Fill in what the file leaves open, and return what was assumed."""
    found, assumed = config.found, []

    def assume(name: str, value: object, why: str) -> None:
        if name not in found and value is not None:
            found[name] = value
            assumed.append(Assumption(field=f"model.{name}", value=value, why=why))

    hidden, heads = found.get("hidden"), found.get("heads")
    if found.get("experts"):
        found.setdefault("ffn", found.get("expert_ffn"))
    assume("kv_heads", heads, "no groups are stated: every head has its own key and value")
    if "head_dim" not in found and config.family in families.HEAD_DIM:
        found["head_dim"] = families.HEAD_DIM[config.family]
    if hidden and heads and hidden % heads == 0:
        found.setdefault("head_dim", hidden // heads)
    assume("gated_mlp", True, "not stated; most models of today have a gated MLP")
    assume("tied_embeddings", False, "not stated; a head of its own needs more memory")
    if seq is not None:
        found["seq"] = seq
    longest = next((size for key in _LONGEST if (size := count(config, key, 1))), USUAL_SEQ)
    assume("seq", min(longest, USUAL_SEQ), "the file states the longest sequence only, not the trained one")
    if found.get("encoder_layers"):
        found |= {"encoder_seq": encoder_seq} if encoder_seq is not None else {}
        assume("encoder_seq", found["seq"], "the encoder's sequence is as long as the decoder's")
    if found.get("experts"):
        assume("top_k", min(2, found["experts"]), "two experts a token")
    return assumed
