"""Which complete model does the text of a ``config.json`` describe, and what of it had to be assumed?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsk.errors import InputError
from opsk.workload.defaults import Assumption
from opsk.workload.huggingface import families
from opsk.workload.huggingface.details import count, read_details
from opsk.workload.huggingface.reading import ConfigShape
from opsk.workload.model import ModelShape

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
