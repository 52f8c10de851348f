"""Do the columns fit, and does each show what the job and its advice say?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.job_table import COLUMNS, JobWithAdvice, parse_advice, read_jobs, render_table, select_columns
from tests.fakes.jobs import RECORDS, record


class FixedJobs:
    """Slurm, which always answers the same; details were asked for where jobs carry advice."""

    def __init__(self, records: tuple[JobRecord, ...]) -> None:
        self.records = records

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        assert details
        assert not finished
        return self.records

    def job(self, job_id: str) -> JobRecord:
        raise NotImplementedError

    def nodes(self) -> tuple[NodeRecord, ...]:
        raise NotImplementedError

    def release(self) -> tuple[int, int]:
        raise NotImplementedError


JOBS = [JobWithAdvice(record=job, advice=parse_advice(job)) for job in RECORDS]


def shown(job: JobWithAdvice) -> dict[str, str]:
    return {column.key: column.text(job) for column in COLUMNS}


def test_an_advised_job_shows_its_prediction() -> None:
    cells = shown(JOBS[0])
    # 60e9 of 80e9 bytes is 75 %; 93,784 s is 1 day 2 h 3 min 4 s.
    assert cells["verdict"] == "✓ fits"
    assert cells["memory"] == "75 %"
    assert cells["step"] == "12.3 s"
    assert cells["tflops"] == "412"
    assert cells["mfu"] == "42 %"
    assert cells["plan"] == "TP4 PP2 DP8"
    assert cells["time"] == "1-02:03"


def test_what_was_not_predicted_is_a_dash_and_never_zero() -> None:
    cells = shown(JobWithAdvice(record=record(1, "a")))
    assert {cells[key] for key in ("verdict", "memory", "step", "tflops", "mfu", "plan", "time")} == {"–"}


def test_each_verdict_has_a_sign_of_its_own_beside_its_colour() -> None:
    texts = [shown(job)["verdict"] for job in JOBS]
    assert texts == ["✓ fits", "✗ oom", "? unknown", "! tight", "–"]


def test_control_and_direction_characters_are_shown_and_not_obeyed() -> None:
    name = shown(JOBS[4])["name"]
    assert name == "[red]x[/red][@click=app.quit]y[/] \\x1b]0;title\\x07\\u202etxt\\x9b2J"
    assert name.isprintable()


@given(st.integers(min_value=0, max_value=400))
def test_columns_fit_into_every_window_that_holds_the_first_four(width: int) -> None:
    columns = select_columns(width)
    assert {"job", "name", "state", "verdict"} <= {column.key for column in columns}
    used = sum(column.width + 2 for column in columns)
    assert used <= max(width, sum(column.width + 2 for column in select_columns(0)))


def test_80_columns_hold_memory_and_speed() -> None:
    # 80 less the scroll bar; the classic terminal must show what opsk is about.
    assert {"user", "gpus", "verdict", "memory", "tflops"} <= {column.key for column in select_columns(78)}


def test_running_jobs_come_first_and_new_before_old() -> None:
    assert [job.record.id for job in read_jobs(FixedJobs(RECORDS))] == [4715, 4714, 4711, 4713, 4712]


def test_the_text_table_is_one_line_a_job_and_its_columns_stand_in_line() -> None:
    lines = render_table(read_jobs(FixedJobs(RECORDS)), COLUMNS).splitlines()
    assert len(lines) == 6
    assert lines[0].split()[:4] == ["JOB", "USER", "NAME", "STATE"]
    place = lines[0].index("STATE")
    assert all(line[place:].startswith(("STATE", "RUNNING", "PENDING")) for line in lines)


def test_wide_letters_keep_the_text_table_in_line() -> None:
    jobs = [JobWithAdvice(record=record(1, "学習ジョブ")), JobWithAdvice(record=record(2, "abc"))]
    first, second = render_table(jobs, COLUMNS[:4]).splitlines()[1:]
    # Each of the five letters takes two cells: the line is five characters shorter for the same width.
    assert first.index("RUNNING") + 5 == second.index("RUNNING")


def test_no_jobs_is_a_sentence() -> None:
    assert render_table([], COLUMNS) == "No jobs are pending or running."


def test_a_record_in_a_users_own_comment_is_no_advice() -> None:
    """Whoever submits a job writes its comment; its admin_comment only operators and the submit hook write."""
    fits, oom = "opsk:v1 verdict=fits", "opsk:v1 verdict=oom"
    assert parse_advice(record(1, "a", admin_comment=oom, comment=fits)) == AdviceRecord(verdict=Verdict.OOM)
    assert parse_advice(record(1, "a", admin_comment="seen", comment=fits)) is None
    assert parse_advice(record(1, "a", comment=fits)) is None
    assert parse_advice(record(1, "a")) is None
