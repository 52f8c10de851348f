"""Does a job come into the store that nobody saw, or of which what was told was lost? And is the accounting spared?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Engine

from opsk.errors import SlurmError, StoreError
from opsk.slurm.commands.accounting import AccountedRun
from opsk.store.database.engine import open_store
from opsk.store.records.jobs import JobSeen, find_jobs, find_known_jobs
from opsk.store.writing import DirectWriter
from opsk_tui.data.recorder import (
    AGAIN_S,
    FIRST_LOOK_S,
    MAX_PAUSE_S,
    MAX_WINDOW_S,
    RESEND_AFTER_S,
    SETTLE_S,
    MissedJobs,
    StoreLookup,
)
from tests.tui.data.test_recording import ADVICE, NOW_S

RUN = AccountedRun(
    id=9, label="9", user="ada", account="ml", partition="gpu", name="train", state="COMPLETED", exit_code=0,
    nodes=("n0", "n1"), gpus=8, submit_s=NOW_S - 60, start_s=NOW_S - 59, end_s=NOW_S - 40, cluster="lab",
    admin_comment=ADVICE.render(),
)  # fmt: skip


@dataclass
class Accounting:
    """Knows some runs, and notes for which times it is asked."""

    runs: list[AccountedRun] = field(default_factory=lambda: [RUN])
    asked: list[tuple[float, float]] = field(default_factory=list)
    error: Exception | None = None

    def list_ended(self, states: Sequence[str], from_s: float, until_s: float) -> list[AccountedRun]:
        self.asked.append((from_s, until_s))
        if self.error is not None:
            raise self.error
        return [run for run in self.runs if run.state in states and from_s <= (run.end_s or 0) <= until_s]


@dataclass
class Clock:
    now_s: float = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_store(f"sqlite:///{tmp_path}/opsk.db")


def of_store(engine: Engine) -> StoreLookup:
    return lambda cluster, ids: find_known_jobs(engine, cluster, ids)


def looking(accounting: Accounting, clock: Clock, known: StoreLookup, since_s: float | None = None) -> MissedJobs:
    since = {"lab": datetime.fromtimestamp(since_s, UTC)} if since_s is not None else {}
    return MissedJobs(ended=accounting.list_ended, known=known, since=since, clock=clock, now=clock)


def test_a_job_that_came_and_went_unseen_is_kept_with_its_advice(engine: Engine) -> None:
    missed, clock = looking(Accounting(), clock := Clock(), of_store(engine)), clock
    DirectWriter(engine).write(missed.records("lab"))
    (kept,) = find_jobs(engine)
    assert (kept.job, kept.state, kept.exit_code, kept.node_list, kept.gpus, kept.account) == (
        "9", "COMPLETED", "0:0", "n[0-1]", 8, "ml",
    )  # fmt: skip
    assert (kept.script_hash, kept.verdict, kept.predicted_step_s) == ("abc123", "fits", 1.0)
    assert kept.ended_at == datetime.fromtimestamp(NOW_S - 40, UTC)
    clock.now_s += RESEND_AFTER_S
    assert missed.records("lab") == []


def test_a_job_whose_end_was_lost_on_its_way_has_ended(engine: Engine) -> None:
    """Also where the clock of who saw it run was an hour ahead."""
    submitted = datetime.fromtimestamp(NOW_S - 60, UTC)
    ahead = datetime.fromtimestamp(NOW_S + 3600, UTC)
    writer = DirectWriter(engine)
    writer.write([JobSeen(cluster="lab", job="9", submitted_at=submitted, at=ahead, state="RUNNING")])
    writer.write(looking(Accounting([replace(RUN, admin_comment="")]), Clock(), of_store(engine)).records("lab"))
    (kept,) = find_jobs(engine)
    assert (kept.state, kept.ended_at) == ("COMPLETED", datetime.fromtimestamp(NOW_S - 40, UTC))


def test_a_job_that_ended_otherwise_than_the_store_says_is_put_right(engine: Engine) -> None:
    submitted = at = datetime.fromtimestamp(NOW_S - 60, UTC)
    writer = DirectWriter(engine)
    writer.write([JobSeen(cluster="lab", job="9", submitted_at=submitted, at=at, state="RUNNING", ended_at=at)])
    writer.write(looking(Accounting(), Clock(), of_store(engine)).records("lab"))
    assert [(job.state, job.exit_code) for job in find_jobs(engine)] == [("COMPLETED", "0:0")]


@pytest.mark.parametrize(
    "run",
    [
        replace(RUN, admin_comment="no advice"), replace(RUN, start_s=None, nodes=(), state="CANCELLED"),
        replace(RUN, label="9_[0-3]"), replace(RUN, end_s=NOW_S - SETTLE_S / 2),
    ],
    ids=["without advice", "never ran", "what was pending of an array", "ended just now"],
)  # fmt: skip
def test_what_need_not_be_kept_is_not(engine: Engine, run: AccountedRun) -> None:
    assert looking(Accounting([run]), Clock(), of_store(engine)).records("lab") == []


def test_what_the_store_did_not_take_is_told_again_until_it_has_it(engine: Engine) -> None:
    missed, clock = looking(Accounting(), clock := Clock(), of_store(engine)), clock
    pop_ended = []
    for _ in range(int((AGAIN_S + RESEND_AFTER_S) // 60)):
        pop_ended += missed.records("lab")
        clock.now_s += 60
    assert len(pop_ended) == (AGAIN_S + RESEND_AFTER_S) // RESEND_AFTER_S


def test_a_record_that_the_store_refuses_is_given_up_after_a_day(engine: Engine) -> None:
    missed, clock = looking(Accounting(), clock := Clock(), of_store(engine)), clock
    assert len(missed.records("lab")) == 1
    clock.now_s += FIRST_LOOK_S
    assert missed.records("lab") == []


def test_the_accounting_is_asked_once_in_so_long_and_for_a_short_time(engine: Engine) -> None:
    accounting, clock = Accounting(), Clock()
    missed = looking(accounting, clock, of_store(engine))
    for _ in range(121):
        missed.records("lab")
        clock.now_s += 1.0
    assert accounting.asked == [
        (NOW_S + turn - SETTLE_S - AGAIN_S - (60 if turn else 0), NOW_S + turn - SETTLE_S) for turn in (0, 60, 120)
    ]


def test_after_a_night_without_a_recorder_all_of_it_is_looked_through_hour_by_hour(engine: Engine) -> None:
    accounting, clock = Accounting([]), Clock()
    missed = looking(accounting, clock, of_store(engine), since_s=NOW_S - 12 * 3600)
    for _ in range(40):
        missed.records("lab")
        clock.now_s += 60
    spans = accounting.asked
    assert spans[0][0] == NOW_S - 12 * 3600 - AGAIN_S
    assert max(until - since for since, until in spans) == MAX_WINDOW_S
    assert all(one[1] > other[0] for one, other in pairwise(spans))
    assert spans[-1][1] == clock.now_s - 60 - SETTLE_S


def test_a_clock_that_was_an_hour_ahead_for_a_moment_leaves_no_gap(engine: Engine) -> None:
    accounting, clock = Accounting([]), Clock()
    missed = looking(accounting, clock, of_store(engine))
    missed.now = iter(range(0, 10_000, 60)).__next__  # type: ignore[assignment]
    for now_s in (NOW_S, NOW_S + 3600, NOW_S + 120):
        clock.now_s = now_s
        missed.records("lab")
    assert accounting.asked[-1] == (NOW_S + 120 - SETTLE_S - AGAIN_S, NOW_S + 120 - SETTLE_S)


def test_an_accounting_that_is_not_there_is_asked_less_and_less_and_told_of_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    accounting, clock = Accounting(error=SlurmError("accounting is disabled")), Clock()
    missed = looking(accounting, clock, of_store(engine))
    for _ in range(3600):
        missed.records("lab")
        clock.now_s += 1.0
    assert len(accounting.asked) < 10
    assert caplog.text.count("accounting is disabled") == 1
    accounting.error = None
    clock.now_s += MAX_PAUSE_S
    assert [seen.job for seen in missed.records("lab")] == ["9"]


def test_while_the_store_is_away_nothing_is_told_and_nothing_forgotten(engine: Engine) -> None:
    clock, is_away = Clock(), True

    def known(cluster: str, ids: Sequence[str]) -> dict[tuple[str, datetime], tuple[datetime, str | None]]:
        if is_away:
            raise StoreError("disk full")
        return find_known_jobs(engine, cluster, ids)

    missed = looking(Accounting(), clock, known)
    assert missed.records("lab") == []
    is_away = False
    clock.now_s += AGAIN_S + 60
    assert [seen.job for seen in missed.records("lab")] == ["9"]


def test_of_a_cluster_without_a_name_nothing_is_asked() -> None:
    accounting = Accounting()
    assert looking(accounting, Clock(), lambda *_: {}).records("") == []
    assert accounting.asked == []
