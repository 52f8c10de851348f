from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.uncertainty.verdict import OOM_UP_TO
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.planning.search.fitting import can_run, fit_relaxations, least_hungry
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.what_if import less_memory
from opsk.workload.plan import Plan, Recompute, Sharding, Software, States
from tests.opsk.planning.search.small_requests import all_candidates, request

TIGHT = 7.5e9
"""Bytes of a GPU that holds the small model only where states are shared."""


def runs(asked: PlanRequest) -> bool:
    """Return whether some plan can run, found by looking at all."""
    return any(one.fit_probability > OOM_UP_TO for one in all_candidates(asked))


@pytest.mark.parametrize("gpu_bytes", [1e9, 3e9, 5e9, 8e9, 14e9, 60e9])
def test_some_plan_runs_where_looking_at_all_finds_one(gpu_bytes: float):
    asked = request(gpus=4, batch=4, gpu_bytes=gpu_bytes)
    assert can_run(asked) == runs(asked)


def test_what_is_named_lets_plans_run_and_what_is_not_does_not():
    fixed = {"sharding": (Sharding.NONE,), "tp": (1,), "pp": (1,), "micro_batch": (2,)}
    asked = request(gpus=4, batch=8, gpu_bytes=TIGHT, fixed=fixed)
    assert not runs(asked)
    found = {one.constraint: one for one in fit_relaxations(asked)}
    assert found
    for axis in fixed:
        free = {name: values for name, values in fixed.items() if name != axis}
        assert (axis in found) == runs(replace(asked, fixed=free)), axis
        if axis == "sharding" and axis in found:
            for value in found[axis].nearest:
                assert runs(replace(asked, fixed={**free, axis: (Sharding(value),)}))
            continue
        numbers = [int(value) for value in found[axis].nearest] if axis in found else []
        for value in numbers:
            assert runs(replace(asked, fixed={**free, axis: (value,)}))
        for value in range(fixed[axis][0] + 1, max(numbers, default=0)):
            assert not runs(replace(asked, fixed={**free, axis: (value,)}))  # nothing nearer does


def test_a_framework_that_stands_in_the_way_is_named():
    template = Plan(global_batch=1, software=Software.PYTORCH, states=States.AUTOCAST)
    asked = request(gpus=4, batch=4, limits=FRAMEWORKS["fsdp"].limits, template=template)
    for gpu_bytes in (4e9, 6e9, 8e9):
        tight = replace(asked, cluster=request(gpu_bytes=gpu_bytes).cluster)
        if runs(tight):
            continue
        named = "framework" in {one.constraint for one in fit_relaxations(tight)}
        assert named == runs(replace(tight, limits=request().limits))


@pytest.mark.parametrize("share", [0.97, 0.99, 0.995])
def test_the_largest_margin_that_leaves_room_is_the_largest(share: float):
    whole = request(gpus=4, batch=4, fixed={"recompute": (Recompute.NONE,)})
    margin = share * whole.cluster.node.gpu.capacity_bytes
    asked = replace(whole, cluster=less_memory(whole.cluster, margin))
    assert not runs(asked)
    (named,) = [one for one in fit_relaxations(asked, margin_bytes=margin) if one.constraint == "memory_margin"]
    percent = int(named.nearest[0].rstrip("%"))
    capacity = whole.cluster.node.gpu.capacity_bytes
    for more, expected in ((0, True), (1, False)):
        cluster = less_memory(whole.cluster, (percent + more) / 100 * capacity)
        assert runs(replace(whole, cluster=cluster)) == expected


def test_the_leanest_plan_is_within_a_twentieth_of_the_leanest_that_there_is():
    asked = request(gpus=2, batch=4, gpu_bytes=1e9)
    assert not runs(asked)
    found = least_hungry(asked)
    assert found is not None
    leanest = min(one.needed_bytes for one in all_candidates(asked))
    assert leanest <= found.needed_bytes <= 1.25 * leanest  # a twentieth of memory, and the range within that may run
