"""Computes attention, and the layers of transformers that PyTorch has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.operations.axes import contiguous, permute, reshape, transpose, turn
from opsk_jobcheck.scripts.frameworks.own_models.operations.elements import apply, combine, dropout
from opsk_jobcheck.scripts.frameworks.own_models.operations.matrices import linear, matmul
from opsk_jobcheck.scripts.frameworks.own_models.operations.norms import normalise_layer
from opsk_jobcheck.scripts.frameworks.own_models.operations.reductions import reduce
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import (
    Rule,
    as_int,
    as_tensor,
    cast_down,
    make,
    make_like,
    multiply,
)
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tape import Tape
from opsk_jobcheck.scripts.frameworks.own_models.values import Module, Tensor

_ALIGNED = 8
"""Kernels of attention take heads whose width is a multiple of it; others are computed matrix by matrix."""


def attend(tape: Tape, rows: Sequence[Tensor], mask: Any = None, rate: Any = 0.0) -> Tensor:
    """Return attention by one kernel, which saves queries, keys, values, its result and the sums of its rows."""
    query, key, value = (cast_down(tape, row) for row in rows)
    width = query.shape[-1] if query.shape else None
    if width is None or width % _ALIGNED or (query.shape is not None and len(query.shape) != 4):
        return _attend_by_parts(tape, (query, key, value), mask, rate, is_sure=False)
    shape = (*(query.shape or ())[:-1], value.shape[-1] if value.shape else None)
    result = replace(make(tape, shape, query.dtype, [query, key, value]), strides=None)
    heads = permute(make(tape, (shape[0], shape[2], shape[1], shape[3]), query.dtype), [0, 2, 1, 3])
    result = replace(result, strides=heads.strides)
    if result.has_gradient:
        for row in (query, key, value, result):
            tape.save(row)
        tape.save(make(tape, shape[:-1], "float32"))
        if isinstance(mask, Tensor):
            tape.save(mask if mask.dtype != "bool" else make_like(tape, mask, dtype=query.dtype), is_sure=False)
    return result


def _attend_by_parts(tape: Tape, rows: Sequence[Tensor], mask: Any, rate: Any, *, is_sure: bool = True) -> Tensor:
    """Return attention by products of matrices, which save the matrix of its scores."""
    query, key, value = rows
    was_sure, tape.is_sure = tape.is_sure, tape.is_sure and is_sure
    scores = matmul(tape, combine(tape, "mul", query, 0.5), turn(key))
    if isinstance(mask, Tensor):
        scores = combine(tape, "add", scores, mask)
    weights = dropout(tape, apply(tape, "softmax", scores), rate)
    result = matmul(tape, weights, value)
    tape.is_sure = was_sure
    return result


def _attend(tape: Tape, given: Arguments) -> Any:
    names = ("query", "key", "value")
    rows = [as_tensor(tape, given.get(place, name)) for place, name in enumerate(names)]
    mask = given.get(3, "attn_mask")
    return attend(tape, rows, as_tensor(tape, mask) if mask is not None else None, given.get(4, "dropout_p", 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Attention of several heads: its width, how many heads it has, and which axis is the batch."""

    width: int | None
    count: int | None
    rate: Any
    is_batch_first: bool

    def run(
        self, tape: Tape, rows: Sequence[Tensor], *, weight: Tensor, gives_weights: bool, mask: Any = None
    ) -> Tensor:
        """Return attention between projections of tensors, projected again."""
        inputs = [transpose(row, 0, 1) if self.is_batch_first else row for row in rows]
        if rows[0] is rows[1] is rows[2]:
            projected = self._project_together(tape, inputs[0], weight, 3)
        elif rows[1] is rows[2]:
            query = linear(tape, inputs[0], weight, self.width)
            projected = [query, *self._project_together(tape, inputs[1], weight, 2)]
        else:
            projected = [linear(tape, row, weight, self.width) for row in inputs]
        side = self.width // self.count if self.width and self.count else None
        sizes = [row.shape or (None, None, None) for row in projected]
        heads = [
            transpose(reshape(tape, row, [size[0], multiply([size[1], self.count]), side]), 0, 1)
            for row, size in zip(projected, sizes, strict=True)
        ]
        if gives_weights:
            mixed = _attend_by_parts(tape, heads, mask, self.rate)
        else:
            batched = [
                reshape(tape, row, [size[1], self.count, size[0], side]) for row, size in zip(heads, sizes, strict=True)
            ]
            mixed = attend(tape, batched, mask, self.rate)
            mixed = permute(mixed, [2, 0, 1, 3])
        if gives_weights:
            mixed = transpose(mixed, 0, 1)
        flat = reshape(tape, contiguous(tape, mixed), [multiply(sizes[0][:2]), self.width])
        result = reshape(tape, linear(tape, flat, weight, self.width), [sizes[0][0], sizes[0][1], self.width])
        return transpose(result, 0, 1) if self.is_batch_first else result

    def _project_together(self, tape: Tape, tensor: Tensor, weight: Tensor, count: int) -> list[Tensor]:
        """Return several projections of one tensor, in one copy."""
        wide = linear(tape, tensor, weight, count * self.width if self.width else None)
        shape = wide.shape[:-1] if wide.shape is not None else (None, None)
        packed = make(tape, (count, *shape, self.width), wide.dtype, [wide])
        part = replace(packed, shape=(*shape, self.width), strides=packed.strides[1:] if packed.strides else None)
        return [part] * count


def run_heads(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> tuple[Tensor, Any]:
    """Return the result of ``MultiheadAttention``, with the weights that it gives by default."""
    heads = Heads(
        width=as_int(layer.get(0, "embed_dim")),
        count=as_int(layer.get(1, "num_heads")),
        rate=layer.get(2, "dropout", 0.0),
        is_batch_first=layer.get(9, "batch_first", False) is not False,
    )
    values = [inputs.get(place, name) for place, name in enumerate(("query", "key", "value"))]
    rows = [as_tensor(tape, value) for value in values]
    if values[1] is values[2]:
        rows = [rows[0], rows[1], rows[1]] if values[0] is not values[1] else [rows[0]] * 3
    if rows[0].shape is not None and len(rows[0].shape) == 2:
        tape.give_up("attention without a batch is not followed")
    weight = as_tensor(tape, module.attributes.get("weight"))
    mask = inputs.get(5, "attn_mask")
    gives = inputs.get(4, "need_weights", True)
    result = heads.run(
        tape,
        rows,
        weight=weight,
        gives_weights=gives is not False,
        mask=as_tensor(tape, mask) if mask is not None else None,
    )
    scores = None
    if gives is not False and rows[0].shape is not None and rows[1].shape is not None and len(rows[0].shape) == 3:
        batch, time = (0, 1) if heads.is_batch_first else (1, 0)
        whole = make(
            tape, (rows[0].shape[batch], heads.count, rows[0].shape[time], rows[1].shape[time]), result.dtype, [result]
        )
        scores = reduce(tape, "mean", whole, 1)
    return result, scores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """Settings of a layer of a transformer."""

    heads: Heads
    width: int | None
    inner: int | None
    rate: Any
    activation: str
    is_norm_first: bool


def _read(layer: Arguments, shift: int = 0) -> _Settings:
    """Return the settings of a layer; of a whole transformer its numbers of layers come before them."""
    width, rate = as_int(layer.get(0, "d_model", 512)), layer.get(3 + shift, "dropout", 0.1)
    name = layer.get(4 + shift, "activation", "relu")
    named = name if isinstance(name, str) else getattr(name, "name", "gelu")
    return _Settings(
        heads=Heads(
            width=width,
            count=as_int(layer.get(1, "nhead", 8)),
            rate=rate,
            is_batch_first=layer.get(6 if not shift else 9, "batch_first", False) is True,
        ),
        width=width,
        inner=as_int(layer.get(2 + shift, "dim_feedforward", 2048)),
        rate=rate,
        activation="relu" if named.lower().endswith("relu") else "gelu",
        is_norm_first=layer.get(7 if not shift else 10, "norm_first", False) is True,
    )


def _run_layer(
    tape: Tape, settings: _Settings, tensor: Tensor, weight: Tensor, memory: Tensor | None, mask: Any
) -> Tensor:
    """Return the result of one layer; with ``memory`` it attends to that as well."""
    parts = ["self", "memory", "feed"] if memory is not None else ["self", "feed"]
    for part in parts:
        row = normalise_layer(tape, tensor, 1) if settings.is_norm_first else tensor
        if part == "feed":
            wide = apply(tape, settings.activation, linear(tape, row, weight, settings.inner))
            made = linear(tape, dropout(tape, wide, settings.rate), weight, settings.width)
        else:
            rows = [row] * 3 if part == "self" or memory is None else [row, memory, memory]
            made = settings.heads.run(
                tape, rows, weight=weight, gives_weights=False, mask=mask if part == "self" else None
            )
        tensor = combine(tape, "add", tensor, dropout(tape, made, settings.rate))
        if not settings.is_norm_first:
            tensor = normalise_layer(tape, tensor, 1)
    return tensor


def run_transformer_layer(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Tensor:
    """Return the result of ``TransformerEncoderLayer`` or ``TransformerDecoderLayer``."""
    tensor = as_tensor(tape, inputs.get(0, "src", inputs.keywords.get("tgt")))
    memory = as_tensor(tape, inputs.get(1, "memory")) if module.name == "TransformerDecoderLayer" else None
    mask = inputs.get(1, "src_mask") if memory is None else inputs.get(2, "tgt_mask")
    weight = as_tensor(tape, module.attributes.get("weight"))
    return _run_layer(tape, _read(layer), tensor, weight, memory, as_tensor(tape, mask) if mask is not None else None)


def run_transformer(tape: Tape, layer: Arguments, module: Module, inputs: Arguments) -> Tensor:
    """Return the result of ``Transformer``: all layers that encode, and all that decode."""
    settings = _read(layer, 2)
    source, target = as_tensor(tape, inputs.get(0, "src")), as_tensor(tape, inputs.get(1, "tgt"))
    weight = as_tensor(tape, module.attributes.get("weight"))
    counts = [as_int(layer.get(2, "num_encoder_layers", 6)), as_int(layer.get(3, "num_decoder_layers", 6))]
    if None in counts:
        tape.give_up("the layers of a transformer are not known")
    masks = [inputs.get(2, "src_mask"), inputs.get(3, "tgt_mask")]
    rows = [as_tensor(tape, mask) if mask is not None else None for mask in masks]
    for _ in range(counts[0] or 0):
        source = _run_layer(tape, settings, source, weight, None, rows[0])
    source = normalise_layer(tape, source, 1)
    for _ in range(counts[1] or 0):
        target = _run_layer(tape, settings, target, weight, source, rows[1])
    return normalise_layer(tape, target, 1)


RULES: Mapping[str, Rule] = {"scaled_dot_product_attention": _attend}
