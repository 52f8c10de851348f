"""Completes a stated workload with framework defaults, so that it can be predicted.

What a script leaves open is filled with the framework's own default and listed, so that a reader of the advice sees
what was assumed and why. What has no default (the number of layers, for example) stays missing, and no prediction is
made. What a script sets to a value that cannot be resolved (``--tensor-model-parallel-size $1``) is missing too: a
default in its place would be a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from opsk.errors import InputError, OpskError, PlanInfeasibleError
from opsk.workload.defaults import Assumption, Filling, average_layers, fill_model, fill_plan, fill_trainer
from opsk.workload.measured_model import fill_measured
from opsk.workload.memory_settings import fill_memory
from opsk.workload.model import MODEL_FIELDS, ModelShape, StatedModel
from opsk.workload.plan import Loss, Plan, StatedPlan
from opsk.workload.public_models.lookup import Kind, find_base_name, find_listed, has_own_length, public_model
from opsk.workload.public_models.vision_language import (
    FROZEN,
    TOWER,
    TOWER_PARAMETERS,
    build_frozen_shape,
    find_vision_language,
)
from opsk.workload.rules import Violation, find_violations
from opsk.workload.settings import fill_settings
from opsk.workload.workload import Problem, Workload

PRESET = "model.preset"
"""The option that names the public model whose shape a program starts from, where it trains another one."""
ENCODER_LENGTH, DECODER_LENGTH = "encoder.seq", "decoder.seq"
"""The options that state how many tokens encoder and decoder of one model read."""
MAX_LENGTH_DIGITS = 7
MAX_TOWER_DIGITS = 12
MASKED = "loss.masked"
"""The option that states that an encoder predicts masked tokens: there are logits of all of them then."""
_RUN_FIELDS = frozenset({"name", "seq", "flash_attention"})
"""The sequence length and the attention kernel belong to the run, not to the model."""
_ALWAYS_FILLED = frozenset({"kv_heads", "gated_mlp", "tied_embeddings", "learned_positions", "experts"})
"""Fields that would get another default even where the model has the dataclass default."""
_HIDDEN_DEPENDENT = frozenset(
    {
        *("ffn", "heads", "kv_heads", "head_dim", "expert_ffn", "shared_ffn"),
        *("q_lora_rank", "kv_lora_rank", "qk_rope_dim", "v_head_dim", "mixer_heads", "mixer_rank"),
    }
)
_LAYER_DEPENDENT = frozenset({"dense_layers", "dense_interleaved", "windowed_layers", "mixer_layers", "mlp_layers"})
_HEAD_DEPENDENT = frozenset({"head_dim", "kv_lora_rank", "q_lora_rank", "qk_rope_dim", "v_head_dim"})
_EXPERT_DEPENDENT = frozenset(
    {"top_k", "shared_experts", "shared_ffn", "expert_ffn", "dense_layers", "dense_interleaved"}
)
_NO_DEFAULT = object()
_DEFAULTS = {item.name: item.default for item in fields(ModelShape)}
_PLAN_FIELDS = frozenset(Plan.__dataclass_fields__)


def fill_preset(filling: Filling) -> None:
    """Fill in the shape of the named public model, as assumptions; nothing for an unknown name."""
    if filling.is_megatron:
        # its flags define the whole shape: a missing flag has Megatron's own default
        return
    preset = filling.options.get(PRESET, "")
    name = preset or filling.workload.model.name or ""
    shape = _find_language_model(filling, name) or public_model(name)
    if (shape is None or shape.encoder_layers) and fill_measured(filling, name):
        return
    if shape is None:
        return
    if shape.encoder_layers:
        _fill_encoder(filling, shape, name)
    why = f"the shape of {name} in opsk's catalogue"
    if find_base_name(name):
        why = f"the shape of {shape.name} in opsk's catalogue, after which {name} is named"
    if preset:
        why += ", from which its configuration class starts"
    contradicted = frozenset(_find_contradicted(filling, shape))
    for field in MODEL_FIELDS:
        value = getattr(shape, field)
        if field in _RUN_FIELDS or field in contradicted or value is None or _is_default(field, value):
            continue
        filling.assume(f"model.{field}", _make_rule(value, why))
    listed = find_listed(name)
    if has_own_length(name):
        filling.assume("model.seq", _make_rule(shape.seq, f"the patches of an image as {name} takes it"))
    if listed is not None and listed[0] is Kind.ENCODER and MASKED not in filling.options:
        filling.assume("plan.loss", _make_rule(Loss.FUSED, f"what is trained on {name} rarely has a logit a token"))


def _find_language_model(filling: Filling, name: str) -> ModelShape | None:
    """Return the shape of a model of images and text whose tower is frozen, and fill in the tower; else ``None``."""
    model = find_vision_language(name) if name else None
    stated = filling.options.get(TOWER_PARAMETERS, "")
    tower = model.tower_parameters if model is not None and filling.options.get(TOWER) == FROZEN else 0
    if not tower and stated.isascii() and stated.isdigit() and len(stated) < MAX_TOWER_DIGITS:
        tower = int(stated)
    if tower:
        filling.values["model.frozen_parameters"] = tower
        why = "the tower that reads images is frozen: its weights alone are in memory"
        filling.assumed.append(Assumption(field="model.frozen_parameters", value=tower, why=why))
    return build_frozen_shape(model) if model is not None else None


def _fill_encoder(filling: Filling, shape: ModelShape, name: str) -> None:
    """Fill in the encoder of an encoder-decoder, and the lengths of what both parts read.

    HuggingFace's T5 stores its attention scores, since fused attention takes no relative positions.
    """
    filling.values["model.encoder_layers"] = shape.encoder_layers
    if shape.relative_positions:
        filling.values["model.relative_positions"] = shape.relative_positions
    stated = {"model.encoder_seq": ENCODER_LENGTH, "model.seq": DECODER_LENGTH}
    for field, option in stated.items():
        text = filling.options.get(option, "")
        if text.isascii() and text.isdigit() and 0 < len(text) < MAX_LENGTH_DIGITS and int(text):
            filling.values[field] = int(text)
        else:
            value = getattr(shape, field.removeprefix("model."))
            filling.assume(field, _make_rule(value, f"the length that {name} was trained with"))
    if shape.relative_positions:
        filling.assume("model.flash_attention", _make_rule(False, f"relative positions of {name}: scores are stored"))


def _make_rule(value: Any, why: str) -> Any:
    """Return a rule that yields a value of the catalogue."""
    return lambda: (value, why)


def _find_contradicted(filling: Filling, shape: ModelShape) -> Iterator[str]:
    """Yield the fields of the public model that the stated values contradict."""
    if _differs(filling, shape, "hidden"):
        yield from _HIDDEN_DEPENDENT
    if _differs(filling, shape, "layers"):
        yield from _LAYER_DEPENDENT
    if _differs(filling, shape, "heads"):
        yield from _HEAD_DEPENDENT
        heads = filling.get("model.heads")
        if shape.kv_heads == shape.heads or not heads or heads % shape.kv_heads:
            yield "kv_heads"
    if _differs(filling, shape, "kv_heads") and (filling.get("model.kv_heads") or 1) > shape.heads:
        yield "heads"
    if _differs(filling, shape, "experts"):
        yield from _EXPERT_DEPENDENT
    if _differs(filling, shape, "ffn") and shape.expert_ffn == shape.ffn:
        yield "expert_ffn"


def _differs(filling: Filling, shape: ModelShape, field: str) -> bool:
    """Return whether a field is stated with another value, or set to an unknown one."""
    stated = filling.get(f"model.{field}")
    return f"model.{field}" in filling.unknown or (stated is not None and stated != getattr(shape, field))


def _is_default(field: str, value: Any) -> bool:
    """Return whether this is the default value of the field."""
    return field not in _ALWAYS_FILLED and value == _DEFAULTS.get(field, _NO_DEFAULT)


__all__ = ["Assumption", "Completion", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A workload completed for the cost model.

    ``model`` and ``plan`` are ``None`` when ``missing`` (dotted field names without which nothing can be predicted) or
    ``problems`` (rules that the stated values break) prevent it. Not every problem does: layers that do not
    divide evenly over stages are predicted with an uneven layout.
    """

    model: ModelShape | None
    plan: Plan | None
    assumed: tuple[Assumption, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def complete(workload: Workload) -> Completion:
    """Return the workload with its framework's defaults filled in; problems are listed, nothing is raised.

    Parameters
    ----------
    workload
        As read from a script; its evidence gives problems their file and line.
    """
    filling = Filling(workload)
    fill_preset(filling)
    fill_trainer(filling)
    fill_plan(filling)
    fill_model(filling)
    fill_settings(filling)
    fill_memory(filling)
    broken = find_violations(filling)
    model, plan = None, None
    if not any(entry.blocks_model for entry in broken) and not filling.lacks("model."):
        model = _build_model(filling, broken)
    if not any(entry.blocks_plan for entry in broken) and not filling.lacks("plan."):
        plan = _build_plan(filling, broken)
    return Completion(
        model=model,
        plan=plan,
        assumed=(*filling.assumed, *average_layers(model, plan)),
        missing=tuple(filling.missing),
        problems=tuple(entry.problem for entry in broken),
    )


def _build_model(filling: Filling, broken: list[Violation]) -> ModelShape | None:
    """Return the shape; ``None`` after adding a violation."""
    try:
        return ModelShape(name=filling.workload.model.name or "model", **filling.under("model."))
    except InputError as error:
        broken.append(Violation(problem=Problem(what=error.message), blocks_model=True, blocks_plan=True))
        return None


def _build_plan(filling: Filling, broken: list[Violation]) -> Plan | None:
    """Return the plan; ``None`` after adding a violation."""
    try:
        values = filling.under("plan.")
        return Plan(**{name: value for name, value in values.items() if name in _PLAN_FIELDS})
    except PlanInfeasibleError as error:
        broken.append(Violation(problem=Problem(what=error.message), blocks_plan=True))
        return None


def complete_answer(document: Mapping[str, Any]) -> Completion | None:
    """Return the workload of an answer with its framework's defaults; ``None`` where it has none or is invalid."""
    from pydantic import TypeAdapter, ValidationError  # where a job is submitted nothing needs it

    stated = document.get("workload")
    if not isinstance(stated, Mapping):
        return None
    try:
        return complete(
            Workload(
                framework=TypeAdapter(str).validate_python(stated.get("framework"), strict=True),
                model=TypeAdapter(StatedModel).validate_python(stated.get("model")),
                plan=TypeAdapter(StatedPlan).validate_python(stated.get("plan")),
            )
        )
    except (ValidationError, OpskError, ValueError):
        return None
