"""Is what is seen kept once, in intervals, with its end, and by a keeper that was started again as by one?"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opsk.diagnosis.events.observations import Event, FailedPart, Severity
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.store.database.engine import open_store
from opsk.store.records.failures import FailureSeen, find_failures
from opsk.store.records.jobs import JobSeen, find_jobs
from opsk.store.records.measurements import Measured as Interval
from opsk.store.writing import DirectWriter, Record
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.recording import SETTLE_S, ViewRecorder
from opsk_tui.data.view import ClusterView, JobView, Measured, Source, SourceState

NOW_S = 1_790_000_000.0
SUBMITTED = datetime.fromtimestamp(NOW_S - 100, UTC)
ADVICE = AdviceRecord(verdict=Verdict.FITS, step_s=1.0, mfu=0.4, mem_bytes=1e10, tp=2, pp=1, dp=4, hash="abc123")
RECORD = JobRecord(
    id=7, label="7", user="ada", name="train", state="RUNNING", nodes=("n0", "n1"), node_count=2, gpus=8,
    submit_time=SUBMITTED, start_time=SUBMITTED,
)  # fmt: skip
EVENT = Event(
    key="gpu:n0/1", failed="gpu:n0/1", part=FailedPart.GPU, severity=Severity.FATAL,
    first_seen_s=NOW_S, last_seen_s=NOW_S,
    text="XID 79: it fell off the bus", nodes=("n0",), jobs=(7,),
)  # fmt: skip


def job(iteration: int | None = None, step_s: float = 1.0, **more: Any) -> JobView:
    measured = None
    if iteration is not None:
        measured = Measured(step_s=step_s, tokens_per_s=800.0, iteration=iteration, source="log", memory_peak_bytes=5e9)
    return JobView(record=replace(RECORD, **more), advice=ADVICE, measured=measured)


def view(at_s: float, *seen: JobView, events: tuple[Event, ...] = ()) -> ClusterView:
    state = SourceState(source=Source.EXPORTERS, taken_at_s=NOW_S)
    nodes = (NodeRecord(name="n0", state="IDLE", gpus=4),)
    return ClusterView(taken_at_s=NOW_S + at_s, cluster="lab", nodes=nodes, jobs=seen, events=events, sources=(state,))


def of(kind: type[Any], records: list[Record]) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


def test_a_job_is_told_once_with_plan_and_prediction() -> None:
    keeper = ViewRecorder()
    (seen,) = of(JobSeen, keeper.records(view(0, job())))
    assert (seen.job, seen.submitted_at, seen.script_hash, seen.gpus, seen.node_list) == (
        "7", SUBMITTED, "abc123", 8, "n[0-1]",
    )  # fmt: skip
    assert (seen.predicted_step_s, seen.verdict, seen.plan) == (1.0, "fits", {"plan": {"tp": 2, "pp": 1, "dp": 4}})
    assert keeper.records(view(5, job())) == []


def test_a_job_without_advice_and_progress_is_not_kept() -> None:
    assert of(JobSeen, ViewRecorder().records(view(0, JobView(record=RECORD)))) == []


def test_steps_come_in_intervals() -> None:
    """A view each 5 s, a step each second: an interval of 20 s has 20 steps, and the first begins at the first view."""
    keeper = ViewRecorder(every_s=20)
    found = [each for at in range(0, 65, 5) for each in of(Interval, keeper.records(view(at, job(10 + at))))]
    assert [(each.first_iteration, each.last_iteration, each.steps) for each in found] == [
        (10, 30, 20), (30, 50, 20), (50, 70, 20),
    ]  # fmt: skip
    assert {(each.step_s, each.tokens_per_s_per_gpu, each.memory_peak_bytes) for each in found} == {(1.0, 100.0, 5e9)}
    assert found[0].until_at == found[1].from_at


def test_a_stall_makes_no_interval_and_a_restart_ends_one() -> None:
    keeper = ViewRecorder(every_s=20)
    keeper.records(view(0, job(10)))
    keeper.records(view(5, job(12)))
    (ended,) = of(Interval, keeper.records(view(10, job(3))))
    assert (ended.first_iteration, ended.last_iteration) == (10, 12)
    assert of(Interval, keeper.records(view(60, job(3)))) == []


def test_what_was_measured_so_far_is_told_at_the_end() -> None:
    keeper = ViewRecorder()
    keeper.records(view(0, job(10)))
    (last,) = of(Interval, keeper.records(view(5, job(15)), is_last=True))
    assert last.steps == 5


def test_a_job_that_is_gone_has_ended_as_slurm_says() -> None:
    ended = replace(RECORD, state="FAILED", exit_code=1, end_time=datetime.fromtimestamp(NOW_S + 3, UTC))
    keeper = ViewRecorder(ended=lambda job, submitted: ended)
    keeper.records(view(0, job()))
    (seen,) = of(JobSeen, keeper.records(view(5)))
    assert (seen.state, seen.exit_code, seen.ended_at) == ("FAILED", "1:0", ended.end_time)


def test_a_job_that_slurm_has_forgotten_has_ended_by_now() -> None:
    keeper = ViewRecorder()
    keeper.records(view(0, job()))
    (seen,) = of(JobSeen, keeper.records(view(5)))
    assert (seen.state, seen.ended_at) == (None, datetime.fromtimestamp(NOW_S + 5, UTC))


def test_a_failure_is_told_when_it_begins_and_when_it_is_over() -> None:
    keeper = ViewRecorder()
    (begun,) = of(FailureSeen, keeper.records(view(0, events=(EVENT,))))
    assert (begun.what, begun.job, begun.code, begun.cleared_at) == ("gpu:n0/1", "7", "79", None)
    assert of(FailureSeen, keeper.records(view(5, events=(replace(EVENT, count=2, last_seen_s=NOW_S + 5),)))) == []
    over = replace(EVENT, is_over=True, last_seen_s=NOW_S + 8)
    (cleared,) = of(FailureSeen, keeper.records(view(10, events=(over,))))
    assert cleared == replace(begun, cleared_at=datetime.fromtimestamp(NOW_S + 8, UTC))
    assert of(FailureSeen, keeper.records(view(15, events=(over,)))) == []


def test_what_asks_for_nothing_is_well_at_once_and_hits_no_job() -> None:
    (seen,) = of(FailureSeen, ViewRecorder().records(view(0, events=(replace(EVENT, severity=Severity.WATCH),))))
    assert (seen.cleared_at, seen.job) == (seen.at, None)


def test_a_keeper_that_is_started_again_goes_on_with_what_is_open(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    writer = DirectWriter(engine)
    writer.write(ViewRecorder().records(view(0, events=(EVENT,))))
    again = ViewRecorder(still_open=find_failures(engine, still=True))
    writer.write(again.records(view(50, events=(replace(EVENT, first_seen_s=NOW_S + 50),))))
    (kept,) = find_failures(engine)
    assert kept.at == datetime.fromtimestamp(NOW_S, UTC)
    writer.write(again.records(view(60)))
    (kept,) = find_failures(engine)
    assert kept.cleared_at == datetime.fromtimestamp(NOW_S + 60, UTC)


def test_what_was_repaired_while_nobody_looked_is_over_after_a_while(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    writer = DirectWriter(engine)
    writer.write(ViewRecorder().records(view(0, events=(EVENT,))))
    again = ViewRecorder(still_open=find_failures(engine, still=True))
    assert of(FailureSeen, again.records(view(10))) == []
    writer.write(again.records(view(20 + SETTLE_S)))
    assert find_failures(engine, still=True) == []


def test_failures_and_jobs_of_another_cluster_in_the_store_are_left_alone(tmp_path: Path) -> None:
    """Nodes of two clusters have the same names, and their jobs the same numbers."""
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    writer = DirectWriter(engine)
    west = replace(view(0, job(10), events=(EVENT,)), cluster="west")
    writer.write(ViewRecorder().records(west))
    here = ViewRecorder(still_open=find_failures(engine, still=True), unfinished=find_jobs(engine, running=True))
    for at_s in (10, 20 + SETTLE_S):
        found = here.records(view(at_s))
        assert of(FailureSeen, found) == []
        assert of(JobSeen, found) == []
    (begun,) = of(FailureSeen, here.records(view(30 + SETTLE_S, events=(EVENT,))))
    assert begun.cluster == "lab"
    assert [each.cluster for each in find_failures(engine, still=True)] == ["west"]


def test_what_is_told_twice_is_kept_once(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    writer = DirectWriter(engine)
    records = [*ViewRecorder().records(view(0, job(10), events=(EVENT,)))]
    assert writer.write(records).new == len(records)
    assert writer.write(records).new == 0
    assert [each.predicted_mfu for each in find_jobs(engine)] == [0.4]
