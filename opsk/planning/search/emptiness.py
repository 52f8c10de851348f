"""Why is no plan legal, which one constraint is to blame, and what is the nearest value that leaves some?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from typing import Any

import numpy as np

from opsk.costmodel.rules import Rule, violations
from opsk.costmodel.table import RECOMPUTES, SCHEDULES, SHARDINGS
from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.layouts import divisors
from opsk.planning.search.request import MOST_GPUS, PlanRequest
from opsk.planning.search.space import Space, has_plans, space_of, unknown_words

CODES: dict[str, tuple[Any, ...]] = {"sharding": SHARDINGS, "recompute": RECOMPUTES, "schedule": SCHEDULES}
"""Axes whose values are words, which a space has as codes."""
_LISTS = {
    **{"sharding": "shardings", "shard_gpus": "shardings", "schedule": "orders", "vpp": "orders"},
    **{"recompute": "recomputes", "recompute_layers": "recomputes"},
}
_TRIED = 48
"""So many other batches are tried to each side, the nearest first."""
_NEAR, _NEAR_EACH = 32, 6
"""About so many of the numbers around the one asked for, and of the multiples of each further step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A constraint without which there are plans: its name, what was asked, and the nearest that leaves some.

    Nothing is ``nearest`` to a constraint that can only be left out.
    """

    constraint: str
    asked: str
    nearest: tuple[str, ...] = ()


def relaxations(request: PlanRequest) -> list[Relaxation]:
    """Return every single constraint whose relaxation makes plans legal; pairs of them where no single one does."""
    found = [*_of_axes(request), *_of_framework(request), *_of_gpus(request), *_of_batch(request)]
    return found or [*_of_pairs(request)]


def broken_rules(request: PlanRequest) -> tuple[str, ...]:
    """Return what rules out every plan, whatever its axes."""
    return (*violations(request.model, request.plan(), (Rule.SIZE, Rule.ADAPTERS)), *unknown_words(request))


def _of_axes(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the fixed axes that are to blame."""
    for axis, asked in request.fixed.items():
        free = without(request, axis)
        if has_plans(free):
            yield Relaxation(constraint=axis, asked=words(asked), nearest=nearest_values(free, axis, asked[0]))


def without(request: PlanRequest, *axes: str) -> PlanRequest:
    """Return the request with some axes free again."""
    return replace(request, fixed={name: values for name, values in request.fixed.items() if name not in axes})


def nearest_values(free: PlanRequest, axis: str, asked: Any) -> tuple[str, ...]:
    """Return the values of an axis that leave some plan: the nearest below and above a number, else all."""
    values = values_of(space_of(free), axis)
    if axis in CODES:
        return tuple(str(CODES[axis][value]) for value in values)
    if axis == "sequence_parallel":
        return tuple(words((bool(value),)) for value in values)
    below = [value for value in values if value < asked][-1:]
    above = [value for value in values if value > asked][:1]
    for value in _written_otherwise(free, axis):  # between asked and what is known
        if (below or [0])[0] < value < asked and has_plans(held(free, axis, value)):
            below = [value]
        if asked < value < (above or [value + 1])[0] and has_plans(held(free, axis, value)):
            above = [value]
    return tuple(str(value) for value in (*below, *above))


def _written_otherwise(free: PlanRequest, axis: str) -> Sequence[int]:
    """Return values which a space does not list since another says the same: a shard group of all replicas is 0."""
    if axis in ("shard_gpus", "etp"):
        return divisors(free.gpus)
    if axis in ("recompute_layers", "first_stage_layers", "last_stage_layers"):
        return range(1, free.model.layers + free.model.encoder_layers + 1)
    return ()


def held(request: PlanRequest, axis: str, value: Any) -> PlanRequest:
    """Return the request with an axis held to one value."""
    return replace(request, fixed={**request.fixed, axis: (value,)})


def values_of(space: Space, axis: str) -> list[int]:
    """Return all values of an axis in a space, ascending."""
    if axis not in _LISTS:
        return [int(value) for value in np.unique(space.nodes[axis])]
    lists = getattr(space, _LISTS[axis])
    _, entries = lists.multiplied(np.unique(space.nodes[_LISTS[axis]]))
    return [int(value) for value in np.unique(lists.columns[axis][entries])]


def _of_framework(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the framework where it is to blame."""
    limits = request.limits
    if limits.name != ANYTHING.name and has_plans(replace(request, limits=ANYTHING)):
        yield Relaxation(constraint="framework", asked=limits.name)


def _of_gpus(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the number of GPUs where it is to blame, with the nearest below and above that is not."""
    step = math.lcm(*(values[0] for axis, values in request.fixed.items() if axis in ("tp", "pp", "cp", "dp")))
    near = {each * count for each in (step, 1) for count in _around(request.gpus / each, _NEAR)}
    # the further away the rounder: what has many factors of two can be cut in many ways
    steps = [step << power for power in range((request.gpus // step).bit_length())]
    rounder = {each * count for each in steps for count in _around(request.gpus / each, _NEAR_EACH)}
    numbers = near | rounder | {2**power for power in range(MOST_GPUS.bit_length())}
    found = _nearest_numbers(request, "gpus", numbers, most=len(numbers))
    if found:
        yield Relaxation(constraint="gpus", asked=str(request.gpus), nearest=found)


def _of_batch(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield the batch where it is to blame, with the nearest below and above that is not."""
    per_step = math.lcm(*(values[0] for axis, values in request.fixed.items() if axis in ("dp", "micro_batch")))
    steps = {per_step * size for size in divisors(request.gpus)}
    batches = {step * count for step in steps for count in _around(request.global_batch / step, _NEAR_EACH)}
    found = _nearest_numbers(request, "global_batch", batches, most=_TRIED)
    if found:
        yield Relaxation(constraint="global_batch", asked=str(request.global_batch), nearest=found)


def _around(number: float, count: int) -> list[int]:
    """Return so many whole numbers around one, those above 0."""
    middle = round(number)
    return [value for value in range(middle - count // 2, middle + count // 2 + 1) if value > 0]


def _nearest_numbers(request: PlanRequest, name: str, numbers: set[int], *, most: int) -> tuple[str, ...]:
    """Return the nearest of ``numbers`` below and above what was asked that leave some plan."""
    asked = request.gpus if name == "gpus" else request.global_batch
    below = sorted((value for value in numbers if 0 < value < asked), reverse=True)[:most]
    above = sorted(value for value in numbers if asked < value <= MOST_GPUS)[:most]
    found = (next((value for value in side if has_plans(_with(request, name, value))), None) for side in (below, above))
    return tuple(str(value) for value in found if value is not None)


def _with(request: PlanRequest, name: str, value: int) -> PlanRequest:
    """Return the request with another number of GPUs, or of sequences."""
    return replace(request, gpus=value) if name == "gpus" else replace(request, global_batch=value)


def _of_pairs(request: PlanRequest) -> Iterator[Relaxation]:
    """Yield pairs of fixed axes that are to blame together."""
    for pair in combinations(request.fixed, 2):
        if has_plans(without(request, *pair)):
            one, other = (words(request.fixed[axis]) for axis in pair)
            yield Relaxation(constraint=f"{pair[0]} {one} and {pair[1]}", asked=other)


def words(values: tuple[Any, ...]) -> str:
    """Return values as a person writes them."""
    return " or ".join(_word(value) for value in values)


def _word(value: Any) -> str:
    """Return one value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value.value) if isinstance(value, Enum) else str(value)
