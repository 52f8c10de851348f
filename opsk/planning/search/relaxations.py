"""Explains why no plan is legal: the single constraints to blame, and the nearest values that leave some plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from typing import Any

import numpy as np

from opsk.costmodel.rules import Rule, find_violations
from opsk.costmodel.table import RECOMPUTES, SCHEDULES, SHARDINGS
from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.layouts import divisors
from opsk.planning.search.request import MAX_GPUS, PlanRequest
from opsk.planning.search.space import Space, build_space, has_plans, unknown_words

CODES: dict[str, tuple[Any, ...]] = {"sharding": SHARDINGS, "recompute": RECOMPUTES, "schedule": SCHEDULES}
"""Axes with enumerated values, which a space stores as codes."""
_LISTS = {
    **{"sharding": "shardings", "shard_gpus": "shardings", "schedule": "orders", "vpp": "orders"},
    **{"recompute": "recomputes", "recompute_layers": "recomputes"},
}
_TRIED = 48
"""Other batches that are tried to each side, the nearest first."""
_NEAR, _NEAR_EACH = 32, 6
"""Approximate count of numbers around the requested one, and of multiples of each further step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A constraint without which there are plans: its name, the requested value, and the nearest that leaves some.

    Nothing is ``nearest`` to a constraint that can only be left out.
    """

    constraint: str
    asked: str
    nearest: tuple[str, ...] = ()


def relaxations(request: PlanRequest) -> list[Relaxation]:
    """Return every single constraint whose relaxation makes plans legal; pairs of them where no single one does."""
    single = [*_relax_axes(request), *_relax_framework(request), *_relax_gpus(request), *_relax_batch(request)]
    return single or [*_relax_pairs(request)]


def broken_rules(request: PlanRequest) -> tuple[str, ...]:
    """Return the rule violations that exclude every plan, whatever its axes."""
    return (*find_violations(request.model, request.plan(), (Rule.SIZE, Rule.ADAPTERS)), *unknown_words(request))


def _relax_axes(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the fixed axes that are to blame."""
    for axis, requested in request.fixed.items():
        free = free_axes(request, axis)
        if has_plans(free):
            yield Relaxation(
                constraint=axis, asked=format_values(requested), nearest=nearest_values(free, axis, requested[0])
            )


def free_axes(request: PlanRequest, *axes: str) -> PlanRequest:
    """Return the request with some axes free again."""
    return replace(request, fixed={name: values for name, values in request.fixed.items() if name not in axes})


def nearest_values(free: PlanRequest, axis: str, requested: Any) -> tuple[str, ...]:
    """Return the values of an axis that leave some plan: the nearest below and above a number, else all."""
    values = list_values(build_space(free), axis)
    if axis in CODES:
        return tuple(str(CODES[axis][value]) for value in values)
    if axis == "sequence_parallel":
        return tuple(format_values((bool(value),)) for value in values)
    below = [value for value in values if value < requested][-1:]
    above = [value for value in values if value > requested][:1]
    for value in _list_equivalent_values(free, axis):  # between requested and known values
        if (below or [0])[0] < value < requested and has_plans(fix_axis(free, axis, value)):
            below = [value]
        if requested < value < (above or [value + 1])[0] and has_plans(fix_axis(free, axis, value)):
            above = [value]
    return tuple(str(value) for value in (*below, *above))


def _list_equivalent_values(free: PlanRequest, axis: str) -> Sequence[int]:
    """Return values that a space does not list because another is equivalent: a shard group of all replicas is 0."""
    if axis in ("shard_gpus", "etp"):
        return divisors(free.gpus)
    if axis in ("recompute_layers", "first_stage_layers", "last_stage_layers"):
        return range(1, free.model.layers + free.model.encoder_layers + 1)
    return ()


def fix_axis(request: PlanRequest, axis: str, value: Any) -> PlanRequest:
    """Return the request with an axis held to one value."""
    return replace(request, fixed={**request.fixed, axis: (value,)})


def list_values(space: Space, axis: str) -> list[int]:
    """Return all values of an axis in a space, ascending."""
    if axis not in _LISTS:
        return [int(value) for value in np.unique(space.nodes[axis])]
    lists = getattr(space, _LISTS[axis])
    _, entries = lists.multiply(np.unique(space.nodes[_LISTS[axis]]))
    return [int(value) for value in np.unique(lists.columns[axis][entries])]


def _relax_framework(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the framework where it is to blame."""
    limits = request.limits
    if limits.name != ANYTHING.name and has_plans(replace(request, limits=ANYTHING)):
        yield Relaxation(constraint="framework", asked=limits.name, nearest=(ANYTHING.name,))


def _relax_gpus(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the number of GPUs where it is to blame, with the nearest below and above that is not."""
    step = math.lcm(*(values[0] for axis, values in request.fixed.items() if axis in ("tp", "pp", "cp", "dp")))
    near = {base * count for base in (step, 1) for count in _around(request.gpus / base, _NEAR)}
    # farther numbers are rounder: those with many factors of two can be divided in many ways
    steps = [step << power for power in range((request.gpus // step).bit_length())]
    rounder = {base * count for base in steps for count in _around(request.gpus / base, _NEAR_EACH)}
    numbers = near | rounder | {2**power for power in range(MAX_GPUS.bit_length())}
    nearest = _nearest_numbers(request, "gpus", numbers, most=len(numbers))
    if nearest:
        yield Relaxation(constraint="gpus", asked=str(request.gpus), nearest=nearest)


def _relax_batch(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the batch where it is to blame, with the nearest below and above that is not."""
    per_step = math.lcm(*(values[0] for axis, values in request.fixed.items() if axis in ("dp", "micro_batch")))
    steps = {per_step * size for size in divisors(request.gpus)}
    batches = {step * count for step in steps for count in _around(request.global_batch / step, _NEAR_EACH)}
    nearest = _nearest_numbers(request, "global_batch", batches, most=_TRIED)
    if nearest:
        yield Relaxation(constraint="global_batch", asked=str(request.global_batch), nearest=nearest)


def _around(number: float, count: int) -> list[int]:
    """Return so many whole numbers around one, those above 0."""
    middle = round(number)
    return [value for value in range(middle - count // 2, middle + count // 2 + 1) if value > 0]


def _nearest_numbers(request: PlanRequest, name: str, numbers: set[int], *, most: int) -> tuple[str, ...]:
    """Return the nearest of ``numbers`` below and above the requested one that leave some plan."""
    requested = request.gpus if name == "gpus" else request.global_batch
    below = sorted((value for value in numbers if 0 < value < requested), reverse=True)[:most]
    above = sorted(value for value in numbers if requested < value <= MAX_GPUS)[:most]
    nearest = (
        next((value for value in side if has_plans(_with(request, name, value))), None) for side in (below, above)
    )
    return tuple(str(value) for value in nearest if value is not None)


def _with(request: PlanRequest, name: str, value: int) -> PlanRequest:
    """Return the request with another number of GPUs, or of sequences."""
    return replace(request, gpus=value) if name == "gpus" else replace(request, global_batch=value)


def _relax_pairs(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield pairs of fixed axes that are to blame together."""
    for pair in combinations(request.fixed, 2):
        if has_plans(free_axes(request, *pair)):
            first, second = (format_values(request.fixed[axis]) for axis in pair)
            yield Relaxation(constraint=f"{pair[0]} {first} and {pair[1]}", asked=second)


def format_values(values: tuple[Any, ...]) -> str:
    """Return values as text for users."""
    return " or ".join(_format_value(value) for value in values)


def _format_value(value: Any) -> str:
    """Return one value as text for users."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value.value) if isinstance(value, Enum) else str(value)
