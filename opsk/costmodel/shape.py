"""What of a model's shape enters the arithmetic, as numbers that broadcast against the columns of a plan table?

One model gives plain numbers; a list of models gives one entry each, so that plans of different models can
be predicted together (calibration does). Yes-or-no fields are 1.0 or 0.0. The ``has_`` fields tell whether any of the
models has a thing at all, so that work on it can be skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from opsk.costmodel.elementwise import any_of, minimum, where
from opsk.costmodel.table import FloatColumn
from opsk.workload.model import ModelShape

_STYLE = ("qkv_bias", "output_bias", "mlp_bias", "norm_bias", "dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeColumns:
    """The fields of `ModelShape`, each of shape () or (plans,); units and meaning are explained there.

    ``moe_layers`` are the decoder's layers with experts, ``plain_layers`` those with the dense MLP; ``head_details``
    tells that heads have norms or sinks.
    """

    layers: FloatColumn
    hidden: FloatColumn
    ffn: FloatColumn
    heads: FloatColumn
    kv_heads: FloatColumn
    head_dim: FloatColumn
    vocab: FloatColumn
    seq: FloatColumn
    gated_mlp: FloatColumn
    experts: FloatColumn
    top_k: FloatColumn
    shared_experts: FloatColumn
    expert_ffn: FloatColumn
    tied_embeddings: FloatColumn
    learned_positions: FloatColumn
    flash_attention: FloatColumn
    q_lora_rank: FloatColumn
    kv_lora_rank: FloatColumn
    qk_rope_dim: FloatColumn
    v_head_dim: FloatColumn
    dense_layers: FloatColumn
    dense_interleaved: FloatColumn
    shared_ffn: FloatColumn
    shared_gate: FloatColumn
    router_bias: FloatColumn
    capacity_factor: FloatColumn
    expert_imbalance: FloatColumn
    mtp_layers: FloatColumn
    encoder_layers: FloatColumn
    encoder_seq: FloatColumn
    position_rows: FloatColumn
    relative_positions: FloatColumn
    attention_sinks: FloatColumn
    attention_window: FloatColumn
    windowed_layers: FloatColumn
    qkv_bias: FloatColumn
    output_bias: FloatColumn
    mlp_bias: FloatColumn
    norm_bias: FloatColumn
    dropout: FloatColumn
    head_bias: FloatColumn
    qk_norm: FloatColumn
    qk_norm_whole: FloatColumn
    norms_per_layer: FloatColumn
    embedding_norm: FloatColumn
    is_moe: FloatColumn
    is_latent: FloatColumn
    moe_layers: FloatColumn
    plain_layers: FloatColumn
    head_details: FloatColumn
    has_experts: bool
    has_dense_layers: bool
    has_latent: bool
    has_encoder: bool
    has_mtp: bool
    has_windows: bool
    has_relative_positions: bool
    has_head_details: bool


_FLAGS = {
    "has_experts": "is_moe",
    "has_dense_layers": "dense_layers",
    "has_latent": "is_latent",
    "has_encoder": "encoder_layers",
    "has_mtp": "mtp_layers",
    "has_windows": "windowed_layers",
    "has_relative_positions": "relative_positions",
    "has_head_details": "head_details",
}
_NAMES = tuple(item.name for item in fields(ShapeColumns) if item.name not in _FLAGS)
_STATED = tuple(name for name in _NAMES if name in {item.name for item in fields(ModelShape)} - {*_STYLE})


@lru_cache(maxsize=256)
def shape_of(model: ModelShape) -> ShapeColumns:
    """Return the columns of one model, plain numbers."""
    return _columns(_numbers(model))


def shapes_of(models: Sequence[ModelShape]) -> ShapeColumns:
    """Return the columns of models, one entry each."""
    table = np.ascontiguousarray(np.array([_numbers(model) for model in models], dtype=np.float64).T)
    table.flags.writeable = False
    return _columns(table)


def _columns(table: Iterable[Any]) -> ShapeColumns:
    """Return the columns of a table that has one row a name."""
    columns = dict(zip(_NAMES, table, strict=True))
    flags = {flag: any_of(columns[name]) for flag, name in _FLAGS.items()}
    return ShapeColumns(**columns, **flags)  # type: ignore[arg-type]


def attended_tokens(model: ShapeColumns) -> FloatColumn:
    """Return the tokens that a token looks at, as the side of a full square, averaged over layers.

    A causal window of w sees w (s - w/2) of the s^2/2 pairs of a causal square: a square's side of w (2 - w/s).
    """
    if not model.has_windows:
        return model.seq
    window = where(model.attention_window > 0, minimum(model.attention_window, model.seq), model.seq)
    windowed = window * (2 - window / model.seq)
    return model.seq + model.windowed_layers / model.layers * (windowed - model.seq)


def _numbers(model: ModelShape) -> list[float]:
    """Return the values of ``_NAMES`` for one model; what a field leaves to others is filled in."""
    values = {name: float(getattr(model, name)) for name in _STATED}
    values |= {name: float(model.has(name)) for name in _STYLE}
    values["shared_ffn"] = values["shared_ffn"] or values["shared_experts"] * values["expert_ffn"]
    values["v_head_dim"] = values["v_head_dim"] or values["head_dim"]
    values["position_rows"] = values["position_rows"] or values["seq"]
    values["is_moe"] = float(model.experts > 0)
    values["is_latent"] = float(model.kv_lora_rank > 0)
    values["moe_layers"] = values["is_moe"] * (values["layers"] - values["dense_layers"])
    values["plain_layers"] = values["layers"] - values["moe_layers"]
    values["head_details"] = max(values["qk_norm"], values["attention_sinks"])
    return [values[name] for name in _NAMES]
