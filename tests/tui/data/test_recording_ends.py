"""Is it known of each job how it ended: one that was completing when it was asked for, one whose end nobody saw?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from opsk.diagnosis.losses.values import Cause, Finding, Losses
from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.accounting import AccountedRun
from opsk.slurm.records import JobRecord
from opsk.store.records.jobs import JobSeen
from opsk.store.records.reports import Report
from opsk_tui.data.recording import (
    AGAIN_AFTER_S,
    GIVEN_UP_AFTER_S,
    QUESTIONS_A_MINUTE,
    Endings,
    SlurmEnds,
    ViewRecorder,
)
from opsk_tui.data.view import ClusterView, Source, SourceState
from tests.tui.data.test_recording import NOW_S, RECORD, SUBMITTED, job, of, view

ENDED_AT = datetime.fromtimestamp(NOW_S + 3, UTC)
ENDED = replace(RECORD, state="COMPLETED", exit_code=0, end_time=ENDED_AT)
SEEN = JobSeen(cluster="lab", job="7", submitted_at=SUBMITTED, at=SUBMITTED, state="RUNNING", nodes=2, gpus=8)


class Slurm:
    """Answers one after the other; an error is raised."""

    def __init__(self, *answers: JobRecord | Exception | None) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, job: str, submitted: datetime) -> JobRecord | None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def pop_ended(slurm: Slurm, *at_s: float) -> list[JobSeen]:
    """Return what is told of a job that is gone, by when it is asked."""
    endings = Endings(slurm)
    endings.add(SEEN, NOW_S)
    return [each for at in at_s for each in endings.pop_ended(NOW_S + at)]


def test_a_job_that_completes_yet_is_asked_for_again() -> None:
    (seen,) = pop_ended(Slurm(replace(RECORD, state="COMPLETING"), ENDED), 0, AGAIN_AFTER_S + 1)
    assert (seen.state, seen.exit_code, seen.ended_at) == ("COMPLETED", "0:0", ENDED_AT)


def test_a_slurm_that_does_not_answer_is_asked_again() -> None:
    (seen,) = pop_ended(Slurm(SlurmError("away"), SlurmError("away"), ENDED), 0, 10, 20)
    assert (seen.state, seen.ended_at) == ("COMPLETED", ENDED_AT)


def test_it_is_not_asked_at_each_look() -> None:
    slurm = Slurm(SlurmError("away"))
    assert pop_ended(slurm, *(0.5 * look for look in range(10))) == []
    assert slurm.asked == 1


def test_a_slurm_that_never_answers_is_given_up() -> None:
    slurm = Slurm(SlurmError("away"))
    (seen,) = pop_ended(slurm, 0, GIVEN_UP_AFTER_S + 1)
    assert (seen.state, seen.ended_at) == (None, datetime.fromtimestamp(NOW_S + GIVEN_UP_AFTER_S + 1, UTC))


def test_what_is_told_of_the_end_counts_though_this_clock_was_set_back() -> None:
    """The store takes the newest record: an hour ago would be older than what stands there."""
    (seen,) = pop_ended(Slurm(ENDED), -3600)
    assert seen.at == SEEN.at


def test_what_is_told_of_a_job_counts_though_a_clock_was_ahead_before() -> None:
    """The clock goes back by an hour while the recorder runs, and while none does."""
    keeper = ViewRecorder()
    (first,) = of(JobSeen, keeper.records(view(3600, job())))
    (then,) = of(JobSeen, keeper.records(view(0, job(state="COMPLETING"))))
    assert (then.state, then.at) == ("COMPLETING", first.at)
    (after,) = of(JobSeen, ViewRecorder(unfinished=[first]).records(view(0, job(state="COMPLETING"))))
    assert after.at == first.at


def test_a_clock_that_is_set_back_by_an_hour_does_not_stop_the_questions() -> None:
    assert len(pop_ended(Slurm(SlurmError("away"), ENDED), 0, -3600)) == 1


def after_restart(keeper: ViewRecorder, *jobs: JobRecord, problem: str = "") -> list[JobSeen]:
    looked: ClusterView = view(0, *(job(**{"state": each.state}) for each in jobs))
    state = SourceState(source=Source.SLURM, taken_at_s=NOW_S, problem=problem)
    return of(JobSeen, keeper.records(replace(looked, sources=(state,))))


def test_a_job_that_ended_while_no_recorder_ran_has_ended() -> None:
    (seen,) = after_restart(ViewRecorder(unfinished=[SEEN], ended=Slurm(ENDED)))
    assert (seen.job, seen.submitted_at, seen.state, seen.ended_at) == ("7", SUBMITTED, "COMPLETED", ENDED_AT)


def test_a_job_that_runs_on_after_a_restart_of_the_recorder_has_not_ended() -> None:
    (seen,) = after_restart(ViewRecorder(unfinished=[SEEN], ended=Slurm(ENDED)), RECORD)
    assert (seen.state, seen.ended_at) == ("RUNNING", None)


def test_nothing_has_ended_while_slurm_does_not_say_what_runs() -> None:
    slurm = Slurm(ENDED)
    keeper = ViewRecorder(unfinished=[SEEN], ended=slurm)
    assert after_restart(keeper, problem="slurmctld does not answer") == []
    assert slurm.asked == 0
    assert len(after_restart(keeper)) == 1


def test_a_job_of_another_cluster_in_the_same_store_is_left_alone() -> None:
    assert after_restart(ViewRecorder(unfinished=[replace(SEEN, cluster="other")], ended=Slurm(ENDED))) == []


class Controller:
    """A slurmctld that knows one job, or none."""

    def __init__(self, known: JobRecord | None) -> None:
        self.known = known

    def job(self, job_id: str) -> JobRecord:
        if self.known is None:
            raise InputError(f"there is no job {job_id}")
        return self.known


class Accounting:
    """A sacct that knows some runs of a job."""

    def __init__(self, *runs: AccountedRun) -> None:
        self.known = runs

    def runs(self, job_id: str, *, is_number: bool = False) -> Sequence[AccountedRun]:
        if not self.known:
            raise InputError(f"accounting knows no job {job_id}")
        return self.known


def ends(known: JobRecord | None, *runs: AccountedRun, clock_s: Sequence[float] = (0.0,)) -> SlurmEnds:
    times = iter((*clock_s, *([clock_s[-1]] * 100)))
    return SlurmEnds(slurm=Controller(known), accounting=Accounting(*runs), clock=lambda: next(times))  # type: ignore[arg-type]


RUN = AccountedRun(
    id=7, label="7", state="FAILED", exit_code=1, nodes=("n0", "n1"), gpus=8, submit_s=SUBMITTED.timestamp(),
    start_s=NOW_S, end_s=NOW_S + 3,
)  # fmt: skip


def test_slurmctld_is_asked_first() -> None:
    assert ends(ENDED, RUN)("7", SUBMITTED) == ENDED


def test_what_slurmctld_has_forgotten_accounting_knows() -> None:
    found = ends(None, RUN)("7", SUBMITTED)
    assert found is not None
    assert (found.state, found.exit_code, found.end_time, found.node_count) == ("FAILED", 1, ENDED_AT, 2)


def test_of_a_requeued_job_the_run_that_is_meant_is_told() -> None:
    again = replace(ENDED, submit_time=ENDED_AT)
    later = replace(RUN, submit_s=NOW_S + 3, state="COMPLETED")
    found = ends(again, RUN, later)("7", SUBMITTED)
    assert found is not None
    assert found.state == "FAILED"


def test_a_job_that_nobody_knows_is_forgotten() -> None:
    assert ends(None)("7", SUBMITTED) is None


def test_slurm_is_asked_so_often_a_minute_and_no_more() -> None:
    asks = ends(ENDED)
    for _ in range(QUESTIONS_A_MINUTE):
        asks("7", SUBMITTED)
    with pytest.raises(SlurmError, match="often enough"):
        asks("7", SUBMITTED)


def test_where_a_job_lost_time_is_recorded_once_it_has_ended() -> None:
    slow = Finding(cause=Cause.DATA_LOADING, share=0.19, confidence=0.8, where="n0")
    plan = Finding(cause=Cause.WRONG_PLAN, share=0.25, confidence=0.9)
    rest = Finding(cause=Cause.UNKNOWN, share=0.3, confidence=1.0)
    keeper = ViewRecorder(ended=lambda job, submitted: ENDED)
    keeper.records(view(0, replace(job(10), losses=Losses(gap=0.74, findings=(rest, plan, slow)))))
    assert of(Report, keeper.records(view(5, replace(job(11), losses=None)))) == []
    (report,) = of(Report, keeper.records(view(10)))
    assert (report.report, report.root_cause, report.title) == (
        "losses", "data_loading", "data loading at n0: 19% of the step",
    )  # fmt: skip
    keeper.records(view(15, replace(job(10), losses=Losses(gap=0.3, findings=(rest,)))))
    assert of(Report, keeper.records(view(20))) == []
