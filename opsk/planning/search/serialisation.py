"""Serialises search results to plain values, and reads them back with validation.

Values may come from files that are damaged or written by another party. Types and ranges are checked first; then every
plan is checked against the request, and predicted again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.costmodel.predict import predict
from opsk.costmodel.rules import find_violations
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.errors import InputError, OpskError
from opsk.planning.search.request import AXES, PlanRequest
from opsk.planning.search.result import TOLERANCE, Candidate, Front, SearchResult, build_candidate
from opsk.workload.plan import Plan

LIKE = 1e-6
"""Relative tolerance for the arithmetic of another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SerialisedResult:
    """The serialised fields of a `SearchResult`: all but its callback."""

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


_NAMES = tuple(item.name for item in fields(_SerialisedResult))
_ADAPTER: TypeAdapter[_SerialisedResult] = TypeAdapter(_SerialisedResult)
_LISTS = ("best", "best_fitting", "refused")
_COUNTS = ("space", "evaluated", "bounded", "feasible", "fitting")
_SHOWN = 3


def serialise_result(result: SearchResult) -> dict[str, Any]:
    """Return a search result as dicts, lists, numbers and text."""
    values: dict[str, Any] = _ADAPTER.dump_python(
        _SerialisedResult(**{name: getattr(result, name) for name in _NAMES}), mode="json"
    )
    return values


def parse_result(values: object, *, requests: Sequence[PlanRequest], space: int, front: bool = False) -> SearchResult:
    """Parse and validate the result for a part of some requests, with ``space`` plans.

    ``front`` is whether the trade-offs between time, memory, energy and GPUs were requested.

    Raises
    ------
    InputError
        Lists invalid types, counts that do not add up, plans of another request, and times other than predicted.
    """
    result = _parse_typed(values)
    raise_if(_check_counts(result, space, requests[0].most))
    raise_if(
        [] if (result.front is not None) is front else ["a front, where none was asked for, or none where one was"]
    )
    by_case = {(request.gpus, request.global_batch): request for request in requests}
    wrong: list[str] = []
    for case, listed in _group_by_case(result).items():
        if case not in by_case:
            wrong.append(f"a plan for {case[0]} GPUs and batch {case[1]}, which nobody asked for")
            continue
        misfits = [line for candidate in listed for line in _check_plan(candidate.plan, by_case[case])]
        wrong += misfits or _check_predictions(listed, by_case[case])
    raise_if(wrong)
    raise_if(_check_lists(result))
    return result


def raise_if(wrong: Sequence[str]) -> None:
    """Raise an error that lists the problems, if there are any."""
    if wrong:
        raise _error(wrong)


def _error(wrong: Sequence[str]) -> InputError:
    """Return an error that lists the first few problems."""
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return InputError("; ".join(wrong[:_SHOWN]) + more)


def _parse_typed(values: object) -> SearchResult:
    """Parse plain values into a search result."""
    if not isinstance(values, Mapping) or set(values) != set(_NAMES):
        raise InputError("what was found has not the keys that it should have")
    try:
        # as JSON, since strict mode accepts enumerations and tuples only from JSON
        written = _ADAPTER.validate_json(json.dumps(values), strict=True)
        return SearchResult(**{name: getattr(written, name) for name in _NAMES})
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)]
    except (OpskError, ValueError, RecursionError) as error:
        wrong = [f"a plan that cannot be: {error}"]
    raise _error(wrong)


def _check_counts(result: SearchResult, space: int, most: int) -> list[str]:
    """Return the problems of the counts."""
    counts = {name: getattr(result, name) for name in _COUNTS}
    wrong = [f"{name} is {count}" for name, count in counts.items() if count < 0]
    if result.space != space:
        wrong.append(f"space is {result.space}, this part has {space} plans")
    if result.evaluated + result.bounded != result.space:
        wrong.append(f"evaluated {result.evaluated} and bounded {result.bounded} are not the space of {result.space}")
    if not result.fitting <= result.feasible <= result.evaluated:
        wrong.append(
            f"fitting {result.fitting}, feasible {result.feasible}, evaluated {result.evaluated}: one too many"
        )
    if result.most != most:
        wrong.append(f"lists of {result.most} plans, asked for {most}")
    lengths = {name: len(getattr(result, name)) for name in _LISTS}
    wrong += [f"{name} has {length} plans, at most {most}" for name, length in lengths.items() if length > most]
    return wrong


def _group_by_case(result: SearchResult) -> dict[tuple[int, int], list[Candidate]]:
    """Return all plans that are listed, by their GPUs and batch."""
    listed = [candidate for name in _LISTS for candidate in getattr(result, name)]
    cases: dict[tuple[int, int], list[Candidate]] = {}
    for candidate in (*listed, *(result.front.plans if result.front else ())):
        cases.setdefault((candidate.plan.gpus, candidate.plan.global_batch), []).append(candidate)
    return cases


def _check_plan(plan: Plan, request: PlanRequest) -> list[str]:
    """Return how a plan deviates from the request."""
    names = [item.name for item in fields(Plan) if item.name not in (*AXES, "global_batch")]
    wrong = [
        f"a plan with {name} {getattr(plan, name)}, not {getattr(request.template, name)}"
        for name in names
        if getattr(plan, name) != getattr(request.template, name)
    ]
    values = {axis: getattr(plan, axis) for axis in AXES}
    wrong += [f"a plan with {axis} {value}" for axis, value in values.items() if not request.allows(axis, value)]
    return wrong or [f"a plan that cannot be: {line}" for line in find_violations(request.model, plan)]


def _check_predictions(listed: Sequence[Candidate], request: PlanRequest) -> list[str]:
    """Return the numbers of plans that differ from those predicted here."""
    table = PlanTable.of([candidate.plan for candidate in listed])
    predicted = predict(request.model, table, request.cluster, request.efficiency)
    again = [build_candidate(table, predicted, row) for row in range(len(listed))]
    return [
        line
        for candidate, predicted_here in zip(listed, again, strict=True)
        for line in _list_differences(candidate, predicted_here)
    ]


def _check_lists(result: SearchResult) -> list[str]:
    """Return the plans that are in the wrong list, or at the wrong position."""
    front = result.front.plans if result.front else ()
    wrong = [
        f"{name} has a plan that fits with a chance of {candidate.fit_probability:.3g}"
        for name, listed, low, high in (
            ("best", result.best, math.nextafter(OOM_UP_TO, 1.0), 1.0),
            ("best_fitting", result.best_fitting, FITS_FROM, 1.0),
            ("front", front, math.nextafter(OOM_UP_TO, 1.0), 1.0),
            ("refused", result.refused, 0.0, OOM_UP_TO),
        )
        for candidate in listed
        if not low <= candidate.fit_probability <= high
    ]
    for name in ("best", "best_fitting"):
        listed = getattr(result, name)
        in_order = list(listed) == sorted(listed, key=lambda candidate: candidate.key)
        if not in_order or len({candidate.layout for candidate in listed}) < len(listed):
            wrong.append(f"{name} is not in order, or has a layout twice")
    if result.front and result.front.tolerance != TOLERANCE:
        wrong.append(f"front to within {result.front.tolerance:.3g}, not {TOLERANCE:.3g}")
    return wrong


def _list_differences(candidate: Candidate, predicted_here: Candidate) -> list[str]:
    """Return the numbers of a plan that differ from those predicted here."""
    names = [item.name for item in fields(Candidate) if item.name != "plan"]
    pairs = [(name, getattr(candidate, name), getattr(predicted_here, name)) for name in names]
    return [
        f"{name} of a plan is {reported:.6g}, predicted {now:.6g}"
        for name, reported, now in pairs
        if not math.isclose(reported, now, rel_tol=LIKE, abs_tol=LIKE)
    ]
