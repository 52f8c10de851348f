"""How often Slurm is asked, and for what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.errors import SlurmError
from opsk_jobcheck.workers.watcher import (
    ALL_AGAIN_ROUNDS,
    MAX_PAUSE_S,
    SINGLE_QUESTIONS,
    Poller,
    read_partitions,
    read_topology,
)
from tests.fakes.live_cluster import CountingSlurm, training_job


class Clock:
    """A clock that every question to Slurm moves on."""

    def __init__(self) -> None:
        self.now_s, self.each_s = 0.0, 0.0

    def __call__(self) -> float:
        self.now_s += self.each_s
        return self.now_s


def poller(slurm: CountingSlurm, interval_s: float = 15.0) -> Poller:
    return Poller(slurm=slurm, clock=Clock(), interval_s=interval_s)


def test_the_plan_of_a_job_is_asked_for_once() -> None:
    slurm = CountingSlurm(training_job(1, ["n0", "n1"]))
    asking = poller(slurm)
    asking.round()
    assert slurm.asked == ["jobs with details", "nodes"]
    slurm.found = (*slurm.found, training_job(2, ["n2", "n3"]), training_job(3, ["n4"]))
    slurm.asked.clear()
    for _ in range(3):
        found = asking.round()
    # one question more for the new job on two nodes; a job on one node has no traffic between nodes
    assert slurm.asked == ["jobs", "job 2", "nodes", "jobs", "nodes", "jobs", "nodes"]
    assert [bool(job.admin_comment) for job in found.jobs] == [True, True, False]


def test_many_new_jobs_are_asked_for_at_once() -> None:
    slurm = CountingSlurm()
    asking = poller(slurm)
    asking.round()
    slurm.found = tuple(training_job(number, ["n0", "n1"]) for number in range(SINGLE_QUESTIONS + 1))
    slurm.asked.clear()
    found = asking.round()
    assert slurm.asked == ["jobs", "jobs with details", "nodes"]
    assert all(job.admin_comment for job in found.jobs)


def test_a_job_that_moved_is_asked_for_again_and_one_that_waits_is_not() -> None:
    job = training_job(1, ["n0", "n1"])
    slurm = CountingSlurm(job, training_job(2, [], state="PENDING"))
    asking = poller(slurm)
    assert [found.id for found in asking.round().jobs] == [1]
    slurm.found = (replace(job, nodes=("n2", "n3")), slurm.found[1])
    slurm.asked.clear()
    assert asking.round().jobs[0].nodes == ("n2", "n3")
    assert slurm.asked == ["jobs", "job 1", "nodes"]


def test_records_are_read_again_now_and_then() -> None:
    slurm = CountingSlurm(training_job(1, ["n0", "n1"]))
    asking = poller(slurm)
    for _ in range(ALL_AGAIN_ROUNDS + 1):
        asking.round()
    assert slurm.asked.count("jobs with details") == 2


def test_slurm_that_does_not_answer_is_asked_less_and_less_often() -> None:
    slurm = CountingSlurm()
    slurm.is_down = True
    asking = poller(slurm)
    pauses = []
    for _ in range(8):
        with pytest.raises(SlurmError):
            asking.round()
        pauses.append(asking.pause_s)
    assert pauses == [30, 60, 120, 240, *[MAX_PAUSE_S] * 4]
    slurm.is_down = False
    asking.round()
    assert asking.pause_s == 15


def test_slow_answers_make_the_pause_longer() -> None:
    slurm = CountingSlurm()
    clock = Clock()
    clock.each_s = 2.0
    asking = Poller(slurm=slurm, clock=clock, interval_s=15.0)
    asking.round()
    # 2 s of asking in 40 s is the twentieth part
    assert asking.pause_s == 40


def test_one_question_after_the_other_fails_with_the_first() -> None:
    slurm = CountingSlurm()
    slurm.is_down = True
    with pytest.raises(SlurmError):
        poller(slurm).round()
    assert len(slurm.asked) == 1


@pytest.mark.parametrize(
    ("plugin", "topology"),
    [("topology/tree", "tree"), ("topology/block", "block"), ("topology/default", "flat"), ("topology/flat", "flat"),
     ("topology/none", "flat"), ("", None)],
)  # fmt: skip
def test_slurm_names_its_topology(plugin: str, topology: str | None) -> None:
    slurm = CountingSlurm()
    slurm.config = lambda: {"TopologyPlugin": plugin}  # type: ignore[method-assign]
    assert read_topology(slurm) == topology


def test_a_way_to_ask_that_knows_no_configuration_knows_no_topology() -> None:
    class Bare:
        """Has no ``config``."""

    assert read_topology(Bare()) is None  # type: ignore[arg-type]
    assert read_partitions(Bare()) is None  # type: ignore[arg-type]
