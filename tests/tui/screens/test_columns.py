"""Do the columns fit, and does each show what the job and its advice say?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_tui.data.values import FeedState, JobView, advice_of
from opsk_tui.job_text import advice_lines, headline, record_lines, render_table
from opsk_tui.screens.columns import COLUMNS, fitting, matching, ordered
from tests.fakes.jobs import HOSTILE_NAME, RECORDS, FixedJobs, record

JOBS = FixedJobs().jobs()


def shown(job: JobView) -> dict[str, str]:
    return {column.key: column.cell(job).text for column in COLUMNS}


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
    cells = shown(JobView(record=record(1, "a")))
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
    columns = fitting(width)
    assert {"job", "name", "state", "verdict"} <= {column.key for column in columns}
    used = sum(column.width + 2 for column in columns)
    assert used <= max(width, sum(column.width + 2 for column in fitting(0)))


def test_80_columns_hold_memory_and_speed() -> None:
    # 80 less the scroll bar; the classic terminal must show what opsk is about.
    assert {"user", "gpus", "verdict", "memory", "tflops"} <= {column.key for column in fitting(78)}


def test_running_jobs_come_first_and_new_before_old() -> None:
    assert [job.record.id for job in ordered(JOBS)] == [4715, 4714, 4711, 4713, 4712]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ("", [4711, 4712, 4713, 4714, 4715]),
        ("ADA llama", [4711]),
        ("oom", [4712]),
        ("pending", [4712, 4713]),
        ("ep8", [4712]),
        ("gpu001", [4711]),
        ("[red]", [4715]),
        ("nobody", []),
    ],
)
def test_every_word_of_a_filter_must_stand_somewhere(wanted: str, ids: list[int]) -> None:
    assert [job.record.id for job in matching(JOBS, wanted)] == ids


def test_the_headline_counts() -> None:
    state = FeedState(jobs=JOBS, taken_at=0.0)
    # Three fakes run on 64 GPUs each, two are pending, four carry a record that can be read.
    assert headline(state) == "3 running on 192 GPUs · 2 pending · 4 with a prediction"
    assert headline(state, 1).startswith("1 of 5 shown · ")


def test_the_text_table_is_one_line_a_job_and_its_columns_stand_in_line() -> None:
    lines = render_table(ordered(JOBS), COLUMNS).splitlines()
    assert len(lines) == 6
    assert lines[0].split()[:4] == ["JOB", "USER", "NAME", "STATE"]
    place = lines[0].index("STATE")
    assert all(line[place:].startswith(("STATE", "RUNNING", "PENDING")) for line in lines)


def test_wide_letters_keep_the_text_table_in_line() -> None:
    jobs = [JobView(record=record(1, "学習ジョブ")), JobView(record=record(2, "abc"))]
    first, second = render_table(jobs, COLUMNS[:4]).splitlines()[1:]
    # Each of the five letters takes two cells: the line is five characters shorter for the same width.
    assert first.index("RUNNING") + 5 == second.index("RUNNING")


def test_no_jobs_is_a_sentence() -> None:
    assert render_table([], COLUMNS) == "No jobs are pending or running."


def test_the_full_record_shows_all_that_slurm_tells_and_nothing_that_it_does_not() -> None:
    lines = dict(record_lines(RECORDS[0]))
    assert lines["nodes"] == "gpu001, gpu002"
    assert lines["run time"] == "26.1 h"
    assert "reason" not in lines
    assert dict(record_lines(RECORDS[4]))["name"].startswith("[red]x[/red]")
    assert HOSTILE_NAME not in dict(record_lines(RECORDS[4])).values()


def test_the_advice_in_full() -> None:
    lines = dict(advice_lines(JOBS[0]))
    # 60e9 and 80e9 bytes are 55.9 and 74.5 GiB.
    assert lines["memory"] == "55.9 GiB of 74.5 GiB per GPU (75 %)"
    assert lines["chance to fit"] == "99 %"
    assert "tokens/s per GPU" not in lines
    assert advice_lines(JobView(record=record(1, "a"), advice=advice_of(record(1, "a"))))[0][0] == "prediction"
