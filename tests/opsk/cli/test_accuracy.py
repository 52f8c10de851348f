"""What ``opsk accuracy`` prints: from a store with nothing, with a prediction alone, and with a few jobs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsk.cli.accuracy import accuracy
from opsk.store.database.engine import open_store
from opsk.store.records.reports import Report
from opsk.store.writing import DirectWriter, Record
from tests.fakes.store_records import interval, job

NOW = datetime.now(UTC)
BEGAN = NOW - timedelta(hours=4)
JOB = replace(job(user="ada", state="RUNNING", predicted_step_s=10.0), submitted_at=BEGAN, at=NOW)
STEPS = [
    replace(interval(), from_at=BEGAN + timedelta(minutes=n), until_at=BEGAN + timedelta(minutes=n + 1), steps=30,
            step_s=12.5) for n in range(3)
]  # fmt: skip
REPORT = Report(
    cluster="titan", job="4711", at=NOW, report="losses", form="json", title="data loading\x1b[31m: 19%", content="{}"
)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("OPSK_CONFIG", str(folder / "opsk.toml"))
    learning = f'[learning]\nenabled = true\nfolder = "{folder}"\n'
    (folder / "opsk.toml").write_text(f'[store]\nurl = "sqlite:///{folder}/opsk.db"\n{learning}')
    done = CliRunner().invoke(accuracy, arguments, standalone_mode=False)
    assert done.exception is None, done.output
    return done.stdout


def test_it_says_what_is_missing_and_then_how_good_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/opsk.db")
    assert run(tmp_path, monkeypatch).startswith("no job with a prediction in the last 90 days: the submit hooks")

    def write(*records: Record) -> None:
        DirectWriter(engine).write(records)

    write(JOB)
    assert run(tmp_path, monkeypatch, "--days", "1").startswith("1 job predicted in the last 1 day, and none measured")
    write(*STEPS, REPORT)
    text = run(tmp_path, monkeypatch)
    assert text.startswith("1 of 1 predicted jobs were measured in the last 90 days\nfew jobs")
    assert "data loading\\x1b[31m: 19%" in text
    assert "predicts with no fit of its own jobs" in text
    (tmp_path / "efficiency.toml").write_text("")
    os.utime(tmp_path / "efficiency.toml", (BEGAN.timestamp() - 60, BEGAN.timestamp() - 60))
    text = run(tmp_path, monkeypatch)
    assert f"this fit: learned here, in use since {BEGAN - timedelta(minutes=1):%Y-%m-%d %H:%M} UTC" in text
    assert [line.split()[3:5] for line in text.splitlines() if line.startswith("with this fit")] == [["1", "20%"]]
    document = json.loads(run(tmp_path, monkeypatch, "--json"))
    assert document["fit"]["time"]["jobs"] == 1
    assert document["overall"]["time"]["median_absolute_error"] == pytest.approx(0.2)
    assert document["overall"]["memory"] is None
    assert [entry["reason"] for entry in document["worst"]] == [REPORT.title]
    engine.dispose()
