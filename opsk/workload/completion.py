"""Which framework defaults turn a stated workload into one that can be predicted?

What a script leaves open is filled with the framework's own default and listed, so that a reader of the advice sees
what was assumed and why. What has no default (the number of layers, say) stays missing, and no prediction is made.
What a script sets to something that cannot be told (``--tensor-model-parallel-size $1``) is missing too: a default in
its place would be a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from opsk.errors import InputError, PlanInfeasibleError
from opsk.workload.defaults import Assumption, Filling, average_layers, fill_model, fill_plan
from opsk.workload.memory_settings import fill_memory
from opsk.workload.model import MODEL_FIELDS, ModelShape
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model
from opsk.workload.rules import Violation, violations
from opsk.workload.settings import fill_settings
from opsk.workload.trainer_defaults import fill_trainer
from opsk.workload.workload import Problem, Workload

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


__all__ = ["Assumption", "Completion", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A workload made ready for the cost model.

    ``model`` and ``plan`` are ``None`` when ``missing`` (dotted field names without which nothing can be predicted) or
    ``problems`` (rules that the stated values break) stand in the way. Not every problem does: layers that do not
    divide evenly over stages are predicted as they would lie.
    """

    model: ModelShape | None
    plan: Plan | None
    assumed: tuple[Assumption, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def complete(workload: Workload) -> Completion:
    """Return the workload with its framework's defaults filled in; what is wrong is said, nothing is raised.

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
    broken = violations(filling)
    model, plan = None, None
    if not any(entry.blocks_model for entry in broken) and not filling.lacks("model."):
        model = _model(filling, broken)
    if not any(entry.blocks_plan for entry in broken) and not filling.lacks("plan."):
        plan = _plan(filling, broken)
    return Completion(
        model=model,
        plan=plan,
        assumed=(*filling.assumed, *average_layers(model, plan)),
        missing=tuple(filling.missing),
        problems=tuple(entry.problem for entry in broken),
    )


def _model(filling: Filling, broken: list[Violation]) -> ModelShape | None:
    """Return the shape, or say what makes it impossible."""
    try:
        return ModelShape(name=filling.workload.model.name or "model", **filling.under("model."))
    except InputError as error:
        broken.append(Violation(problem=Problem(what=error.message), blocks_model=True, blocks_plan=True))
        return None


def _plan(filling: Filling, broken: list[Violation]) -> Plan | None:
    """Return the plan, or say what makes it impossible."""
    try:
        values = filling.under("plan.")
        return Plan(**{name: value for name, value in values.items() if name in _PLAN_FIELDS})
    except PlanInfeasibleError as error:
        broken.append(Violation(problem=Problem(what=error.message), blocks_plan=True))
        return None


_PLAN_FIELDS = frozenset(Plan.__dataclass_fields__)
