"""Does ``opsk calibrate`` learn from a probe and a store, publish what is better, and go back?"""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.cli.main import opsk
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.store.database.engine import open_store
from opsk.store.records.advice import AdviceGiven
from opsk.store.records.jobs import JobSeen
from opsk.store.records.measurements import Measured
from opsk.store.writing import DirectWriter, Record
from tests.fakes.probe_documents import probe_document
from tests.opsk.app.learning.test_store_jobs import DOCUMENT


def run(*arguments: object) -> Result:
    return CliRunner().invoke(opsk, ["calibrate", *map(str, arguments)], standalone_mode=False)


def build_jobs(count: int, step_s: float) -> list[Record]:
    """Return steady jobs of three users, one script, and its advice."""
    now = datetime.now(UTC)
    records: list[Record] = [
        AdviceGiven(
            cluster="titan", at=now - timedelta(days=9), uid=1, script_hash="5e" * 32, verdict="fits",
            document=deepcopy(DOCUMENT),
        )
    ]  # fmt: skip
    for number in range(count):
        began = now - timedelta(days=5) + timedelta(hours=number)
        seen = JobSeen(
            cluster="titan", job=str(number), submitted_at=began, at=began + timedelta(minutes=50), started_at=began,
            ended_at=began + timedelta(minutes=50), user=f"user{number % 3}", state="COMPLETED", gpus=64,
            script_hash="5e" * 32,
        )  # fmt: skip
        records.append(seen)
        records += [
            Measured(
                cluster="titan", job=seen.job, source="log:megatron", from_at=began + timedelta(minutes=10 * part),
                until_at=began + timedelta(minutes=10 * part + 10), steps=40, step_s=step_s * (1 + 0.01 * (number % 3)),
            )
            for part in range(5)
        ]  # fmt: skip
    return records


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a site with six jobs that take 1.2 times what is predicted, and with a measured node."""
    (tmp_path / "probe.json").write_text(json.dumps(probe_document()), encoding="utf-8")
    url = f"sqlite:///{tmp_path / 'opsk.db'}"
    DirectWriter(open_store(url)).write(build_jobs(6, 8.6))
    (tmp_path / "opsk.toml").write_text(
        f'cluster = "superpod-h100"\nstore.url = "{url}"\n'
        f'[learning]\nenabled = true\nfolder = "{tmp_path / "learned"}"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    return tmp_path


def test_a_probe_and_the_store_are_one_fit(site: Path) -> None:
    output = site / "site.toml"
    shown = json.loads(run("--probe", site / "probe.json", "--from-store", "--output", output, "--json").stdout)
    assert shown["is_taken"]
    assert shown["time"]["jobs"] == 6
    assert shown["time"]["after"]["median"] < shown["time"]["before"]["median"]
    assert {"name", "before", "after"} <= shown["changes"][0].keys()
    assert shown["nodes"][0]["gpu"] == "h100-sxm"
    assert len(shown["time"]["left_out"]) == 6
    learned = load_efficiency(output)
    assert learned.offset["megatron-core/hopper/dense/tp-none/8b"].time_jobs == 6


def test_what_is_learned_is_published_used_and_undone(site: Path) -> None:
    published = run("--learn", "--probe", site / "probe.json")
    assert published.return_value == 0
    assert "step times: taken" in published.stdout
    assert "left out one by one" in published.stdout
    layout = "megatron-core/hopper/dense/tp-none"
    cells = {"megatron-core/hopper", layout, f"{layout}/8b"}
    probed = {f"{family}/hopper" for family in ("megatron", "deepspeed", "pytorch")}
    probed |= {"pytorch/hopper/dense/dp-none", "pytorch/hopper/dense/dp-none/0.5b"}  # the step of the document
    assert load_efficiency(None).offset.keys() - DEFAULT.offset.keys() == cells | probed
    assert [path.name for path in (site / "learned" / "nodes").iterdir()]
    assert "not published: it is the fit in use" in run("--learn").stdout
    assert len(list((site / "learned" / "fits").glob("*.toml"))) == 1
    undone = run("--undo")
    assert "in use again: the efficiencies of the site" in undone.stdout
    assert load_efficiency(None) == DEFAULT
    again = run("--learn")
    assert "the next one waits for 5 jobs that end later (0 so far)" in again.stdout
    assert load_efficiency(None) == DEFAULT


def test_a_site_that_does_not_learn_says_how_to_begin(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPSK_CONFIG")
    result = run("--learn")
    assert (result.return_value, result.stdout) == (0, "")
    assert "learning is off; in opsk.toml" in result.stderr


def test_a_store_without_jobs_publishes_nothing(site: Path) -> None:
    (site / "opsk.db").unlink()
    open_store(f"sqlite:///{site / 'opsk.db'}")
    result = run("--learn", "--json")
    assert result.return_value == 1
    document = json.loads(result.stdout)
    assert (document["is_taken"], document["published"]) == (False, None)
    assert "no job" in document["time"]["why_not"]


def test_a_table_of_runs_is_not_mixed_with_it(site: Path) -> None:
    result = run("runs.csv", "--undo")
    assert "--probe, --learn and --undo take no RUNS.csv" in str(result.exception)
