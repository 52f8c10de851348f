"""When is a part a lemon? Expected numbers by exact Poisson bounds (chi-square tables), the formula's within 0.02."""

from __future__ import annotations

from collections import Counter

import pytest

from opsk.postmortem.evidence.recurrence import Known, KnownFailure, compute_recurrence, lemon_score, lower_bound
from opsk.postmortem.values import Cause, FailureClass, JobFacts, Place, Report

DAY_S = 86400.0


@pytest.mark.parametrize(("count", "exact"), [(1, 0.0513), (2, 0.3554), (3, 0.8177), (5, 1.9701), (10, 5.4254)])
def test_what_is_certain_of_a_count(count: int, exact: float) -> None:
    assert lower_bound(count) == pytest.approx(exact, abs=0.02)


def test_more_failures_score_higher_and_one_proves_nothing() -> None:
    scores = [lemon_score(count, 0.1) for count in range(8)]
    assert scores == sorted(scores)
    assert scores[1] < 1 < 3 < scores[3]


def report(failure: FailureClass = FailureClass.GPU_HARDWARE, place: Place | None = None) -> Report:
    where = Place(node="n5", gpu_index=3) if place is None else place
    cause = Cause(failure=failure, what="", where=where, confidence=0.9)
    return Report(state="FAILED", job=JobFacts(job_id="99", user="ada"), root=cause)


def failed(number: int, node: str = "n5", what: str = "", failure: str = "xid", user: str = "") -> KnownFailure:
    return KnownFailure(at_s=number * DAY_S, failure=failure, what=what or f"gpu:{node}/3", node=node, user=user)


def test_a_gpu_that_fails_again_and_again_is_a_lemon() -> None:
    jobs = Counter({f"n{number}": 100 for number in range(100)})
    known = Known(failures=tuple(failed(n) for n in range(4)), jobs_of_node=jobs, jobs=1000)
    gpu, node = compute_recurrence(report(), known, days=30)
    assert (gpu.subject, node.subject, gpu.failures, gpu.jobs) == ("gpu:n5/3", "node:n5", 5, 100)
    assert gpu.lemon > 3
    assert "5 failures within 30 days" in gpu.text


def test_a_node_that_fails_as_all_others_do_is_none() -> None:
    jobs = Counter({f"n{number}": 100 for number in range(4)})
    every = tuple(failed(day, f"n{node}") for day in range(5) for node in range(4))
    (_, node) = compute_recurrence(
        report(place=Place(node="n3", gpu_index=3)), Known(failures=every, jobs_of_node=jobs), days=30
    )
    assert node.lemon < 1


def test_a_busy_node_may_fail_more_often() -> None:
    few = Counter({"n5": 10, **{f"m{number}": 10 for number in range(99)}})
    many = Counter({"n5": 1000, **{f"m{number}": 10 for number in range(99)}})
    failures = tuple(failed(day) for day in range(4))
    seldom, often = (
        compute_recurrence(report(), Known(failures=failures, jobs_of_node=each), days=30)[0].lemon
        for each in (few, many)
    )
    assert often < seldom / 10


def test_a_first_failure_is_no_recurrence() -> None:
    assert compute_recurrence(report(), Known(), days=30) == ()


def test_what_is_told_twice_of_one_job_counts_once() -> None:
    told = KnownFailure(at_s=1.0, failure="xid", what="gpu:n5/3", node="n5", job="7")
    (gpu, _) = compute_recurrence(report(), Known(failures=(told, told)), days=30)
    assert gpu.failures == 2


def test_a_users_failures_count_by_kind() -> None:
    known = Known(
        failures=tuple(failed(n, what=f"job:{n}", failure="gpu_memory", user="ada") for n in range(5)),
        jobs_of_user=Counter({"ada": 10, "bob": 990}), jobs=1000,
    )  # fmt: skip
    (user,) = compute_recurrence(report(FailureClass.GPU_MEMORY), known, days=7)
    assert (user.subject, user.failures, user.jobs) == ("user:ada", 6, 10)
    assert user.lemon > 3
