from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from opsk.planning.search.cases import (
    BATCH_TOLERANCE,
    MAX_BATCHES,
    list_cases,
    nearby_batches,
    search_cases,
    with_gpus,
)
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import build_space
from opsk.workload.plan import Recompute, Sharding
from tests.opsk.planning.search.small_requests import request


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_batches_nearby_are_near_and_can_be_shared(batch: int, gpus: int):
    found = nearby_batches(batch, gpus)
    assert len(found) == len(set(found)) <= MAX_BATCHES
    for one in found:
        assert one != batch
        assert abs(one - batch) <= BATCH_TOLERANCE * batch
        assert one % max(size for size in range(1, gpus + 1) if gpus % size == 0 and one % size == 0) == 0


def test_a_prime_batch_has_neighbours_that_all_replicas_share():
    """61 on 16 GPUs: 64 is shared by 16, 56 by 8, 60 by 4; 48 is too far."""
    assert nearby_batches(61, 16)[0] == 64
    assert {56, 60, 64, 62} == set(nearby_batches(61, 16))


def test_a_batch_that_all_replicas_share_still_has_neighbours_only_within_a_tenth():
    assert nearby_batches(64, 64) == []
    assert nearby_batches(1, 64) == []


def test_the_request_itself_is_the_first_case():
    asked = request(gpus=8, batch=31)
    cases = list_cases(asked, gpu_counts=[4, 8, 16], keep_batch=False)
    assert (cases[0].gpus, cases[0].global_batch) == (8, 31)
    assert list(dict.fromkeys(case.gpus for case in cases)) == [8, 4, 16]
    pairs = [(case.gpus, case.global_batch) for case in cases]
    assert len(set(pairs)) == len(pairs)


def test_a_cluster_is_never_smaller_than_its_job():
    asked = request()
    assert with_gpus(asked, 2048).cluster.gpus >= 2048
    assert with_gpus(asked, 1).cluster == asked.cluster


def test_cases_together_are_what_each_alone_is():
    held = {"sharding": (Sharding.ZERO1,), "recompute": (Recompute.NONE,)}
    asked = request(gpus=4, batch=7, fixed=held)
    cases = list_cases(asked, gpu_counts=[2, 8], keep_batch=False)
    *_, together = search_cases(cases, front=True)
    each = [best_plans(case) for case in cases]
    for name in ("space", "evaluated", "feasible", "fitting"):
        assert getattr(together, name) == sum(getattr(one, name) for one in each)
    assert together.best[0] == min((one.best[0] for one in each if one.best), key=lambda one: one.key)
    assert together.space == sum(build_space(case).size for case in cases)
    # what is refused would be faster by the sequence, whatever its batch
    for one in together.refused:
        assert one.key < together.best[0].key
    assert together.front is not None
    assert {one.plan.gpus for one in together.front.plans} == {2, 4, 8}


def test_refused_plans_of_a_smaller_batch_are_compared_by_the_sequence():
    asked = request(gpus=2, batch=31, gpu_bytes=14e9)
    *_, found = search_cases(list_cases(asked, keep_batch=False))
    first = found.best[0].step_s / found.best[0].plan.global_batch
    assert found.refused
    for one in found.refused:
        assert one.step_s / one.plan.global_batch < first
    assert len({one.layout for one in found.refused}) == len(found.refused)


def test_a_case_without_plans_adds_nothing():
    asked = request(gpus=4, batch=4)
    *_, alone = search_cases([asked])
    *_, both = search_cases([asked, replace(asked, gpus=7, global_batch=3, fixed={"dp": (7,)})])
    assert (both.space, both.best) == (alone.space, alone.best)
