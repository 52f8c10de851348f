"""Which framework defaults turn a stated workload into one that can be predicted?

What a script leaves open is filled with the framework's own default and listed, so that a reader of the advice sees
what was assumed and why. What has no default (the number of layers, say) stays missing, and no prediction is made.
What a script sets to something that cannot be told (``--tensor-model-parallel-size $1``) is missing too: a default in
its place would be a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.errors import InputError, PlanInfeasibleError
from opsk.workload.defaults import Assumption, Filling, average_layers, fill_model, fill_plan
from opsk.workload.memory_settings import fill_memory
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.presets import fill_preset
from opsk.workload.rules import Violation, violations
from opsk.workload.settings import fill_settings
from opsk.workload.trainer_defaults import fill_trainer
from opsk.workload.workload import Problem, Workload

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
