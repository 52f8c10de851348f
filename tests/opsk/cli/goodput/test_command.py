from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from opsk.app.goodput import format_ordinal, format_percent
from opsk.cli.goodput.text import print_goodput
from opsk.cli.main import opsk
from opsk.errors import OpskError

PLAN = """
cluster = "superpod-h100"
nodes = 64
[model]
like = "llama-3-70b"
[plan]
tp = 8
pp = 4
sharding = "zero1"
sequence_parallel = true
recompute = "selective"
micro_batch = 1
global_batch = 1024
[run]
tokens = 1e12
pue = 1.2
"""
RACKS = ("--cluster", "superpod-gb200", "--model", "llama-3-70b", "--gpus", "512", "--tp", "8", "--global-batch", "512")


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, ["goodput", *arguments], standalone_mode=False)


def document(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_goodput_is_told_in_tokens_and_as_a_share(plan_file: str):
    found = document(plan_file)
    goodput = found["goodput"]
    assert 0.9 < goodput["share"] < 1
    for end in ("low", "expected", "high"):
        assert goodput["tokens_per_s"][end] == pytest.approx(goodput["share"] * goodput["ideal_tokens_per_s"][end])
    assert sum(found["time_shares"].values()) == pytest.approx(1)
    assert sum(cause["share"] for cause in found["causes"]) == pytest.approx(1)
    assert found["spares"]["kind"] == "node"
    assert found["spares"]["best"]["goodput"] == goodput["share"]
    assert sum(row["is_best"] for row in found["spares"]["rows"]) == 1
    assert found["checkpoint"]["interval_steps"] >= 1
    assert {entry["field"] for entry in found["assumed"]} >= {"rates", "checkpoint.restart_s"}


def test_the_whole_run_takes_longer_than_without_failures(plan_file: str):
    found = document(plan_file)
    run_ = found["run"]
    assert run_["time_s"]["expected"] == pytest.approx(run_["ideal_time_s"]["expected"] / found["goodput"]["share"])
    # predict's energy of the steps is the least that it can be
    predicted = json.loads(CliRunner().invoke(opsk, ["predict", plan_file, "--json"], standalone_mode=False).stdout)
    assert run_["energy_kwh"]["expected"] > predicted["run"]["energy_kwh"]["expected"]
    assert run_["energy_kwh"]["expected"] < 1.3 * predicted["run"]["energy_kwh"]["expected"]


def test_people_get_the_share_the_spares_and_what_to_do(plan_file: str):
    text = run(plan_file).stdout
    assert text.startswith("llama-3-70b · 512 × h100-sxm (superpod-h100)")
    for start in ("goodput", "stops", "saving", "spares", "run", "advice", "assumed"):
        assert re.search(rf"^{start} ", text, re.MULTILINE), start
    assert "▶" in text
    words = " ".join(text.split())
    assert re.search(
        r"\d+ spare nodes bring \d+% \(goodput .* → .*\); the \w+ would bring .* and hold .* more GPUs", words
    )


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_picture_fits_the_terminal(plan_file: str, width: int):
    console = Console(width=width, record=True, file=io.StringIO())
    print_goodput(document(plan_file), console)
    print_goodput(document(*RACKS), console)
    assert max(len(line) for line in console.export_text().splitlines()) <= width


def test_rows_are_csv(plan_file: str):
    rows = list(csv.DictReader(io.StringIO(run(plan_file, "--csv").stdout)))
    told = document(plan_file)["spares"]["rows"]
    assert [int(row["spares"]) for row in rows] == [row["spares"] for row in told]
    assert [float(row["goodput"]) for row in rows] == pytest.approx([row["goodput"] for row in told])


def test_of_a_rack_some_trays_are_spares():
    found = document(*RACKS)
    assert found["spares"]["kind"] == "hb_domain"
    assert found["spares"]["best"]["spare_nodes_inside"] == 2
    assert any(
        sentence.startswith("use 64 of the 72 GPUs held in each HB domain: 2 of 18 nodes are spares")
        for sentence in found["recommendation"]
    )
    assert any(entry["field"] == "rates.hb_domain_mtbf_s" for entry in found["assumed"])


def test_flags_beat_a_site_file_and_that_beats_what_is_published(plan_file: str, tmp_path: Path):
    site = tmp_path / "site.toml"
    site.write_text("node_repair_h = 10\nswitch_repair_h = 5\n")
    rates = document(plan_file, "--rates", str(site), "--node-repair-h", "20", "--nic-mtbf-h", "never")["rates"]
    assert (rates["node_repair_s"], rates["switch_repair_s"], rates["nic_mtbf_s"]) == (72_000, 18_000, None)
    assert rates["gpu_mtbf_s"] == document(plan_file)["rates"]["gpu_mtbf_s"]
    assert rates["name"] == str(site)


def test_what_never_fails_needs_nothing(plan_file: str):
    never = [f"--{part}-mtbf-h" for part in ("gpu", "host", "nic", "link", "switch", "hb-domain", "software")]
    found = document(plan_file, *(word for flag in never for word in (flag, "never")))
    assert found["goodput"]["share"] == 1
    assert found["mtbf_s"] is None
    assert found["spares"]["best"]["spares"] == 0
    assert found["recommendation"][0] == "nothing fails: no checkpoint is needed"
    assert run(plan_file, *(word for flag in never for word in (flag, "never"))).exception is None


def test_a_stated_time_between_failures_is_met(plan_file: str):
    found = document(plan_file, "--checkpoint-mtbf-s", "36000")
    assert found["mtbf_s"] == pytest.approx(36_000)
    assert any(entry["field"] == "rates.scaled_by" for entry in found["assumed"])


def test_shrinking_needs_fewer_spares_than_waiting(plan_file: str):
    waits, shrinks = document(plan_file), document(plan_file, "--when-out", "shrink")
    assert shrinks["spares"]["best"]["spares"] <= waits["spares"]["best"]["spares"]
    assert shrinks["goodput"]["per_held_gpu"] >= waits["goodput"]["per_held_gpu"]


def test_goodput_is_told_for_the_spares_that_are_held(plan_file: str):
    best, held = document(plan_file), document(plan_file, "--hold", "1")
    assert held["spares"]["best"]["spares"] == 1
    assert held["spares"]["optimum"]["spares"] == best["spares"]["best"]["spares"] > 1
    assert held["goodput"]["share"] == best["spares"]["rows"][1]["goodput"]
    assert any("would give most for each GPU held" in sentence for sentence in held["recommendation"])
    none = run(plan_file, "--hold", "0")
    assert "no spare node is held" in none.stdout
    many = document(plan_file, "--hold", "500")
    assert many["spares"]["best"]["spares"] == 500


def test_spare_trays_are_told_as_asked_for():
    found = document(*RACKS, "--spare-trays", "4", "--hold", "1")
    assert {row["spare_nodes_inside"] for row in found["spares"]["rows"]} == {4}
    assert found["spares"]["best"]["spares"] == 1
    for result in (run(*RACKS, "--spare-trays", "18"), run(*RACKS, "--spare-trays", "-1")):
        assert isinstance(result.exception, OpskError)
        assert "--spare-trays" in result.exception.message


def test_more_nodes_than_the_cluster_has_are_told(plan_file: str):
    found = document(plan_file, "--nodes", "127", "--pp", "1", "--global-batch", "1270")
    assert any("would have to be bought" in sentence for sentence in found["recommendation"])
    assert not found["spares"]["best"]["in_cluster"]


def test_all_that_is_wrong_is_told_at_once(plan_file: str):
    result = run(
        plan_file, "--tp", "7", "--gpu-mtbf-h", "-3", "--nic-mtbf-h", "often", "--node-repair-h", "never",
        "--when-out", "panic", "--spares", "many", "--radix", "63", "--rates", "nobody", "--json", "--csv",
        "--hold", "1.5",
    )  # fmt: skip
    assert isinstance(result.exception, OpskError)
    for words in (
        "tp 7",
        "--gpu-mtbf-h is '-3'",
        "--nic-mtbf-h: 'often'",
        "--node-repair-h: 'never'",
        "--when-out: 'panic'",
        "--spares: 'many'",
        "--radix is 63",
        "--hold: '1.5'",
        "unknown failure rates 'nobody'",
        "--json and --csv",
    ):
        assert words in result.exception.message, words


@pytest.mark.parametrize("content", [b"gpu_mtbf_h = -1\nfoo = 3", b"\xff\xfe", b"not toml", b"x" * 70_000])
def test_a_broken_site_file_is_named(plan_file: str, tmp_path: Path, content: bytes):
    site = tmp_path / "site.toml"
    site.write_bytes(content)
    result = run(plan_file, "--rates", str(site))
    assert isinstance(result.exception, OpskError)
    assert "site.toml" in result.exception.message
    assert isinstance(run(plan_file, "--rates", str(tmp_path)).exception, OpskError)
    assert isinstance(run(plan_file, "--rates", "./none.toml").exception, OpskError)


HOURS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.text(max_size=8),
    st.sampled_from(["never", "1e-9", "0"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    gpu=HOURS,
    repair=HOURS,
    switch=HOURS,
    restart=HOURS,
    interval=HOURS,
    spares=st.sampled_from(["0", "7", "-1", "4096"]),
)
def test_any_times_give_shares_or_an_error(
    plan_file: str, gpu: str, repair: str, switch: str, restart: str, interval: str, spares: str
):
    arguments = [
        f"--gpu-mtbf-h={gpu}", f"--node-repair-h={repair}", f"--switch-mtbf-h={switch}", f"--spares={spares}",
        f"--checkpoint-restart-s={restart}", f"--checkpoint-interval-s={interval}",
    ]  # fmt: skip
    result = run(plan_file, *arguments, "--json")
    if result.exception is not None:
        assert isinstance(result.exception, OpskError), result.exception
        return
    found = json.loads(result.stdout)
    assert 0 <= found["goodput"]["share"] <= 1 + 1e-9
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in found["time_shares"].values())
    assert run(plan_file, *arguments).exception is None


def test_words():
    assert [format_ordinal(number) for number in (1, 3, 11, 12, 13, 21, 22, 23, 57)] == [
        "first", "third", "11th", "12th", "13th", "21st", "22nd", "23rd", "57th",
    ]  # fmt: skip
    assert [format_percent(share) for share in (0.0, 1e-5, 0.0012, 0.031, 0.5)] == [
        "0.0%",
        "< 0.1%",
        "0.1%",
        "3.1%",
        "50%",
    ]
