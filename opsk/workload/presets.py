"""Which shape does a public model's name stand for, where a script names a model and leaves its shape out?

What is stated wins. Where it contradicts the public model, what depends on it is left out too: another width has
another MLP and other heads, whatever the name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from opsk.workload.defaults import Filling
from opsk.workload.model import MODEL_FIELDS, ModelShape
from opsk.workload.public_models.lookup import public_model

PRESET = "model.preset"
"""The option that names the public model whose shape a program starts from, where it trains another one."""
_NOT_TAKEN = frozenset({"name", "seq", "flash_attention"})
"""How long sequences are and how attention is computed is up to the run, not to the model."""
_ALWAYS = frozenset({"kv_heads", "gated_mlp", "tied_embeddings", "learned_positions", "experts"})
"""Fields that would get another default where the model has the plain value."""
_OF_HIDDEN = frozenset(
    {
        *("ffn", "heads", "kv_heads", "head_dim", "expert_ffn", "shared_ffn"),
        *("q_lora_rank", "kv_lora_rank", "qk_rope_dim", "v_head_dim", "mixer_heads", "mixer_rank"),
    }
)
_OF_LAYERS = frozenset({"dense_layers", "dense_interleaved", "windowed_layers", "mixer_layers", "mlp_layers"})
_OF_HEADS = frozenset({"head_dim", "kv_lora_rank", "q_lora_rank", "qk_rope_dim", "v_head_dim"})
_OF_EXPERTS = frozenset({"top_k", "shared_experts", "shared_ffn", "expert_ffn", "dense_layers", "dense_interleaved"})


def fill_preset(filling: Filling) -> None:
    """Fill in the shape of the model that is named, as assumptions; nothing for a name that the catalogue lacks."""
    if filling.is_megatron:
        # its flags are the whole shape: what they leave out has Megatron's own default
        return
    own = filling.options.get(PRESET, "")
    name = own or filling.workload.model.name or ""
    shape = public_model(name)
    if shape is None or shape.encoder_layers:
        return
    why = f"the shape of {name} in opsk's catalogue"
    if own:
        why += ", from which its configuration class starts"
    contradicted = frozenset(_contradicted(filling, shape))
    for field in MODEL_FIELDS:
        value = getattr(shape, field)
        if field in _NOT_TAKEN or field in contradicted or value is None or _is_default(field, value):
            continue
        filling.assume(f"model.{field}", _rule(value, why))


def _rule(value: Any, why: str) -> Any:
    """Return the rule that takes a value of the catalogue."""
    return lambda: (value, why)


def _contradicted(filling: Filling, shape: ModelShape) -> Iterator[str]:
    """Yield the fields that do not hold for what is stated."""
    if _differs(filling, shape, "hidden"):
        yield from _OF_HIDDEN
    if _differs(filling, shape, "layers"):
        yield from _OF_LAYERS
    if _differs(filling, shape, "heads"):
        yield from _OF_HEADS
        heads = filling.get("model.heads")
        if shape.kv_heads == shape.heads or not heads or heads % shape.kv_heads:
            yield "kv_heads"
    if _differs(filling, shape, "kv_heads") and (filling.get("model.kv_heads") or 1) > shape.heads:
        yield "heads"
    if _differs(filling, shape, "experts"):
        yield from _OF_EXPERTS
    if _differs(filling, shape, "ffn") and shape.expert_ffn == shape.ffn:
        yield "expert_ffn"


def _differs(filling: Filling, shape: ModelShape, field: str) -> bool:
    """Tell whether a field is stated as something else, or set to what cannot be told."""
    stated = filling.get(f"model.{field}")
    return f"model.{field}" in filling.unknown or (stated is not None and stated != getattr(shape, field))


def _is_default(field: str, value: Any) -> bool:
    """Tell whether a shape has this value without its being said."""
    return field not in _ALWAYS and value == _DEFAULTS.get(field, _NOTHING)


_NOTHING = object()
_DEFAULTS = {item.name: item.default for item in fields(ModelShape)}
