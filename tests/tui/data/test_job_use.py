"""Is what a job used joined to its submission, observed from view to view, and recorded with its end?"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from opsk.slurm.records import JobRecord, NodeRecord
from opsk.store.records.use import JobSubmitted, JobUsed
from opsk_tui.data.job_use import JobUseRecorder, match_submissions
from opsk_tui.data.view import ClusterView, GpuTable, JobView, Metric

NOW_S = 1_790_000_000.0
SUBMITTED_AT = datetime.fromtimestamp(NOW_S - 100, UTC)
RECORD = JobRecord(
    id=7, label="7", user="ada", name="fold", state="RUNNING", account="bio", nodes=("n0",), node_count=1, gpus=2,
    gpu_type="h100", submit_time=SUBMITTED_AT, start_time=SUBMITTED_AT, time_limit_s=3600,
)  # fmt: skip
SUBMITTED = JobSubmitted(
    cluster="lab", at=SUBMITTED_AT - timedelta(seconds=1), uid=1000, name="fold", script_key="s", command_key="c",
    command="foldit", settings={"--batch": "8"}, gpus=2,
)  # fmt: skip
UIDS = {"ada": 1000, "eve": 1001}


def view(at_s: float, *jobs: JobRecord, used: float = 0.5, busy: float = 0.8) -> ClusterView:
    """Two of four GPUs of a node of 80 GB belong to job 7; the second does nothing."""
    table = GpuTable(
        values={
            Metric.UTILISATION: np.array([[busy, 0.0, 1.0, 1.0]], np.float32),
            Metric.MEMORY: np.array([[used, 0.01, 0.99, 0.99]], np.float32),
            Metric.POWER: np.array([[400.0, 100.0, 700.0, 700.0]], np.float32),
        },
        health=np.zeros((1, 4), np.int8), job=np.array([[7, 7, 8, -1]]), present=np.ones((1, 4), np.bool_),
        memory_size_bytes=np.full((1, 4), 80e9, np.float32),
    )  # fmt: skip
    return ClusterView(
        taken_at_s=NOW_S + at_s, cluster="lab", nodes=(NodeRecord(name="n0", state="MIXED", gpus=4),), gpus=table,
        jobs=tuple(JobView(record=job) for job in jobs),
    )  # fmt: skip


def recorder(**more: object) -> JobUseRecorder:
    fields = {"submitted": lambda cluster, since: [SUBMITTED], "uid_of": UIDS.get, "every_s": 1000.0, **more}
    return JobUseRecorder(**fields)  # type: ignore[arg-type]


def test_a_job_is_recorded_with_what_it_used_and_how_it_ended() -> None:
    ended_at = datetime.fromtimestamp(NOW_S + 30, UTC)
    done = replace(RECORD, state="COMPLETED", end_time=ended_at)
    keeper = recorder(ended=lambda job, submitted: done, host_peak=lambda job: 5e9)
    for at_s, used in ((0, 0.2), (10, 0.75), (20, 0.5)):
        keeper.records(view(at_s, RECORD, used=used))
    (last,) = keeper.records(view(30))
    assert (last.job, last.uid, last.account, last.script_key, last.settings) == (
        "7",
        1000,
        "bio",
        "s",
        {"--batch": "8"},
    )
    assert (last.state, last.ended_at, last.observed_s, last.host_memory_peak_bytes) == (
        "COMPLETED",
        ended_at,
        20.0,
        5e9,
    )
    assert last.memory_peak_bytes == pytest.approx(60e9)
    assert last.memory_peaks == {"n0/0": pytest.approx(60e9), "n0/1": pytest.approx(0.8e9)}
    assert (last.activity, last.idle_gpus, last.power_w) == (pytest.approx(0.4), 1, pytest.approx(250.0))
    assert last.capacity_bytes == pytest.approx(80e9)


def test_a_gpu_that_a_scrape_missed_is_not_taken_for_idle() -> None:
    keeper = recorder(every_s=5.0)
    keeper.records(view(0, RECORD))
    missed = view(10, RECORD)
    missed.gpus.values[Metric.UTILISATION][0, 1] = np.nan
    (row,) = keeper.records(missed)
    assert (row.activity, row.idle_gpus) == (pytest.approx(0.8), 0)


def test_a_recorder_that_was_started_again_goes_on() -> None:
    first = recorder(every_s=5.0)
    first.records(view(0, RECORD, used=0.75))
    (row,) = first.records(view(10, RECORD, used=0.2))
    again = recorder(submitted=lambda cluster, since: [], unfinished=[row], every_s=5.0)
    again.records(view(20, RECORD, used=0.2))
    (row,) = again.records(view(30, RECORD, used=0.2))
    assert (row.observed_s, row.memory_peak_bytes) == (20.0, pytest.approx(60e9))


def test_a_job_without_a_submission_is_not_recorded() -> None:
    keeper = recorder(submitted=lambda cluster, since: [])
    assert [keeper.records(view(at_s, RECORD), is_last=True) for at_s in (0, 10)] == [[], []]


def test_a_time_without_views_was_not_observed() -> None:
    keeper = recorder()
    keeper.records(view(0, RECORD))
    (row,) = keeper.records(view(3000, RECORD), is_last=True)
    assert row.observed_s is None


def job(number: int, at_s: float = 0.0, **more: object) -> JobRecord:
    return replace(RECORD, id=number, submit_time=SUBMITTED_AT + timedelta(seconds=at_s), **more)  # type: ignore[arg-type]


def sent(at_s: float, batch: int, **more: object) -> JobSubmitted:
    return replace(SUBMITTED, at=SUBMITTED_AT + timedelta(seconds=at_s), settings={"--batch": str(batch)}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("jobs", "submissions", "expected"),
    [
        ([job(1, 0), job(2, 0), job(3, 1)], [sent(-0.9, 1), sent(-0.5, 2), sent(0.2, 4)], {1: "1", 2: "2", 3: "4"}),
        ([job(1, 5)], [sent(0, 1), sent(4.8, 2)], {1: "2"}),
        ([job(1)], [sent(-60, 1)], {}),
        ([job(1)], [sent(-1, 1, uid=1001)], {}),
        ([job(1)], [sent(-1, 1, name="other")], {}),
        ([job(1)], [sent(-1, 1, gpus=8)], {}),
        ([job(11, array_job_id=10), job(12, array_job_id=10)], [sent(-1, 1)], {10: "1"}),
        ([job(1, user="nobody-here")], [sent(-1, 1)], {}),
    ],
    ids=["a sweep", "refused, then again", "long before", "another user", "another name", "other GPUs", "an array",
         "no uid"],
)  # fmt: skip
def test_jobs_are_joined_to_their_submissions(
    jobs: list[JobRecord], submissions: list[JobSubmitted], expected: dict[int, str]
) -> None:
    matched = match_submissions(jobs, submissions, uid_of=UIDS.get, used={})
    assert {owner: submission.settings["--batch"] for owner, submission in matched.items()} == expected


def test_a_submission_explains_one_job() -> None:
    matched = match_submissions([job(1)], [SUBMITTED], uid_of=UIDS.get, used={})
    assert match_submissions([job(2)], [replace(SUBMITTED)], uid_of=UIDS.get, used=matched).keys() == {1}
    assert JobUsed.IDENTITY == ("cluster", "job", "submitted_at")
