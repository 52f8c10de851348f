"""What of a model's shape enters the arithmetic, as numbers that broadcast against the columns of a plan table?

One model gives arrays without dimensions; a list of models gives one entry each, so that plans of different models can
be predicted together (calibration does). Yes-or-no fields are 1.0 or 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.workload.model import ModelShape

_STYLE = ("qkv_bias", "output_bias", "mlp_bias", "norm_bias", "dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeColumns:
    """The fields of `ModelShape`, each of shape () or (plans,); units and meaning are explained there."""

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

    @property
    def has_experts(self) -> bool:
        """Whether any of the models is a mixture of experts."""
        return bool(np.any(self.is_moe))

    @property
    def moe_layers(self) -> FloatColumn:
        """Layers with experts; 0 for a dense model."""
        return self.is_moe * (self.layers - self.dense_layers)

    @property
    def plain_layers(self) -> FloatColumn:
        """Layers with the dense MLP; all of them for a dense model."""
        return self.layers - self.moe_layers


_NAMES = tuple(item.name for item in fields(ShapeColumns))


def shape_of(model: ModelShape) -> ShapeColumns:
    """Return the columns of one model, without dimensions."""
    return ShapeColumns(**{name: np.asarray(value) for name, value in zip(_NAMES, _numbers(model), strict=True)})


def shapes_of(models: Sequence[ModelShape]) -> ShapeColumns:
    """Return the columns of models, one entry each."""
    table = np.array([_numbers(model) for model in models], dtype=np.float64)
    return ShapeColumns(**dict(zip(_NAMES, np.ascontiguousarray(table.T), strict=True)))


def _numbers(model: ModelShape) -> list[float]:
    """Return the values of ``_NAMES`` for one model; what a field leaves to others is filled in."""
    values = {name: float(model.has(name) if name in _STYLE else getattr(model, name)) for name in _NAMES[:-2]}
    values["shared_ffn"] = values["shared_ffn"] or values["shared_experts"] * values["expert_ffn"]
    values["v_head_dim"] = values["v_head_dim"] or values["head_dim"]
    values["position_rows"] = values["position_rows"] or values["seq"]
    values["is_moe"] = float(model.experts > 0)
    values["is_latent"] = float(model.kv_lora_rank > 0)
    return [values[name] for name in _NAMES]
