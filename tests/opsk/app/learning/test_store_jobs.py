"""Do jobs that ran well flow from the store into a calibration, and only they?"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from sqlalchemy import Engine

from opsk.app.learning.store_jobs import read_store_jobs, require_jobs, select_rows
from opsk.calibration.runs.run_writer import COLUMNS, MeasuredInterval, compute_steady_step_s
from opsk.calibration.runs.runs import parse_runs
from opsk.diagnosis.losses.values import Cause, Finding, Losses
from opsk.errors import InputError
from opsk.store.database.engine import open_store
from opsk.store.records.advice import AdviceGiven
from opsk.store.records.reports import Report
from opsk.store.records.use import JobUsed
from opsk.store.writing import DirectWriter, Record
from opsk_tui.data.loss_reports import build_loss_report
from tests.fakes.store_records import HASH, NOON, failure, interval, job, later

DOCUMENT = {
    "cluster": {"name": "superpod-h100", "gpu": "h100-sxm"},
    "workload": {
        "framework": "megatron-core",
        "model": {
            "name": "llama-3-8b", "layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8,
            "vocab": 128256, "seq": 8192, "gated_mlp": True, "head_dim": 128, "experts": None,
        },
        "plan": {
            "tp": 2, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "dp": 32, "gpus": 64, "sharding": "zero1",
            "recompute": "none", "precision": "bf16", "micro_batch": 1, "global_batch": 512, "sequence_parallel": True,
        },
    },
}  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_store(f"sqlite:///{tmp_path / 'opsk.db'}")


def advised(number: str, **more: object) -> list[object]:
    return [
        job(number, script_hash=HASH, started_at=NOON, gpus=64, **more),
        *(
            interval(minute, job=number, steps=30, step_s=10.0 + 0.1 * (minute % 3), source="log:megatron")
            for minute in range(8)
        ),
    ]


def given(document: object = DOCUMENT) -> AdviceGiven:
    return AdviceGiven(cluster="titan", at=NOON, uid=1, script_hash=HASH, verdict="fits", document=document)  # type: ignore[arg-type]


def test_a_steady_job_with_its_advice_is_a_run(engine: Engine) -> None:
    DirectWriter(engine).write([given(), *advised("7")])  # type: ignore[list-item]
    (row,) = select_rows(engine)
    text = ",".join(COLUMNS) + "\n" + ",".join(f'"{row.get(name, "")}"' for name in COLUMNS)
    (run,) = parse_runs(text).runs
    assert (run.id, run.source, run.measured.step_s) == ("titan-7", "titan", 10.1)
    assert (run.plan.tp, run.plan.dp, run.plan.global_batch, run.plan.gpus) == (2, 32, 512, 64)
    assert (run.model.layers, run.model.gated_mlp) == (32, True)
    assert run.states_time_inputs


def test_jobs_that_failed_or_of_which_no_advice_was_kept_are_none(engine: Engine) -> None:
    broken = failure(job="8", at=later(minutes=3))
    DirectWriter(engine).write([given(), *advised("8"), broken, job("9", started_at=NOON)])  # type: ignore[list-item]
    assert select_rows(engine) == []


def used(number: str, **more: object) -> JobUsed:
    values = {
        "cluster": "titan", "job": number, "submitted_at": NOON, "at": later(hours=1), "uid": 1, "script_key": HASH,
        "command_key": HASH, "state": "COMPLETED", "observed_s": 3000.0, "memory_peak_bytes": 6e10, **more,
    }  # fmt: skip
    return JobUsed(**values)  # type: ignore[arg-type]


def losses(number: str, cause: Cause, share: float = 0.1) -> Report:
    """Return the report that the recorder stores."""
    found = Losses(findings=(Finding(cause=cause, share=share, confidence=0.9),))
    report = build_loss_report("titan", number, found, later(minutes=4))
    assert report is not None
    return report


@pytest.mark.parametrize(
    ("records", "job_fields", "why"),
    [
        ([losses("7", Cause.DATA_LOADING)], {}, "slowed by data loading"),
        ([losses("7", Cause.STRAGGLER)], {}, "slowed by straggler"),
        ([failure(node="n5", at=later(minutes=-9))], {"node_list": "n[4-11]"}, "on a node with a failure"),
        ([failure(node="n5", at=later(minutes=2), cleared_at=later(minutes=3))], {"node_list": "n5"},
         "on a node with a failure"),
        ([used("7", gpus=64, idle_gpus=2)], {}, "with idle GPUs"),
        ([], {"state": "FAILED"}, "with a failure"),
    ],
)  # fmt: skip
def test_a_job_that_ran_badly_does_not_teach(
    engine: Engine, records: list[Record], job_fields: dict[str, object], why: str
) -> None:
    DirectWriter(engine).write([given(), *advised("7", **job_fields), *records])  # type: ignore[list-item]
    jobs = read_store_jobs(engine)
    assert (jobs.jobs, dict(jobs.left_out)) == ((), {why: 1})
    with pytest.raises(InputError, match=f"1 {why}"):
        require_jobs(jobs)


@pytest.mark.parametrize(
    "harmless",
    [
        failure(node="n5", at=later(hours=-3), cleared_at=later(hours=-2)),  # before it ran
        failure(node="n99"),  # elsewhere
        losses("7", Cause.POWER_CAP),  # the site's nodes are like that
        losses("7", Cause.STRAGGLER, share=0.03),
        used("7", gpus=64, idle_gpus=64),  # steps were measured: its exporter is at fault
        failure(node="n5", at=later(minutes=2), cleared_at=later(minutes=2)),  # an XID that asks for nothing
    ],
)
def test_failures_elsewhere_or_before_do_not_matter(engine: Engine, harmless: Record) -> None:
    DirectWriter(engine).write([given(), *advised("7", node_list="n[4-11]", ended_at=later(hours=1)), harmless])  # type: ignore[list-item]
    assert len(read_store_jobs(engine).jobs) == 1


def test_a_job_carries_its_owner_its_peak_and_whether_it_is_new(engine: Engine) -> None:
    ended = {"ended_at": later(hours=1), "user": "ada"}
    quick = job("8", script_hash=HASH, gpus=64, **ended)  # never steady: its memory alone teaches
    DirectWriter(engine).write([given(), *advised("7", **ended), used("7"), quick, used("8", observed_s=60.0)])  # type: ignore[list-item]
    by_id = {item.id: item for item in read_store_jobs(engine, new_since=later(minutes=30)).jobs}
    assert (by_id["7"].owner, by_id["7"].step_s, by_id["7"].peak_bytes, by_id["7"].is_new) == ("ada", 10.1, 6e10, True)
    assert (by_id["8"].step_s, by_id["8"].peak_bytes) == (None, 6e10)
    assert [item.id for item in read_store_jobs(engine, with_memory=False).jobs] == ["7"]


def test_a_name_of_several_lines_confuses_no_jobs(engine: Engine) -> None:
    hostile = deepcopy(DOCUMENT)
    hostile["workload"]["model"]["name"] = "llama\n\r\n\x0bx,y\n"  # type: ignore[index]
    DirectWriter(engine).write([given(hostile), *advised("7", user="ada"), *advised("8", user="eve")])  # type: ignore[list-item]
    assert {item.id: item.owner for item in read_store_jobs(engine).jobs} == {"7": "ada", "8": "eve"}


def test_each_start_of_a_requeued_job_is_a_job_of_its_own(engine: Engine) -> None:
    again = later(hours=1)
    slower = [interval(60 + minute, job="7", steps=30, step_s=13.0, source="log:megatron") for minute in range(8)]
    first = advised("7", ended_at=later(minutes=30))
    second = job("7", submitted_at=again, at=again, script_hash=HASH, started_at=again, gpus=64)
    DirectWriter(engine).write([given(), *first, second, *slower])  # type: ignore[list-item]
    assert [item.step_s for item in read_store_jobs(engine).jobs] == [13.0, 10.1]


@pytest.mark.parametrize("document", [None, [], {"cluster": 3, "workload": []}, {"cluster": {"name": "no such"}}])
def test_odd_documents_are_passed_over(engine: Engine, document: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk.app.learning.store_jobs.resolve_cluster", lambda named, wrong: None)
    DirectWriter(engine).write([given(document), *advised("7")])  # type: ignore[list-item]
    assert select_rows(engine) == []


def test_steady_is_long_and_alike() -> None:
    alike = [MeasuredInterval(steps=50, step_s=99.0), *[MeasuredInterval(steps=50, step_s=10.0)] * 4]
    assert compute_steady_step_s(alike) == 10.0
    assert compute_steady_step_s(alike[:3]) is None
    assert compute_steady_step_s([MeasuredInterval(steps=5, step_s=10.0)] * 10) is None
    assert (
        compute_steady_step_s([MeasuredInterval(steps=50, step_s=step_s) for step_s in (9, 10, 12, 10, 8, 14)]) is None
    )
