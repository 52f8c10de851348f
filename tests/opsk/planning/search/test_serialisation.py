"""What was written of a search comes back as it was, or is refused for a reason."""

from __future__ import annotations

import copy
import json
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.hardware.catalog import cluster
from opsk.planning.search.parts import part_sizes, search_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import list_cases
from opsk.planning.search.serialisation import parse_result, serialise_result
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model

MODEL = public_model("llama-3-8b")
assert MODEL is not None
REQUEST = PlanRequest(
    model=MODEL,
    cluster=cluster("superpod-h100"),
    template=Plan(global_batch=16),
    gpus=8,
    global_batch=16,
    fixed={"cp": (1,), "schedule": ("1f1b",)},
)
SPACE = part_sizes([REQUEST], 2)[1]


def searched_part(front: bool = False) -> SearchResult:
    return deque(search_part([REQUEST], 1, 2, front=front), maxlen=1)[0]


FOUND = searched_part()
VALUES = json.loads(json.dumps(serialise_result(FOUND)))


def read(values: Any, **how: Any) -> SearchResult:
    return parse_result(values, **{"requests": [REQUEST], "space": SPACE, **how})


def test_what_is_written_comes_back() -> None:
    assert FOUND.best
    assert FOUND.best_fitting
    assert FOUND.refused
    assert read(VALUES) == FOUND


def test_a_front_comes_back() -> None:
    found = searched_part(front=True)
    assert found.front
    assert len(found.front.plans) > 1
    assert read(json.loads(json.dumps(serialise_result(found))), front=True) == found


def test_plans_of_all_cases_come_back() -> None:
    cases = list_cases(REQUEST, gpu_counts=[16])
    found = deque(search_part(cases, 0, 1), maxlen=1)[0]
    values = json.loads(json.dumps(serialise_result(found)))
    assert read(values, requests=cases, space=sum(part_sizes(cases, 1))) == found
    with pytest.raises(InputError, match="16 GPUs and batch 16, which nobody asked for"):
        read(values, space=sum(part_sizes(cases, 1)))


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("space",), SPACE + 1, "this part has"),
        (("evaluated",), 3, "are not the space"),
        (("feasible",), SPACE + 1, "one too many"),
        (("fitting",), -1, "fitting is -1"),
        (("fitting",), True, "fitting"),
        (("evaluated",), "7", "evaluated"),
        (("most",), 50, "lists of 50 plans, asked for 5"),
        (("best",), None, "best"),
        (("best", 0, "step_s"), 1e-3, "step_s of a plan is 0.001, predicted"),
        (("best", 0, "step_s"), float("nan"), "step_s of a plan is nan"),
        (("best", 0, "fit_probability"), 1.0, "fit_probability of a plan"),
        (("best", 0, "plan", "tp"), 0, "tp is 0"),
        (("best", 0, "plan", "tp"), 3, "nobody asked for"),
        (("best", 0, "plan", "tp"), 10**30, "tp is 1e"),
        (("best", 0, "plan", "global_batch"), 32, "nobody asked for"),
        (("best", 0, "plan", "optimizer"), "sgd", "optimizer sgd, not adam"),
        (("best", 0, "plan", "sharding"), "zero9", "sharding"),
        (("best", 0, "plan", "schedule"), "gpipe", "schedule gpipe"),
        (("front",), {"plans": [], "tolerance": 1.0}, "a front, where none was asked for"),
    ],
)
def test_what_cannot_be_is_refused(path: tuple[Any, ...], value: Any, why: str) -> None:
    values = copy.deepcopy(VALUES)
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match=why):
        read(values)


def test_lists_must_be_in_order_and_hold_what_belongs_there() -> None:
    backwards = {**VALUES, "best": VALUES["best"][::-1]}
    with pytest.raises(InputError, match="best is not in order"):
        read(backwards)
    with pytest.raises(InputError, match="best has a plan that fits with a chance of"):
        read({**VALUES, "best": VALUES["refused"][:1]})
    with pytest.raises(InputError, match="best has 6 plans, at most 5"):
        read({**VALUES, "best": VALUES["best"][:1] * 6})


@pytest.mark.parametrize("values", [None, [], {}, {**VALUES, "more": 1}, {**VALUES, "best": [[[]]]}, "x", 1e400])
def test_other_shapes_are_refused(values: Any) -> None:
    with pytest.raises(InputError):
        read(values)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@settings(max_examples=80)
@given(st.data())
def test_any_damage_is_refused_or_changes_nothing_that_counts(data: st.DataObject) -> None:
    """One value anywhere is another one: what is read is refused, or has the same plans and numbers as before."""
    values = copy.deepcopy(VALUES)
    place: Any = values
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 9)) == 0:
            break
        place = place[key]
    place[key] = data.draw(SCALARS)
    try:
        found = read(values)
    except InputError:
        return
    assert (found.space, found.evaluated + found.bounded) == (FOUND.space, FOUND.space)
    for name in ("best", "best_fitting", "refused"):
        for one, own in zip(getattr(found, name), getattr(FOUND, name), strict=True):
            assert one.plan == own.plan
            assert one.step_s == pytest.approx(own.step_s, rel=1e-5)
