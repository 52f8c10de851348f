"""Reports and failures go into the store, and come back as what failed before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from opsk.postmortem.evidence.index import list_entries
from opsk.postmortem.evidence.recurrence import compute_recurrence, read_known_failures, store_report
from opsk.postmortem.values import Cause, FailureClass, JobFacts, Place, Report
from opsk.store.database.engine import open_store
from opsk.store.records.reports import find_reports
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import job as stored_job

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_store(f"sqlite:///{tmp_path / 'opsk.db'}")
    yield opened
    opened.dispose()


def report(number: int, failure: FailureClass = FailureClass.GPU_HARDWARE) -> Report:
    facts = JobFacts(job_id=str(number), user="ada", cluster="titan", state="FAILED",
                     end_s=(NOW + timedelta(hours=number)).timestamp())  # fmt: skip
    cause = Cause(failure=failure, what="Xid 79", where=Place(node="n5", gpu_index=3), confidence=0.9)
    return Report(state="FAILED", job=facts, root=cause)


def test_what_is_stored_recurs(engine: Engine) -> None:
    DirectWriter(engine).write([
        stored_job(str(number), node_list="n[0-9]", user="ada", submitted_at=NOW + timedelta(minutes=number),
                   at=NOW + timedelta(minutes=number))
        for number in range(50)
    ])  # fmt: skip
    for number in range(1, 6):
        store_report(engine, report(number), json.dumps({"job": number}), NOW.timestamp() + number)
    known = read_known_failures(engine, days=30, before_s=(NOW + timedelta(days=1)).timestamp())
    assert (known.jobs, known.jobs_of_node["n5"], len(known.failures)) == (50, 50, 5)
    gpu, node = compute_recurrence(report(6), known, days=30)
    assert (gpu.subject, gpu.failures, node.jobs) == ("gpu:n5/3", 6, 50)
    assert gpu.lemon > 3, "6 failures, a tenth of 6 expected: at least 2.6 of 0.6"
    assert len(find_reports(engine, report="postmortem")) == 5
    assert find_reports(engine, job="3")[0].root_cause == "gpu_hardware"


def test_only_failures_of_the_days_before_count(engine: Engine) -> None:
    for number in range(1, 4):
        store_report(engine, report(number), "{}", NOW.timestamp())
    assert read_known_failures(engine, days=30, before_s=NOW.timestamp()).failures == ()
    later = (NOW + timedelta(days=60)).timestamp()
    assert read_known_failures(engine, days=30, before_s=later).failures == ()


def test_the_index_lists_the_last_report_first_and_names_damaged_ones(tmp_path: Path) -> None:
    for number, text in ((1, json.dumps({"state": "FAILED", "job": {"job_id": "1", "user": "a\x1b[31m"}, "root_cause": {
        "class": "fabric", "where": "node n1", "what": "link", "confidence": 0.9}})), (2, "{"), (3, "[]")):  # fmt: skip
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "report.json").write_text(text)
    (tmp_path / "4").mkdir()
    (tmp_path / "other").mkdir()
    found, problems = list_entries(tmp_path)
    assert [(entry.job, entry.root_class, entry.where) for entry in found] == [("1", "fabric", "node n1")]
    assert len(problems) == 2
    assert list_entries(tmp_path / "none")[1] != ()
