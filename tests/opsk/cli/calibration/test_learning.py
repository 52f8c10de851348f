"""Does ``opsk calibrate`` learn from a probe and a store, publish what is better, and go back?"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.cli.main import opsk
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.errors import InputError
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
        f'top.exporter_port = 0\n[learning]\nenabled = true\nfolder = "{tmp_path / "learned"}"\n',
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
    assert "step times: taken: mean error " in published.stdout
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


MACHINE = probe_document()["machine"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(probe_document())[:900], "no whole JSON document"),
        ("", "no whole JSON document"),
        ("[]", "no measurement of opsk probe"),
        (json.dumps({"format": "other"}), "no measurement of opsk probe"),
        (json.dumps(probe_document(version=2)), "a measurement in format 2, and this release reads format 1"),
        (json.dumps(probe_document(took_s=-1.0)), "took_s: Input should be greater than or equal to 0"),
        (json.dumps(probe_document(machine={**MACHINE, "gpu": "NVIDIA A100-SXM4-80GB"})),
         "measured on a100-sxm-80gb, and superpod-h100 has h100-sxm"),
        (json.dumps(probe_document(machine={**MACHINE, "gpu": "\x1b[1mBlorb"})), r"unknown GPU '\x1b[1mBlorb'"),
        (json.dumps(probe_document(machine={**MACHINE, "device": "cpu"})), "measured on processors"),
    ],
)  # fmt: skip
def test_a_measurement_that_cannot_be_used_is_one_line_and_changes_nothing(site: Path, text: str, said: str) -> None:
    (site / "wrong.json").write_text(text, encoding="utf-8")
    runner = CliRunner()
    for arguments in (("--probe", "wrong.json", "--output", "out.toml"), ("--learn", "--probe", "wrong.json")):
        named = [str(site / word) if "." in word else word for word in arguments]
        error = runner.invoke(opsk, ["calibrate", *named]).exception
        assert isinstance(error, InputError)
        assert error.message.startswith(f"{site / 'wrong.json'}: {said}"), error.message
        assert "\n" not in error.message
    assert not (site / "out.toml").exists()
    assert not (site / "learned" / "nodes").exists()


def test_doubtful_measurements_are_named_and_used_less_or_not_at_all(site: Path) -> None:
    slow = [{**row, "is_throttled": True, "flop_per_s": 1e3} for row in probe_document()["matmul"]]
    (site / "probe.json").write_text(json.dumps(probe_document(matmul=slow)), encoding="utf-8")
    result = run("--probe", site / "probe.json", "--json")
    warnings = json.loads(result.stdout)["warnings"]
    assert result.return_value == 0
    assert warnings[0] == "NVIDIA H100 80GB HBM3: heat held the clock down in 40% of the measurements: they count less"
    assert warnings[1].endswith(": matmul bf16 is 1.7e-12 times what opsk expects, not used")
    moved = {item["name"]: item["after"] / item["before"] for item in json.loads(result.stdout)["changes"]}
    assert "links.hb_fraction" in moved
    assert moved.get("gpu.hopper.matmul_fraction", 1.0) > 0.9, "attention alone moves it"


def test_invented_step_times_are_named_with_their_owner_and_do_not_count(site: Path) -> None:
    records = build_jobs(12, 8.6)
    invented = {str(number) for number in range(1, 12, 3)}  # those of user1
    (site / "opsk.db").unlink()
    DirectWriter(open_store(f"sqlite:///{site / 'opsk.db'}")).write([
        replace(item, step_s=0.05 * item.step_s) if isinstance(item, Measured) and item.job in invented else item
        for item in records
    ])  # fmt: skip
    result = run("--probe", site / "probe.json", "--from-store")
    assert result.return_value == 0
    assert "! user1: job" in result.stdout
    assert "with 0.05 times the predicted step time" in result.stdout
    assert "and 1 more (out of the prior's reach, not used)" in result.stdout
    assert "the times of 8 jobs of this site" in result.stdout


def test_a_table_of_runs_is_not_mixed_with_it(site: Path) -> None:
    result = run("runs.csv", "--undo")
    assert "--probe, --learn and --undo take no RUNS.csv" in str(result.exception)
