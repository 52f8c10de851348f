from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from opsk.frameworks.catalog import FRAMEWORKS
from opsk.planning.search.relaxations import Relaxation, broken_rules, format_values, free_axes, relaxations
from opsk.planning.search.request import MAX_GPUS, PlanRequest
from opsk.planning.search.space import has_plans
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding, Software, States
from tests.opsk.planning.search.random_requests import FIXED, requests
from tests.opsk.planning.search.small_requests import MODEL, request

_NUMBERS = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "shard_gpus", "recompute_layers", "micro_batch")
_MOST = 64
"""Brute force tries numbers up to here."""


def named(asked: PlanRequest) -> dict[str, Relaxation]:
    return {one.constraint: one for one in relaxations(asked)}


def changed(asked: PlanRequest, name: str, value: Any) -> PlanRequest:
    """Return the request with one thing that it asks for changed."""
    if name == "gpus":
        return replace(asked, gpus=int(value))
    if name == "global_batch":
        return replace(asked, global_batch=int(value))
    kinds = {"sharding": Sharding, "recompute": Recompute, "schedule": Schedule}
    if name in kinds:
        value = kinds[name](value)
    elif name == "sequence_parallel":
        value = value == "yes"
    else:
        value = int(value)
    return replace(asked, fixed={**asked.fixed, name: (value,)})


def brute_nearest(asked: PlanRequest, name: str) -> tuple[str, ...]:
    """Return the nearest numbers below and above that leave plans, found by trying all in turn."""
    if name in ("gpus", "global_batch"):
        given = getattr(asked, name)
        low = 1
    else:
        given, low = asked.fixed[name][0], 0 if name in ("recompute_layers", "shard_gpus") else 1
    below = next((n for n in range(given - 1, low - 1, -1) if legal(asked, name, n)), None)
    above = next((n for n in range(given + 1, _MOST + 1) if legal(asked, name, n)), None)
    return tuple(str(n) for n in (below, above) if n is not None)


def legal(asked: PlanRequest, name: str, number: int) -> bool:
    return has_plans(changed(asked, name, number))


@pytest.mark.parametrize(
    ("fixed", "constraint", "nearest"),
    [
        ({"tp": (3,)}, "tp", ("2", "4")),
        ({"tp": (32,)}, "tp", ("8",)),
        ({"pp": (3,)}, "pp", ("2", "4")),
        ({"dp": (5,)}, "dp", ("4", "8")),
        ({"micro_batch": (3,)}, "micro_batch", ("2", "4")),
        ({"cp": (16,)}, "cp", ("8",)),
    ],
)
def test_one_axis_to_blame_is_named_with_its_nearest_values(
    fixed: dict[str, Any], constraint: str, nearest: tuple[str, ...]
):
    """8 GPUs, 16 sequences: sizes divide 8, micro-batches 16."""
    found = named(request(fixed=fixed))
    assert found[constraint].asked == str(fixed[constraint][0])
    assert found[constraint].nearest == nearest


def test_words_to_blame_come_with_all_that_are_possible():
    found = named(request(fixed={"pp": (1,), "schedule": (Schedule.ZERO_BUBBLE,)}))
    assert found["schedule"].nearest == ("1f1b",)
    assert found["pp"].nearest == ("2",)


def test_a_framework_to_blame_is_named():
    asked = request(
        limits=FRAMEWORKS["fsdp"].limits,
        template=Plan(global_batch=1, software=Software.PYTORCH, states=States.AUTOCAST),
    )
    found = named(replace(asked, fixed={"pp": (2,)}))
    assert found["framework"].asked == "fsdp"
    assert found["pp"].nearest == ("1",)


def test_gpus_and_batch_that_cannot_be_shared_are_both_named():
    """7 divides neither heads nor layers nor tokens, so that dp is 7: 16 sequences cannot be shared so."""
    found = named(request(gpus=7, batch=16, fixed={"pp": (1,)}))
    assert found["gpus"].nearest == ("4", "8")
    assert found["global_batch"].nearest == ("14", "21")


def test_far_from_any_number_that_can_be_shared_the_nearest_is_still_found():
    """999 = 27 x 37 GPUs are no multiple of tp 4; looking at all numbers in turn takes a second."""
    asked = request(gpus=999, batch=8, fixed={"tp": (4,)})
    below = next(n for n in range(998, 0, -1) if legal(asked, "gpus", n))
    above = next(n for n in range(1000, 2000) if legal(asked, "gpus", n))
    assert named(asked)["gpus"].nearest == (str(below), str(above))


@pytest.mark.parametrize("name", ["gpus", "global_batch"])
def test_nothing_is_offered_beyond_what_can_be_asked(name: str):
    sizes = {"gpus": 8, "global_batch": 8, name: MAX_GPUS}
    asked = replace(request(fixed={"tp": (7,)}), **sizes)
    assert all(int(value) <= MAX_GPUS for one in relaxations(asked) for value in one.nearest)


def test_two_axes_that_are_to_blame_together_are_named_as_a_pair():
    found = relaxations(request(fixed={"tp": (3,), "pp": (5,)}))
    pairs = [one for one in found if " and " in one.constraint]
    singles = [one for one in found if " and " not in one.constraint]
    assert pairs or singles
    for one in pairs:
        assert (one.constraint, one.asked) == ("tp 3 and pp", "5")


def test_what_no_axis_can_mend_is_told_as_such():
    asked = request(template=Plan(global_batch=1, precision="fp8"), limits=FRAMEWORKS["deepspeed"].limits)
    if not has_plans(asked):
        assert broken_rules(asked)


def test_a_request_with_plans_breaks_no_rule():
    assert broken_rules(request()) == ()


def test_values_are_written_as_people_write_them():
    assert format_values((True, False)) == "yes or no"
    assert format_values((Sharding.ZERO1, 4)) == "zero1 or 4"


FEW = 15
"""Examples: each is hundreds of searches; so many notice a number skipped next to the one asked for."""
EMPTY = st.sampled_from(["tp", "pp", "cp", "dp", "micro_batch", "vpp", "shard_gpus", "recompute_layers"])


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
@given(
    gpus=st.integers(1, 16),
    batch=st.integers(1, 16),
    fixed=st.dictionaries(EMPTY, st.integers(1, 9).map(lambda size: (size,)), min_size=1, max_size=2),
)
def test_every_relaxation_leaves_plans_and_the_nearest_is_the_nearest(
    gpus: int, batch: int, fixed: dict[str, tuple[int]]
):
    asked = request(gpus=gpus, batch=batch, fixed=fixed, model=replace(MODEL, layers=6))
    assume(not has_plans(asked))
    assert_true(asked)
    for name, one in named(asked).items():
        if name in (*_NUMBERS, "gpus", "global_batch"):
            near = tuple(value for value in one.nearest if int(value) <= _MOST)
            assert near == brute_nearest(asked, name), name
    for axis in fixed:  # none is left out that alone is to blame
        assert (axis in named(asked)) == has_plans(free_axes(asked, axis))


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
@given(asked=requests(st.integers(1, 12), st.integers(1, 12)), data=st.data())
def test_whatever_is_asked_what_is_named_is_true(asked: PlanRequest, data: st.DataObject):
    more = data.draw(st.dictionaries(st.sampled_from(sorted(FIXED)), st.just(None), max_size=2))
    fixed = {axis: (data.draw(FIXED[axis]),) for axis in more}
    asked = replace(asked, fixed={**asked.fixed, **fixed})
    assume(not has_plans(asked))
    assert_true(asked)


def assert_true(asked: PlanRequest) -> None:
    """Everything that is named leaves plans, with every value that is offered."""
    for one in relaxations(asked):
        if " and " in one.constraint:
            first, _, other = one.constraint.partition(" and ")
            assert has_plans(free_axes(asked, first.split()[0], other))
            continue
        for value in one.nearest:
            assert has_plans(changed(asked, one.constraint, value)), (one, value)
        if one.constraint in asked.fixed:
            assert has_plans(free_axes(asked, one.constraint))
