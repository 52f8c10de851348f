"""Predicts jobs of several models, and renders what each role takes in each phase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.memory.interval import Interval
from opsk.costmodel.roles import Moment, Phase, RoleMemory, predict_roles
from opsk.costmodel.table import MemoryTable, PredictionTable, Range
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.hardware.spec import ClusterSpec
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.roles import Role, RoleSet, WeightPlace
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.layout import Line, Weight, continuation, fit_parts
from opsk_jobcheck.advice.role_changes import RoleChange, find_role_changes

MIN_SHOWN_GIB = 0.1
BY_FORMULA = "an estimate from formulas: no such job was measured"
_PLACES = {WeightPlace.OTHER_GPUS: " on its own GPUs"}


def advise_roles(
    bare: Advice, roles: RoleSet, cluster: ClusterSpec, efficiency: Efficiency, *, is_searched: bool
) -> Advice:
    """Return the advice on a job of several models: verdict, the memory of the phase that decides, and what would fit.

    Parameters
    ----------
    is_searched
        Whether to search for changes.

    Raises
    ------
    OpskError
        When the actor cannot be predicted.
    """
    memory = predict_roles(roles, cluster, efficiency)
    changes = find_role_changes(bare.workload, roles, memory, cluster, efficiency) if is_searched else ()
    prediction = replace(memory.prediction, memory=build_memory_table(memory))
    return replace(
        bare,
        assumed=(*bare.assumed, *roles.assumed),
        verdict=compute_verdict(memory.binding.chance),
        prediction=prediction,
        roles=memory,
        role_changes=changes,
    )


def predict_largest_phase(roles: RoleSet, cluster: ClusterSpec, efficiency: Efficiency) -> PredictionTable:
    """Return the prediction with the memory of the phase that takes most of a GPU at the most.

    Raises
    ------
    OpskError
        When the actor cannot be predicted.
    """
    memory = predict_roles(roles, cluster, efficiency)
    largest = max(memory.moments, key=lambda moment: moment.total.high / moment.capacity_bytes)
    return replace(memory.prediction, memory=build_memory_table(replace(memory, binding=largest)))


def build_memory_table(memory: RoleMemory) -> MemoryTable:
    """Return the memory of the phase that decides in the form of a prediction.

    ``components`` are the actor's where it works in that phase, and one for each other role; they add up to what is
    expected.
    """
    binding, total = memory.binding, memory.binding.total
    components = {
        name: np.asarray(size) for name, size in binding.parts.items() if name not in ("slack", "fragmentation")
    }
    for role, part in binding.roles.items():
        if role is not Role.ACTOR or not components:
            components[role.value] = np.asarray(part.expected)
    expected = np.asarray(total.expected)
    whole = Range(low=np.asarray(total.low), expected=expected, high=np.asarray(total.high))
    return replace(
        memory.prediction.memory,
        capacity_bytes=np.asarray(binding.capacity_bytes),
        total_bytes=whole,
        needed_bytes=whole,
        components=components,
        allocated_bytes=expected,
        reserved_bytes=expected,
        device_bytes=expected,
        fit_probability=np.asarray(binding.chance),
    )


def render_roles(advice: Advice) -> Iterator[Line]:
    """Yield the lines on roles and phases, the one that decides first."""
    memory = advice.roles
    if memory is None:
        return
    binding = memory.binding
    rest = [_moment_text(moment) for moment in memory.moments if moment is not binding]
    text = f"{_moment_text(binding)} decides"
    yield Line(
        label="roles",
        text="; ".join((text, *rest)),
        brief=fit_parts([text, *rest], joint="; "),
        weight=Weight.VERDICT,
        topic="phases",
    )
    for index, change in enumerate(advice.role_changes):
        ending = "fits" if change.verdict is Verdict.FITS else "tight"
        way = f"→ {change.setting}: {ending}, {change.phase.value} {as_gib(change.memory_bytes):.1f} GiB decides then"
        yield continuation(way, Weight.SECOND if index else Weight.WAY_OUT, brief=way, topic="change")
    yield Line(label="", text=BY_FORMULA, brief=BY_FORMULA, weight=Weight.OTHER, topic="how sure")


def _moment_text(moment: Moment) -> str:
    """Return one phase: its roles by size, and what they add up to."""
    rows = sorted(((part.expected, role.value) for role, part in moment.roles.items()), reverse=True)
    shown = [f"{name} {as_gib(size):.1f}" for size, name in rows if as_gib(size) >= MIN_SHOWN_GIB]
    within = f" of the engine's {as_gib(moment.capacity_bytes):.1f}" if moment.phase is Phase.START else ""
    head = f"{moment.phase.value}{_PLACES.get(moment.place, '')} {as_gib(moment.total.expected):.1f} GiB{within}"
    return f"{head} ({' + '.join(shown)})" if len(shown) > 1 else head


def roles_document(memory: RoleMemory) -> list[dict[str, Any]]:
    """Return all phases with their roles, as ``opsk check --json`` has them."""
    return [
        {
            "phase": moment.phase,
            "place": moment.place,
            "decides": moment is memory.binding,
            "capacity_bytes": moment.capacity_bytes,
            "total_bytes": _interval(moment.total),
            "roles": {role.value: _interval(part) for role, part in moment.roles.items()},
            "fit_probability": moment.chance,
        }
        for moment in memory.moments
    ]


def changes_document(changes: Iterable[RoleChange]) -> list[dict[str, Any]]:
    """Return the changes with which a job of several models fits."""
    return [
        {
            "setting": change.setting,
            "verdict": change.verdict,
            "phase": change.phase,
            "memory_bytes": change.memory_bytes,
        }
        for change in changes
    ]


def _interval(part: Interval) -> dict[str, float]:
    """Return the ends of an interval."""
    return {"low": part.low, "expected": part.expected, "high": part.high}
