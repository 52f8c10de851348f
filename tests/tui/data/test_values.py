"""Does the screen know how old its data is, and does nobody ask Slurm twice at the same time?"""

from __future__ import annotations

import threading

from opsk.errors import SlurmError
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.values import Feed, JobView, SlurmJobs, advice_of
from tests.fakes.jobs import FixedJobs, record

PATIENCE_S = 30


def test_a_record_in_a_users_own_comment_is_no_advice() -> None:
    """Whoever submits a job writes its comment; its admin_comment only operators and the submit hook write."""
    fits, oom = "opsk:v1 verdict=fits", "opsk:v1 verdict=oom"
    assert advice_of(record(1, "a", admin_comment=oom, comment=fits)) == AdviceRecord(verdict=Verdict.OOM)
    assert advice_of(record(1, "a", admin_comment="seen", comment=fits)) is None
    assert advice_of(record(1, "a", comment=fits)) is None
    assert advice_of(record(1, "a")) is None


def test_slurm_is_asked_for_details_because_they_hold_the_advice() -> None:
    class Client:
        def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
            assert details
            assert not finished
            return (record(7, "x", admin_comment="opsk:v1 verdict=tight"),)

        def job(self, job_id: str) -> JobRecord:
            raise NotImplementedError

        def nodes(self) -> tuple[NodeRecord, ...]:
            raise NotImplementedError

        def release(self) -> tuple[int, int]:
            raise NotImplementedError

    (view,) = SlurmJobs(Client()).jobs()
    assert view.record.id == 7
    assert view.advice == AdviceRecord(verdict=Verdict.TIGHT)


def test_the_last_answer_stays_with_its_age_while_slurm_is_silent() -> None:
    now = [100.0]
    source = FixedJobs()
    feed = Feed(source, clock=lambda: now[0])
    assert feed.age_s() is None
    assert len(feed.refresh().jobs) == 5
    now[0], source.problem = 160.0, SlurmError("squeue did not answer within 10 s", hint="see `scontrol ping`")
    state = feed.refresh()
    assert len(state.jobs) == 5
    assert (state.problem, state.hint) == ("squeue did not answer within 10 s", "see `scontrol ping`")
    assert feed.age_s() == 60
    source.problem = None
    assert feed.refresh().problem == ""
    assert feed.age_s() == 0


def test_nobody_asks_while_a_question_is_under_way() -> None:
    answer, asked = threading.Event(), threading.Event()

    class Slow(FixedJobs):
        def jobs(self) -> tuple[JobView, ...]:
            asked.set()
            answer.wait(PATIENCE_S)
            return super().jobs()

    source, done = Slow(), threading.Semaphore(0)
    feed = Feed(source)
    feed.refresh_in_background(done.release)
    assert asked.wait(PATIENCE_S)
    assert feed.state.asking_since is not None
    feed.refresh_in_background(done.release)
    assert feed.refresh().taken_at is None
    answer.set()
    assert done.acquire(timeout=PATIENCE_S)
    assert source.asked == 1
    assert feed.state.asking_since is None
    assert len(feed.state.jobs) == 5
