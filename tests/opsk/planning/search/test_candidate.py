from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from opsk.planning.search.candidate import LIKE_MEMORY, LIKE_TIME, Candidate, complexity, select_distinct
from opsk.workload.plan import Plan, Schedule
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
