"""Parts of a search, joined, are the search: the same fastest plans, and every plan counted once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.hardware.catalog import cluster
from opsk.planning.search.parts import first_look, join_all, part_sizes, search_part, select_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import list_cases, search_cases
from opsk.planning.search.space import build_space
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_model
from tests.opsk.planning.search.random_requests import requests

SMALL = requests(st.sampled_from([1, 2, 4, 8, 12]), st.sampled_from([1, 4, 6, 8]))
PARTS = st.integers(1, 5)
FEW = 12
"""Examples: each is several whole searches; so many notice a node lost at the end of a part."""


def last(found: Any) -> SearchResult:
    return deque(found, maxlen=1)[0]


def in_parts(asked: Sequence[PlanRequest], parts: int, **how: Any) -> SearchResult:
    return join_all(last(search_part(asked, number, parts, **how)) for number in range(parts))


def plans(found: SearchResult) -> list[list[Plan]]:
    """The plans listed; their times differ in the last bits, by the other rows of the tables they were predicted in."""
    return [[one.plan for one in listed] for listed in (found.best, found.best_fitting)]


def llama(gpus: int = 64, batch: int = 128, **fields: Any) -> PlanRequest:
    model = public_model("llama-3-70b")
    assert model is not None
    plan = Plan(global_batch=batch)
    machine = cluster("superpod-h100")
    return PlanRequest(model=model, cluster=machine, template=plan, gpus=gpus, global_batch=batch, **fields)


@settings(max_examples=30)
@given(SMALL, PARTS)
def test_every_node_is_in_one_part(request_: PlanRequest, parts: int) -> None:
    space = build_space(request_)
    nodes = [select_part(space, number, parts).nodes for number in range(parts)]
    together = np.sort(np.concatenate([np.stack([*columns.values()]) for columns in nodes], axis=1))
    assert together.shape[1] == len(space)
    assert sum(part_sizes([request_], parts)) == space.size
    assert np.array_equal(together, np.sort(np.stack([*space.nodes.values()])))


@settings(max_examples=FEW)
@given(SMALL, PARTS)
def test_parts_that_evaluate_all_are_the_whole(request_: PlanRequest, parts: int) -> None:
    whole, joined = last(search_cases([request_], walk=True)), in_parts([request_], parts, walk=True)
    counts = ("space", "evaluated", "bounded", "feasible", "fitting")
    assert [getattr(joined, name) for name in counts] == [getattr(whole, name) for name in counts]
    assert plans(joined) == plans(whole)


@settings(max_examples=FEW)
@given(SMALL, PARTS)
def test_parts_that_bound_each_other_find_what_a_walk_finds(request_: PlanRequest, parts: int) -> None:
    whole, joined = last(search_cases([request_], walk=True)), in_parts([request_], parts, walk=False)
    assert joined.space == whole.space
    assert joined.is_whole
    assert plans(joined) == plans(whole)


@pytest.mark.parametrize("parts", [2, 7])
def test_a_large_space_in_parts_is_bounded_and_has_the_same_plans(parts: int) -> None:
    whole, joined = last(search_cases([llama()])), in_parts([llama()], parts)
    assert plans(joined) == plans(whole)
    assert joined.is_whole
    assert joined.space == whole.space > joined.evaluated


def test_more_parts_than_nodes_are_the_whole_with_some_empty() -> None:
    request = llama(2, 2, fixed={"tp": (2,)}, most=3)
    parts = len(build_space(request)) + 3
    assert 0 in part_sizes([request], parts)
    assert plans(in_parts([request], parts)) == plans(last(search_cases([request])))


def test_several_numbers_of_gpus_and_batches_in_parts_are_the_whole() -> None:
    asked = list_cases(llama(8, 60, fixed={"tp": (8,), "cp": (1,)}), gpu_counts=[16], keep_batch=False)
    assert len(asked) >= 2
    whole, joined = last(search_cases(asked)), in_parts(asked, 3)
    assert plans(joined) == plans(whole)
    assert joined.space == whole.space == sum(part_sizes(asked, 3))


def test_a_front_in_parts_leaves_no_plan_out_by_more_than_both_tolerances() -> None:
    """What one part leaves out is within 1 % of a plan of its front, and that one within 1 % of the joined front's."""
    request = llama(16, 32, fixed={"tp": (8,)})
    whole, joined = last(search_cases([request], front=True)), in_parts([request], 3, front=True)
    assert whole.front
    assert joined.front
    for one in whole.front.plans:
        near = [
            other
            for other in joined.front.plans
            if other.step_s <= one.step_s * 1.021
            and other.needed_bytes <= one.needed_bytes * 1.021
            and other.step_j <= one.step_j * 1.021
        ]
        assert near, one


def test_the_first_look_counts_nothing_and_is_the_same_every_time() -> None:
    space = build_space(llama())
    look = first_look(space)
    assert (look.space, look.evaluated, look.bounded) == (0, 0, 0)
    assert look.best == first_look(space).best != ()
