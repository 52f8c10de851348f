"""How does what a search found become plain values, and how are those trusted again?

Values come back from files that may be damaged, or written by somebody else: types and ranges are checked first, then
every plan is held against what was asked for, and predicted again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.costmodel.predict import predict
from opsk.costmodel.rules import violations
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.errors import InputError, OpskError
from opsk.planning.search.candidate import Candidate, candidate_of
from opsk.planning.search.found import Found
from opsk.planning.search.front import TOLERANCE, Front
from opsk.planning.search.request import AXES, PlanRequest
from opsk.workload.plan import Plan

LIKE = 1e-6
"""Relative difference that another machine's arithmetic may make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What is written of a `Found`: all but whom it asks."""

    space: int
    evaluated: int
    bounded: int
    feasible: int
    fitting: int
    most: int
    best: tuple[Candidate, ...]
    best_fitting: tuple[Candidate, ...]
    refused: tuple[Candidate, ...]
    front: Front | None


_NAMES = tuple(item.name for item in fields(_Written))
_WRITTEN: TypeAdapter[_Written] = TypeAdapter(_Written)
_LISTS = ("best", "best_fitting", "refused")
_COUNTS = ("space", "evaluated", "bounded", "feasible", "fitting")
_SHOWN = 3


def found_values(found: Found) -> dict[str, Any]:
    """Return what was found as dicts, lists, numbers and text."""
    values: dict[str, Any] = _WRITTEN.dump_python(
        _Written(**{name: getattr(found, name) for name in _NAMES}), mode="json"
    )
    return values


def read_found(values: object, *, requests: Sequence[PlanRequest], space: int, front: bool = False) -> Found:
    """Return what plain values say was found of a part of some requests, with ``space`` plans.

    ``front`` says whether the choices between time, memory, energy and GPUs were asked for.

    Raises
    ------
    InputError
        Names what cannot be: types, counts that do not add up, plans of another request, other times than predicted.
    """
    found = _typed(values)
    raise_if(_miscounted(found, space, requests[0].most))
    raise_if([] if (found.front is not None) is front else ["a front, where none was asked for, or none where one was"])
    by_case = {(request.gpus, request.global_batch): request for request in requests}
    wrong: list[str] = []
    for case, listed in _by_case(found).items():
        if case not in by_case:
            wrong.append(f"a plan for {case[0]} GPUs and batch {case[1]}, which nobody asked for")
            continue
        misfits = [line for one in listed for line in _misfits(one.plan, by_case[case])]
        wrong += misfits or _mispredicted(listed, by_case[case])
    raise_if(wrong)
    raise_if(_misplaced(found))
    return found


def raise_if(wrong: Sequence[str]) -> None:
    """Raise the error that names what is wrong, if anything is."""
    if wrong:
        raise _error(wrong)


def _error(wrong: Sequence[str]) -> InputError:
    """Return the error that names what is wrong, the first few of it."""
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return InputError("; ".join(wrong[:_SHOWN]) + more)


def _typed(values: object) -> Found:
    """Return the value that plain values stand for."""
    if not isinstance(values, Mapping) or set(values) != set(_NAMES):
        raise InputError("what was found has not the keys that it should have")
    try:
        # as JSON, in which strict types have words for enumerations and tuples
        written = _WRITTEN.validate_json(json.dumps(values), strict=True)
        return Found(**{name: getattr(written, name) for name in _NAMES})
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)]
    except (OpskError, ValueError, RecursionError) as error:
        wrong = [f"a plan that cannot be: {error}"]
    raise _error(wrong)


def _miscounted(found: Found, space: int, most: int) -> list[str]:
    """Return what of the counts cannot be."""
    counts = {name: getattr(found, name) for name in _COUNTS}
    wrong = [f"{name} is {count}" for name, count in counts.items() if count < 0]
    if found.space != space:
        wrong.append(f"space is {found.space}, this part has {space} plans")
    if found.evaluated + found.bounded != found.space:
        wrong.append(f"evaluated {found.evaluated} and bounded {found.bounded} are not the space of {found.space}")
    if not found.fitting <= found.feasible <= found.evaluated:
        wrong.append(f"fitting {found.fitting}, feasible {found.feasible}, evaluated {found.evaluated}: one too many")
    if found.most != most:
        wrong.append(f"lists of {found.most} plans, asked for {most}")
    lengths = {name: len(getattr(found, name)) for name in _LISTS}
    wrong += [f"{name} has {length} plans, at most {most}" for name, length in lengths.items() if length > most]
    return wrong


def _by_case(found: Found) -> dict[tuple[int, int], list[Candidate]]:
    """Return all plans that are listed, by their GPUs and batch."""
    listed = [one for name in _LISTS for one in getattr(found, name)]
    cases: dict[tuple[int, int], list[Candidate]] = {}
    for one in (*listed, *(found.front.plans if found.front else ())):
        cases.setdefault((one.plan.gpus, one.plan.global_batch), []).append(one)
    return cases


def _misfits(plan: Plan, request: PlanRequest) -> list[str]:
    """Return in what a plan is not one of those that were asked for."""
    asked = [item.name for item in fields(Plan) if item.name not in (*AXES, "global_batch")]
    wrong = [
        f"a plan with {name} {getattr(plan, name)}, not {getattr(request.template, name)}"
        for name in asked
        if getattr(plan, name) != getattr(request.template, name)
    ]
    values = {axis: getattr(plan, axis) for axis in AXES}
    wrong += [f"a plan with {axis} {value}" for axis, value in values.items() if not request.allows(axis, value)]
    return wrong or [f"a plan that cannot be: {line}" for line in violations(request.model, plan)]


def _mispredicted(listed: Sequence[Candidate], request: PlanRequest) -> list[str]:
    """Return which numbers of plans are not those that are predicted for them here."""
    table = PlanTable.of([one.plan for one in listed])
    predicted = predict(request.model, table, request.cluster, request.efficiency)
    again = [candidate_of(table, predicted, row) for row in range(len(listed))]
    return [line for one, own in zip(listed, again, strict=True) for line in _differences(one, own)]


def _misplaced(found: Found) -> list[str]:
    """Return which plans stand in a list that they do not belong into, or not in their place."""
    front = found.front.plans if found.front else ()
    wrong = [
        f"{name} has a plan that fits with a chance of {one.fit_probability:.3g}"
        for name, listed, low, high in (
            ("best", found.best, math.nextafter(OOM_UP_TO, 1.0), 1.0),
            ("best_fitting", found.best_fitting, FITS_FROM, 1.0),
            ("front", front, math.nextafter(OOM_UP_TO, 1.0), 1.0),
            ("refused", found.refused, 0.0, OOM_UP_TO),
        )
        for one in listed
        if not low <= one.fit_probability <= high
    ]
    for name in ("best", "best_fitting"):
        listed = getattr(found, name)
        in_order = list(listed) == sorted(listed, key=lambda one: one.key)
        if not in_order or len({one.layout for one in listed}) < len(listed):
            wrong.append(f"{name} is not in order, or has a layout twice")
    if found.front and found.front.tolerance != TOLERANCE:
        wrong.append(f"front to within {found.front.tolerance:.3g}, not {TOLERANCE:.3g}")
    return wrong


def _differences(one: Candidate, own: Candidate) -> list[str]:
    """Return which numbers of a plan are not those that are predicted for it here."""
    names = [item.name for item in fields(Candidate) if item.name != "plan"]
    pairs = [(name, getattr(one, name), getattr(own, name)) for name in names]
    return [
        f"{name} of a plan is {said:.6g}, predicted {now:.6g}"
        for name, said, now in pairs
        if not math.isclose(said, now, rel_tol=LIKE, abs_tol=LIKE)
    ]
