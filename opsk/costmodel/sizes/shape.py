"""Converts a model's shape to numbers that broadcast against the columns of a plan table.

One model gives plain numbers; a list of models gives one entry each, so that plans of different models can
be predicted together (calibration does). Yes-or-no fields are 1.0 or 0.0. The ``has_`` fields state whether any of the
models has a feature at all, so that work on it can be skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from opsk.costmodel.elementwise import any_of, minimum, where
from opsk.costmodel.sizes.mixer_kinds import MIXER_COLUMNS, mixer_sizes
from opsk.costmodel.table import FloatColumn
from opsk.workload.model import MeasuredParts, ModelShape

_STYLE = ("qkv_bias", "output_bias", "mlp_bias", "norm_bias", "dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeColumns:
    """The fields of `ModelShape`, each of shape () or (plans,); units and meaning are explained there.

    ``moe_layers`` are the decoder's layers with experts, ``plain_layers`` those with the dense MLP; ``head_details``
    states that heads have norms or sinks. Where layers are of several kinds (``is_mixed``), every layer is taken as the
    average one, on every stage: ``attention_share``, ``mixer_share`` and ``mlp_share`` say how much it has of each, and
    ``blocks`` how many of them follow one another (2, or 1 in Nemotron-H); a mixture of experts has them in all
    layers then, ``mlp_share`` of each. Fields that begin with ``mixer_`` are those of `MixerSizes`, and those
    that begin with ``measured_`` those of `MeasuredParts`.
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
    attention_gate: FloatColumn
    chunked_windows: FloatColumn
    index_heads: FloatColumn
    index_head_dim: FloatColumn
    index_top_k: FloatColumn
    mixer_inner: FloatColumn
    mixer_into: FloatColumn
    mixer_shared_into: FloatColumn
    mixer_groups: FloatColumn
    mixer_low: FloatColumn
    mixer_low_split: FloatColumn
    mixer_small: FloatColumn
    mixer_whole: FloatColumn
    mixer_scan_flop: FloatColumn
    mixer_kernel_flop: FloatColumn
    mixer_moved: FloatColumn
    mixer_stored: FloatColumn
    mixer_backward: FloatColumn
    is_mixed: FloatColumn
    attention_share: FloatColumn
    mixer_share: FloatColumn
    mlp_share: FloatColumn
    blocks: FloatColumn
    is_moe: FloatColumn
    is_latent: FloatColumn
    moe_layers: FloatColumn
    plain_layers: FloatColumn
    head_details: FloatColumn
    measured_parameters: FloatColumn
    measured_frozen: FloatColumn
    measured_sample: FloatColumn
    measured_sample_fp32: FloatColumn
    measured_checkpointed: FloatColumn
    measured_part: FloatColumn
    measured_tensor: FloatColumn
    measured_contrast: FloatColumn
    measured_local_contrast: FloatColumn
    has_experts: bool
    has_dense_layers: bool
    has_latent: bool
    has_encoder: bool
    has_mtp: bool
    has_windows: bool
    has_relative_positions: bool
    has_head_details: bool
    has_mixers: bool
    has_attention_gate: bool
    has_index: bool
    has_measured: bool


_FLAGS = {
    "has_experts": "is_moe",
    "has_dense_layers": "dense_layers",
    "has_latent": "is_latent",
    "has_encoder": "encoder_layers",
    "has_mtp": "mtp_layers",
    "has_windows": "windowed_layers",
    "has_relative_positions": "relative_positions",
    "has_head_details": "head_details",
    "has_mixers": "is_mixed",
    "has_attention_gate": "attention_gate",
    "has_index": "index_top_k",
    "has_measured": "measured_parameters",
}
_NAMES = tuple(item.name for item in fields(ShapeColumns) if item.name not in _FLAGS)
_STATED = tuple(
    name for name in _NAMES if name in {item.name for item in fields(ModelShape)} - {*_STYLE, *MIXER_COLUMNS}
)


@lru_cache(maxsize=256)
def build_shape(model: ModelShape) -> ShapeColumns:
    """Return the columns of one model, plain numbers."""
    return _columns(_numbers(model))


def build_shapes(models: Sequence[ModelShape]) -> ShapeColumns:
    """Return the columns of models, one entry each."""
    table = np.ascontiguousarray(np.array([_numbers(model) for model in models], dtype=np.float64).T)
    table.flags.writeable = False
    return _columns(table)


def _columns(table: Iterable[Any]) -> ShapeColumns:
    """Return the columns of a table that has one row a name."""
    columns = dict(zip(_NAMES, table, strict=True))
    flags = {flag: any_of(columns[name]) for flag, name in _FLAGS.items()}
    return ShapeColumns(**columns, **flags)


def attended_tokens(model: ShapeColumns, *, as_run: bool = True) -> FloatColumn:
    """Return the tokens that a token attends to, as the side of a full square, averaged over layers with attention.

    A causal window of w sees w (s - w/2) of the s^2/2 pairs of a causal square: a square's side of w (2 - w/s). Chunks
    of w see w^2/2 pairs each, a side of w. ``as_run`` counts sparse attention as kernels do, see `_add_indexer`.
    """
    attended = model.seq
    if model.has_windows:
        window = where(model.attention_window > 0, minimum(model.attention_window, model.seq), model.seq)
        windowed = where(model.chunked_windows > 0, window, window * (2 - window / model.seq))
        share = where(model.attention_share > 0, model.attention_share, 1.0)
        attended = attended + model.windowed_layers / (share * model.layers) * (windowed - attended)
    return _add_indexer(model, attended, as_run=as_run) if model.has_index else attended


def _add_indexer(model: ShapeColumns, attended: FloatColumn, *, as_run: bool) -> FloatColumn:
    """Return the same with sparse attention: the tokens chosen, and the indexer's scores of all in the same measure.

    Kernels of latent attention then multiply the latents themselves, r + rope of a key and r of a value for every head,
    as one key serves all heads (DeepSeek-V3.2 report, section 2: in the form of multi-query attention).
    """
    width = model.head_dim + model.v_head_dim
    chosen = minimum(model.index_top_k, model.seq)
    is_sparse = (model.index_top_k > 0) & (chosen < model.seq)
    wider = where(as_run & (model.is_latent > 0), (2.0 * model.kv_lora_rank + model.qk_rope_dim) / width, 1.0)
    sparse = where(is_sparse, chosen * (2 - chosen / model.seq) * wider, attended)
    return sparse + model.seq * model.index_heads * model.index_head_dim / (model.heads * width)


def _numbers(model: ModelShape) -> list[float]:
    """Return the values of ``_NAMES`` for one model; fields that default to others are filled in."""
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
    sizes = mixer_sizes(model)
    values |= {name: float(getattr(sizes, name)) for name in MIXER_COLUMNS}
    values |= _shares_of_kinds(model)
    values |= _measured_columns(model.measured)
    values["measured_frozen"] += float(model.frozen_parameters)
    return [values[name] for name in _NAMES]


def _measured_columns(parts: MeasuredParts | None) -> dict[str, float]:
    """Return what was measured of a model, zeros where nothing was."""
    return {
        "measured_parameters": float(parts.parameters if parts else 0),
        "measured_frozen": float(parts.frozen_parameters if parts else 0),
        "measured_sample": float(parts.sample_bytes if parts else 0),
        "measured_sample_fp32": float(parts.sample_fp32_bytes if parts else 0),
        "measured_checkpointed": float(parts.checkpointed_bytes if parts else 0),
        "measured_part": float(parts.part_bytes if parts else 0),
        "measured_tensor": float(parts.tensor_bytes if parts else 0),
        "measured_contrast": float(parts is not None and parts.is_contrastive),
        "measured_local_contrast": float(parts is not None and parts.is_loss_local),
    }


def _shares_of_kinds(model: ModelShape) -> dict[str, float]:
    """Return how much of each kind the average layer has."""
    layers = float(model.layers)
    mlp = (model.mlp_layers or layers) / layers
    mixed = model.mixer_layers + model.mlp_layers > 0
    return {
        "is_mixed": float(mixed),
        "attention_share": model.attention_layers / layers,
        "mixer_share": model.mixer_layers / layers,
        "mlp_share": mlp,
        "blocks": 1.0 if model.mlp_layers else 2.0,
    }
