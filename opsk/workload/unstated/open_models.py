"""Names the models of which a workload trains one, where its script does not tell which, or only how large it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsk.workload.public_models.family_limits import find_largest_of_family
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import find_measured
from opsk.workload.public_models.sized_names import find_as_large
from opsk.workload.workload import Workload
from opsk.workload.worst_case import MICRO_BATCH

OPEN_MODELS = "open.models"
"""The option that names the models of which a program trains one, a blank between."""
HAS_OTHER_PARTS = "open.parts"
"""The option that states that a program loads a model of images or sound, of which the name tells less (``true``)."""
MAX_MODELS = 8
MAX_SHOWN = 3
SPREAD = 2
"""What a model of a known size may store over one that is as large: that of so many times the batch."""
_SHAPE = ("model.layers", "model.hidden", "model.heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModels:
    """Names of the catalogue of which a model is one, or is as large as one (``is_size_alone``), and why."""

    names: tuple[str, ...]
    why: str
    is_size_alone: bool = False


def find_open_models(workload: Workload) -> OpenModels | None:
    """Return the models of which a workload trains one; ``None`` where it is known, or may be any."""
    open_fields = {entry.field for entry in workload.unknown}
    is_stated = all(getattr(workload.model, field.removeprefix("model.")) for field in _SHAPE)
    if is_stated and open_fields.isdisjoint(_SHAPE):
        return None
    named = dict(workload.options).get(OPEN_MODELS, "").split()
    if named:
        is_known = len(named) <= MAX_MODELS and all(map(_is_known, named))
        others = f" and {len(named) - MAX_SHOWN} others" if len(named) > MAX_SHOWN else ""
        why = f"the largest of {', '.join(named[:MAX_SHOWN])}{others}, of which the program loads one"
        return OpenModels(names=tuple(named), why=why) if is_known else None
    name = workload.model.name
    if not name or _is_known(name):
        return None
    has_parts = HAS_OTHER_PARTS in dict(workload.options)
    if not has_parts and (names := find_as_large(name)):
        why = f"the largest of those that are as large as {name} is by its name"
        return OpenModels(names=names, why=why, is_size_alone=True)
    names = find_largest_of_family(name)
    if not names or (has_parts and not all(map(find_measured, names))):
        return None
    return OpenModels(names=names, why=f"the largest of the family after which {name} is named")


def state_model(workload: Workload, name: str, models: OpenModels) -> Workload:
    """Return a workload with one of the models, at the largest."""
    plan, own_name = workload.plan, workload.model.name
    # a critic or a reference may be the same one
    options = {key: name if value == own_name else value for key, value in workload.options}
    options.pop(OPEN_MODELS, None)
    if models.is_size_alone:
        if plan.micro_batch is not None:
            plan = replace(plan, micro_batch=SPREAD * plan.micro_batch, global_batch=None)
        if options.get(MICRO_BATCH, "").isdecimal():
            options[MICRO_BATCH] = str(SPREAD * int(options[MICRO_BATCH]))
    return replace(
        workload,
        model=replace(workload.model, name=name),
        plan=plan,
        options=tuple(sorted(options.items())),
        unknown=tuple(entry for entry in workload.unknown if entry.field not in _SHAPE),
    )


def _is_known(name: str) -> bool:
    """Return whether opsk predicts a model of this name."""
    return public_model(name) is not None or find_measured(name) is not None
