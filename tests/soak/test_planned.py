"""A soak is the same for the same seed, and has what was asked for."""

from __future__ import annotations

import pytest

from tests.soak.kinds import KINDS
from tests.soak.planned import Plan, planned

FAULTS = ("advisor killed", "disk full", "fail-over")


def plan(seed: int, *, jobs: int = 1000, span_s: float = 1200.0, fault_count: int = 30) -> Plan:
    return planned(
        seed, jobs=jobs, span_s=span_s, alone=("n6", "n7"), users=4, faults=FAULTS, fault_count=fault_count
    )  # fmt: skip


def test_it_follows_from_the_seed() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize("jobs", [60, 61, 64, 1000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_has_as_many_jobs_as_were_asked_for_and_each_kind(jobs: int, seed: int) -> None:
    found = plan(seed, jobs=jobs, span_s=110.0 if jobs < 100 else 1200.0)
    assert found.job_count == jobs
    assert {job.kind.name for job in found.jobs} >= {kind.name for kind in KINDS}


def test_no_two_jobs_have_one_name_and_none_comes_too_late() -> None:
    found = plan(1)
    assert len({job.name for job in found.jobs}) == len(found.jobs)
    assert all(0 <= job.at_s <= found.span_s for job in found.jobs)


def test_what_takes_a_victims_node_comes_right_behind_it() -> None:
    for node in ("n6", "n7"):
        names = [job.kind.name for job in plan(1).jobs if job.node == node]
        assert [names[at - 1] for at, name in enumerate(names) if name == "urgent"] == ["victim"] * names.count(
            "urgent"
        )


@pytest.mark.parametrize("fault_count", [0, 3, 30])
def test_each_fault_comes_and_the_end_is_calm(fault_count: int) -> None:
    found = plan(1, fault_count=fault_count)
    assert {fault.name for fault in found.faults} == set(FAULTS)
    assert len(found.faults) == max(fault_count, len(FAULTS))
    times = [fault.at_s for fault in found.faults]
    assert times == sorted(times)
    assert times[-1] < 0.95 * found.span_s


def test_without_faults_nothing_goes_wrong() -> None:
    assert planned(1, jobs=60, span_s=110, alone=("n7",), users=1, faults=(), fault_count=0).faults == ()
