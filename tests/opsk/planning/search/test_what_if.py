from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.planning.search.request import MAX_GPUS, PlanRequest
from opsk.planning.search.result import Candidate
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import has_plans
from opsk.planning.search.what_if import (
    MAX_GPU_DOUBLINGS,
    answer,
    can_run,
    fit_relaxations,
    gpus_that_fit,
    least_hungry,
    less_memory,
    list_questions,
)
from opsk.workload.plan import Plan, Recompute, Sharding, Software, States
from tests.opsk.planning.search.small_requests import CLUSTER, all_candidates, request


def by_hand(asked: PlanRequest) -> tuple[Candidate | None, bool]:
    """Return the fastest plan that surely fits, else the fastest that may, found by looking at all."""
    candidates = sorted(all_candidates(asked), key=lambda one: one.key)
    sure = next((one for one in candidates if one.fit_probability >= FITS_FROM), None)
    return sure or next((one for one in candidates if one.fit_probability > OOM_UP_TO), None), sure is not None


def test_every_answer_is_what_looking_at_all_plans_gives():
    asked = request(gpus=4, batch=4, gpu_bytes=14e9)
    for question in list_questions(asked):
        told = answer(question)
        best, fits = by_hand(question.request)
        assert (told.best is None) == (best is None), question.what
        if best is not None:
            assert told.best is not None
            assert (told.best.plan, told.best.step_s) == (best.plan, best.step_s)
            assert told.fits == fits


def test_no_axis_that_is_held_makes_the_best_plan_faster():
    asked = request(gpus=8, batch=16)
    best = best_plans(asked)
    before = best.best_fitting[0]
    for question in list_questions(asked):
        told = answer(question)
        if question.what in asked.fixed or not told.fits or question.what in ("nics", "framework"):
            continue
        assert told.best is not None
        assert told.best.step_s >= before.step_s * (1 - 1e-12), question


def test_the_value_that_the_best_plan_has_changes_nothing():
    asked = request(gpus=8, batch=16)
    before = best_plans(asked).best_fitting[0]
    answers = {(one.what, one.value): one for one in list_questions(asked)}
    for axis, value in (("tp", str(before.plan.tp)), ("sharding", before.plan.sharding.value)):
        told = answer(answers[axis, value])
        assert told.best is not None
        assert told.best.step_s == before.step_s


def test_held_axes_are_not_asked_about():
    held = {"tp": (2,), "recompute": (Recompute.NONE,), "sequence_parallel": (True,)}
    asked = {one.what for one in list_questions(request(fixed=held))}
    assert asked == {"micro_batch", "sharding", "nics", "memory_margin"}


def test_a_framework_is_asked_about_only_where_there_is_one():
    deepspeed = request(
        limits=FRAMEWORKS["deepspeed"].limits,
        template=Plan(global_batch=1, software=Software.DEEPSPEED, states=States.MIXED_16BIT_GRADIENTS),
    )
    assert "framework" in {one.what for one in list_questions(deepspeed)}
    assert "framework" not in {one.what for one in list_questions(request())}
    shardings = {one.value for one in list_questions(deepspeed) if one.what == "sharding"}
    assert shardings <= {each.value for each in deepspeed.limits.shardings}


def test_values_are_words_of_people():
    values = {one.value for one in list_questions(request()) if one.what == "sequence_parallel"}
    assert values == {"yes", "no"}


def test_a_change_that_leaves_no_plan_has_no_answer():
    asked = request(gpus=1, batch=3)
    held = next(one for one in list_questions(asked) if (one.what, one.value) == ("tp", "8"))
    assert not has_plans(held.request)
    assert answer(held).best is None


def test_more_nics_are_never_slower():
    """13 GB of gradients over 2 nodes: twice the NICs cannot make the step longer, half cannot make it shorter."""
    asked = request(gpus=16, batch=16, fixed={"dp": (16,), "sharding": (Sharding.ZERO1,)})
    times = {one.value: answer(one).best for one in list_questions(asked) if one.what == "nics"}
    before = best_plans(asked).best_fitting[0]
    half, twice = times["4 a node"], times["16 a node"]
    assert half is not None
    assert twice is not None
    assert twice.step_s <= before.step_s <= half.step_s


def test_memory_that_is_left_free_is_taken_off_the_gpu():
    capacity = CLUSTER.node.gpu.capacity_bytes
    assert less_memory(CLUSTER, 1e9).node.gpu.capacity_bytes == pytest.approx(capacity - 1e9, abs=1)
    assert less_memory(less_memory(CLUSTER, 1e9), -1e9).node.gpu.capacity_bytes == pytest.approx(capacity, abs=1)


def test_the_fewest_doublings_that_fit_are_found():
    asked = request(gpus=1, batch=16, gpu_bytes=5e9)
    assert not best_plans(asked).best
    found = gpus_that_fit(asked)
    assert found is not None
    gpus, best = found
    assert best.plan.gpus == gpus
    assert best.fit_probability >= FITS_FROM
    fewer = gpus // 2
    while fewer > 1:
        assert not best_plans(replace(asked, gpus=fewer)).best_fitting
        fewer //= 2


def test_no_number_of_gpus_makes_room_in_a_gpu_without_any():
    assert gpus_that_fit(request(gpus=1, batch=1, gpu_bytes=1e6)) is None
    assert 2**MAX_GPU_DOUBLINGS >= 1000


def test_no_more_gpus_are_tried_than_can_be_asked_for():
    assert gpus_that_fit(replace(request(batch=1, gpu_bytes=1e6), gpus=MAX_GPUS)) is None


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
