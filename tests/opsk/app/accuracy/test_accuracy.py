"""Are the site's jobs compared as they were predicted and measured, and others' jobs hidden as Slurm hides them?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from opsk.app.accuracy.document import OTHERS, Reader, build_accuracy_document, find_reader
from opsk.app.accuracy.jobs import ComparedJobs, read_compared_jobs
from opsk.errors import SlurmError
from opsk.slurm.commands.remap_commands import Who
from opsk.store.database.engine import open_store
from opsk.store.records.advice import AdviceGiven
from opsk.store.records.reports import Report
from opsk.store.records.use import JobUsed
from opsk.store.writing import DirectWriter, Record
from opsk.text import to_json_values
from opsk.units import GIB
from tests.fakes.store_records import HASH, NOON, failure, interval, job, later

NUMBERS = count()
DOCUMENT = {
    "cluster": {"name": "titan", "gpu": "h100-sxm"},
    "workload": {"framework": "megatron-lm"},
    "prediction": {"kind": "h100-sxm/megatron-core/dense"},
    "time": {"step_s": {"low": 8.0, "expected": 10.0, "high": 12.0}},
    "memory": {"total_bytes": {"low": 50 * GIB, "expected": 60 * GIB, "high": 70 * GIB}},
}
ADVICE = AdviceGiven(cluster="titan", at=later(seconds=-5), uid=1, script_hash=HASH, verdict="fits", document=DOCUMENT)
JOB = job(
    user="ada", name="llama", state="COMPLETED", script_hash=HASH, started_at=NOON, ended_at=later(hours=2),
    predicted_step_s=10.0, predicted_memory_bytes=60 * GIB,
)  # fmt: skip
STEPS = [
    interval(5 * n, steps=30, step_s=20.0 if n == 0 else 11.0, until_at=later(minutes=5 * n + 5)) for n in range(4)
]
USED = JobUsed(
    cluster="titan", job="4711", submitted_at=NOON, at=later(hours=2), uid=1, script_key=HASH, command_key=HASH,
    observed_s=7000.0, memory_peak_bytes=64 * GIB, gpu_type="h100", state="COMPLETED", ended_at=later(hours=2),
)  # fmt: skip


Compare = Callable[..., ComparedJobs]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests: a new one takes a second."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'opsk.db'}"


@pytest.fixture
def compare(url: str) -> Iterator[Compare]:
    """Stores records as those of another cluster for each call, and compares its jobs."""
    engine = open_store(url)

    def run(*records: Record) -> ComparedJobs:
        cluster = f"c{next(NUMBERS)}"
        DirectWriter(engine).write([replace(record, cluster=cluster) for record in records])  # type: ignore[call-arg]
        return read_compared_jobs(engine, since=later(days=-1), cluster=cluster)

    yield run
    engine.dispose()


def test_a_job_is_compared_with_the_range_that_its_user_was_shown(compare: Compare) -> None:
    (seen,) = compare(JOB, ADVICE, *STEPS, USED).jobs
    assert (seen.framework, seen.gpu, seen.kind) == ("megatron-lm", "h100-sxm", "h100-sxm/megatron-core/dense")
    assert seen.time is not None
    assert (seen.time.measured, seen.time.low, seen.time.is_in_range) == (11.0, 8.0, True)
    assert seen.memory is not None
    assert (seen.memory.measured, seen.memory.error) == (64 * GIB, pytest.approx(60 / 64 - 1))


def test_without_advice_in_the_store_there_is_no_range_and_the_gpu_is_slurms(compare: Compare) -> None:
    (seen,) = compare(JOB, *STEPS, USED).jobs
    assert (seen.framework, seen.gpu, seen.kind) == ("unknown", "h100", "")
    assert seen.time is not None
    assert seen.time.is_in_range is None


def test_the_range_of_another_prediction_on_the_same_script_is_not_the_jobs(compare: Compare) -> None:
    (seen,) = compare(replace(JOB, predicted_step_s=10.5), replace(ADVICE, at=later(days=-2)), *STEPS).jobs
    assert seen.kind == "h100-sxm/megatron-core/dense"
    assert seen.time is not None
    assert seen.time.is_in_range is None


def test_advice_that_was_given_after_the_job_began_is_not_its_prediction(compare: Compare) -> None:
    (seen,) = compare(JOB, replace(ADVICE, at=later(minutes=30)), *STEPS).jobs
    assert seen.kind == ""


@pytest.mark.parametrize(
    ("records", "measured_s"),
    [
        ([], None),
        ([interval(0, steps=5)], None),  # too few steps
        ([replace(item, source="counters") for item in STEPS], 11.0),
        ([*STEPS[:2], *(replace(item, source="counters", step_s=99.0) for item in STEPS)], 11.0),
        ([interval(-60, steps=90, step_s=50.0)], None),  # of an earlier run of the same number
    ],
)
def test_steps_are_those_of_this_run_by_the_source_that_measured(
    compare: Compare, records: list[Record], measured_s: float | None
) -> None:
    compared = compare(JOB, *records)
    assert compared.predicted == 1
    assert [entry.time.measured for entry in compared.jobs if entry.time] == ([measured_s] if measured_s else [])


@pytest.mark.parametrize("changes", [{"state": "FAILED"}, {"state": "OUT_OF_MEMORY"}, {"state": None}])
def test_the_peak_of_a_job_that_may_have_ended_early_is_no_peak(compare: Compare, changes: dict[str, Any]) -> None:
    assert compare(replace(JOB, **changes), USED).jobs == ()


@pytest.mark.parametrize(("cause", "is_held_up"), [("straggler", True), ("wrong_plan", False), ("power_cap", False)])
def test_the_reason_is_the_lost_time(compare: Compare, cause: str, is_held_up: bool) -> None:
    slow = Report(
        cluster="titan", job="4711", at=later(hours=1), report="losses", form="json", title=f"{cause} at n3: 20%",
        root_cause=cause, content="{}",
    )  # fmt: skip
    (seen,) = compare(JOB, *STEPS, slow).jobs
    assert (seen.reason, seen.is_held_up) == (f"{cause} at n3: 20%", is_held_up)


def test_without_lost_time_the_reason_is_the_failure(compare: Compare) -> None:
    (seen,) = compare(JOB, *STEPS, failure(job="4711", at=later(minutes=5))).jobs
    assert (seen.reason, seen.is_held_up) == ("xid of gpu:n5/3", True)


@pytest.mark.parametrize(
    ("rights", "config", "sees_all"),
    [
        ((Who.USER,), {"PrivateData": "none"}, True),
        ((Who.USER,), {"PrivateData": "accounts,jobs"}, False),
        ((Who.USER, Who.OPERATOR), {"PrivateData": "jobs"}, True),
        ((Who.USER,), None, False),
    ],
)
def test_slurm_decides_who_sees_others(
    rights: tuple[Who, ...], config: Mapping[str, str] | None, sees_all: bool
) -> None:
    def read() -> Mapping[str, str]:
        if config is None:
            raise SlurmError("slurmctld does not answer")
        return config

    assert find_reader(read, lambda: rights).sees_all is sees_all


def test_others_are_counted_and_nothing_names_them(compare: Compare) -> None:
    compared = compare(
        JOB, *STEPS, replace(JOB, job="4712", user="grace", name="secret-project", account="g7"),
        *(replace(item, job="4712") for item in STEPS), failure(job="4712", at=later(minutes=5)),
    )  # fmt: skip
    document = to_json_values(
        build_accuracy_document(compared, Reader(user="ada", sees_all=False), since=NOON - timedelta(days=1))
    )
    assert document["overall"]["time"]["jobs"] == 2
    assert list(document["by_user"]) == ["ada", OTHERS]
    assert {entry["job"] for entry in document["worst"]} == {"4711", None}
    text = json.dumps(document)
    assert not any(word in text for word in ("grace", "secret-project", "4712", "g7", "n5"))
    everything = build_accuracy_document(compared, Reader(user="root", sees_all=True), since=NOON)
    assert list(everything["by_user"]) == ["ada", "grace"]
