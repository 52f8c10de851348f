from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.costmodel.uncertainty.verdict import OOM_UP_TO
from opsk.planning.search.result import LIKE_MEMORY, LIKE_TIME, TOLERANCE, Candidate, Front, complexity, select_distinct
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space
from opsk.workload.plan import Plan, Schedule
from tests.opsk.planning.search.random_requests import requests
from tests.opsk.planning.search.small_requests import all_candidates, request

ONE = Candidate(
    plan=Plan(global_batch=8), step_s=1.0, device_bytes=1e9, needed_bytes=1e9, step_j=1.0, fit_probability=1.0
)


def test_plans_that_a_person_could_not_tell_apart_are_one_choice():
    near = replace(ONE, step_s=1.0 + 0.9 * LIKE_TIME, device_bytes=1e9 * (1 + 0.9 * LIKE_MEMORY))
    slower, larger = replace(ONE, step_s=1.0 + 2 * LIKE_TIME), replace(ONE, device_bytes=1e9 * (1 + 2 * LIKE_MEMORY))
    assert select_distinct([ONE, near], 5) == [ONE]
    assert select_distinct([ONE, slower, larger], 5) == [ONE, slower, larger]
    assert select_distinct([ONE, slower, larger], 2) == [ONE, slower]
    assert select_distinct([], 5) == []


@given(st.lists(st.builds(lambda s, b: replace(ONE, step_s=s, device_bytes=b),
                          st.floats(1, 1.01), st.floats(1e9, 1.1e9)), max_size=20), st.integers(1, 8))  # fmt: skip
def test_the_first_is_always_kept_and_no_two_are_alike(candidates: list[Candidate], most: int):
    kept = select_distinct(candidates, most)
    assert kept[:1] == candidates[:1]
    assert len(kept) <= most
    for place, one in enumerate(kept):
        for other in kept[:place]:
            same_time = abs(one.step_s - other.step_s) <= LIKE_TIME * other.step_s
            assert not (same_time and abs(one.device_bytes - other.device_bytes) <= LIKE_MEMORY * other.device_bytes)


def test_of_like_times_the_simpler_plan_comes_first():
    plain = ONE.plan
    for harder in (
        replace(plain, tp=2),
        replace(plain, micro_batch=2),
        replace(plain, pp=2, schedule=Schedule.ZERO_BUBBLE),
        replace(plain, recompute="full", recompute_layers=1),
    ):
        assert complexity(harder) > complexity(plain)
        assert replace(ONE, plan=harder).key > ONE.key


def test_batches_of_other_sizes_are_compared_by_the_sequence():
    """16 sequences in 1.9 s beat 8 in 1 s."""
    larger = replace(ONE, plan=Plan(global_batch=16), step_s=1.9)
    assert larger.key < ONE.key


def test_no_two_plans_of_a_space_have_the_same_key():
    candidates = all_candidates(request(gpus=4, batch=4))
    assert len({one.key for one in candidates}) == len(candidates)


_WALKED = 20_000
"""Larger spaces are not walked here."""


def costs(one: Candidate) -> tuple[float, ...]:
    """Return what counts: time and energy of a sequence, memory, GPUs; the definition, written down once more."""
    batch = one.plan.global_batch
    return one.step_s / batch, one.needed_bytes, one.step_j / batch, one.plan.gpus


def beats(one: Candidate, other: Candidate) -> bool:
    pairs = list(zip(costs(one), costs(other), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def assert_is_front(front: Front, feasible: list[Candidate]) -> None:
    """Every feasible plan has one on the front that is hardly worse; none of the front beats another."""
    for one in feasible:
        limits = [cost * (1 + TOLERANCE) * (1 + 1e-12) for cost in costs(one)]
        assert any(all(a <= b for a, b in zip(costs(own), limits, strict=True)) for own in front.plans), one
    plans = {repr(one.plan) for one in feasible}
    for one in front.plans:
        assert repr(one.plan) in plans
        assert not any(beats(other, one) for other in front.plans)
    assert [one.key for one in front.plans] == sorted(one.key for one in front.plans)


def feasible_of(candidates: list[Candidate]) -> list[Candidate]:
    return [one for one in candidates if one.fit_probability > OOM_UP_TO]


def test_every_feasible_plan_of_a_small_space_is_covered():
    asked = request(gpus=4, batch=4, gpu_bytes=12e9)
    feasible = feasible_of(all_candidates(asked))
    assert feasible
    for walk in (True, False):
        *_, found = search_space(build_space(asked), walk=walk, front=True)
        assert found.front is not None
        assert_is_front(found.front, feasible)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(asked=requests(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 4, 6])))
def test_whatever_is_asked_the_front_covers_it(asked):
    space = build_space(asked)
    if space.size > _WALKED:
        return
    *_, found = search_space(space, walk=False, front=True)
    assert found.front is not None
    assert_is_front(found.front, feasible_of(all_candidates(asked)))


CANDIDATES = st.builds(
    Candidate,
    plan=st.builds(Plan, dp=st.sampled_from([1, 2, 4]), global_batch=st.sampled_from([4, 8])),
    step_s=st.sampled_from([1.0, 1.005, 1.02, 2.0, 4.0]),
    device_bytes=st.just(1.0),
    needed_bytes=st.sampled_from([1.0, 1.004, 1.5, 3.0]),
    step_j=st.sampled_from([10.0, 10.05, 20.0]),
    fit_probability=st.just(1.0),
)


@given(st.lists(CANDIDATES, max_size=12), st.lists(CANDIDATES, max_size=12))
def test_fronts_of_parts_join_to_a_front(some: list[Candidate], others: list[Candidate]):
    """Covering is kept by joining, but tolerances add up: a part's 1 % and the whole's."""
    joined = Front().merge(some).merge(Front().merge(others).plans)
    for one in (*some, *others):
        limits = [cost * (1 + TOLERANCE) ** 2 * (1 + 1e-12) for cost in costs(one)]
        assert any(all(a <= b for a, b in zip(costs(own), limits, strict=True)) for own in joined.plans)
    for one in joined.plans:
        assert not any(beats(other, one) for other in joined.plans)


def test_a_plan_that_is_hardly_better_is_no_choice():
    one = Candidate(
        plan=Plan(global_batch=4), step_s=1.0, device_bytes=1.0, needed_bytes=1.0, step_j=1.0, fit_probability=1.0
    )
    front = Front().merge([one])
    assert front.merge([replace(one, step_s=0.995)]).plans == (one,)
    assert len(front.merge([replace(one, step_s=1.5, needed_bytes=0.9)]).plans) == 2
    assert front.merge([replace(one, step_s=0.9)]).plans == (replace(one, step_s=0.9),)
