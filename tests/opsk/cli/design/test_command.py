"""``opsk design``: the document that programs rely on, files, and what is said of requests that cannot be."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.cli.design import answer as design_run
from opsk.cli.main import opsk
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.network_design.papers import load_paper
from opsk.network_design.techniques import Technique

SMALL = ("--gpus", "64", "--model", "llama-3-8b", "--global-batch", "64")
# a space that takes a tenth of the time to search, where the plan itself is not what is tested
FAST = (*SMALL, "--fix", "cp=1", "--fix", "shard_gpus=0", "--fix", "schedule=1f1b", "--fix", "tp=1,2,8")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(opsk, ["design", *arguments], standalone_mode=False)


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error_of(*arguments: str) -> OpskError:
    result = run(*arguments)
    assert isinstance(result.exception, OpskError), result.output
    return result.exception


def test_a_row_has_parts_money_and_the_models_own_plan():
    rows = document(*SMALL)["rows"]
    assert [row["network"] for row in rows] == ["rail-optimized", "rail-only", "fat-tree:2", "fat-tree:4"]
    row = rows[0]
    # 64 NICs on 64 ports: one switch, a transceiver at both ends of each link; 694 USD a port, 199 a transceiver
    assert (row["tiers"], row["switches"], row["transceivers"]) == (1, 1, 128)
    assert row["cost_usd"] == 64 * 694 + 128 * 199
    assert row["power_w"] == 64 * 18 + 128 * 9
    step = row["models"][0]
    assert step["plan"]["gpus"] == 64
    assert step["plan"]["global_batch"] == 64
    assert step["step_s"] == pytest.approx(sum(step["components"].values()))
    assert step["verdict"] == "fits"
    assert step["step"]["low"] < step["step"]["expected"] == step["step_s"] < step["step"]["high"]


def test_savings_are_told_against_the_rail_optimised_network():
    rows = document("--gpus", "32768", "--hb-domain", "256", "--radix", "128", "--network", "rail-only",
                    "--network", "rail-optimized")["rows"]  # fmt: skip
    saved = {row["network"]: row["saved"] for row in rows}
    # table II of the rail-only paper prints 77 and 75 %
    assert round(saved["rail-only"]["cost"], 3) == 0.766
    assert saved["rail-only"]["power"] == 0.75
    assert saved["rail-only"]["against"] == "rail-optimized"
    assert saved["rail-optimized"] is None


def test_sweeps_options_and_failures_come_in_one_document():
    found = document(*FAST, "--network", "rail-only", "--option", "all", "--sweep", "nics=1,8", "--failures")
    assert len(found["rows"]) == 2 * 9
    assert {row["option"] for row in found["rows"]} == {None, *Technique}
    assert {row["sweep"]["nics"] for row in found["rows"]} == {1, 8}
    assert all(row["assumes"] for row in found["rows"] if row["option"])
    assert {entry["wiring"] for entry in found["failures"]} == {"rail-only", "rail-optimized"}
    assert all(entry["options"] or entry["refused"] for entry in found["failures"])
    assert found["verdict"]
    assert found["interrupted"] is False


def test_own_prices_are_taken_as_they_are():
    found = document("--gpus", "64", "--network", "fat-tree", "--usd-per-switch-port", "1", "--usd-per-transceiver",
                     "0", "--nic-gbps", "100")  # fmt: skip
    assert found["rows"][0]["cost_usd"] == 64
    assert found["prices"]["usd_per_switch_port"] == 1


def test_an_axis_that_is_fixed_stays():
    found = document(*SMALL, "--network", "rail-only", "--fix", "tp=4", "--fix", "sharding=zero1")
    plan = found["rows"][0]["models"][0]["plan"]
    assert (plan["tp"], plan["sharding"]) == (4, "zero1")


@pytest.fixture
def short_paper(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The rail-only paper with the ends of figure 10 alone; the other figures are tests of `paper_steps`."""
    whole = load_paper("rail-only")
    ten = next(figure for figure in whole["figures"] if figure["figure"] == "10")
    figures = [ten | {"vary": ten["vary"] | {"global_batch": [256, 4096]}}]
    statements = [
        statement
        for statement in whole["statements"]
        if not statement["section"].startswith("figure") or statement["section"] == "figure 10"
    ]
    paper = whole | {"figures": figures, "statements": statements, "failures": False}
    monkeypatch.setattr(design_run, "load_paper", {"rail-only": paper}.__getitem__)
    return paper


def test_the_paper_of_rail_only_has_its_table_and_its_statements(short_paper: dict[str, Any]):
    found = document("--paper", "rail-only")
    assert len(found["rows"]) == 2 * 6 * 2
    sections = {entry["section"] for entry in found["compared"]}
    assert sections == {statement["section"] for statement in short_paper["statements"]}
    assert [entry["agrees"] for entry in found["compared"] if entry["section"] == "table II, K = 256"] == [True] * 12
    assert len(found["points"]) == 2 * 3
    assert any("needs HB domains of 256" in line for line in found["verdict"])


@pytest.mark.parametrize("paper", ["ntt", "titan"])
def test_talks_are_compared(paper: str):
    found = document("--paper", paper)
    stated = [entry for entry in found["compared"] if entry["stated"] is not None]
    assert len(stated) >= 10
    assert {entry["agrees"] for entry in stated} <= {True, False}
    assert any(entry["agrees"] for entry in stated)


def test_csv_has_a_line_for_each_network_and_model(tmp_path: Path):
    file = tmp_path / "rows.csv"
    run(*FAST, "--model", "llama-2-7b", "--csv", str(file))
    lines = list(csv.DictReader(io.StringIO(file.read_text())))
    assert len(lines) == 4 * 2
    assert {line["model"] for line in lines} == {"llama-3-8b", "llama-2-7b"}
    assert all(float(line["step_s"]) > 0 and int(line["tp"]) >= 1 for line in lines)


def test_pictures_are_written(tmp_path: Path):
    svg, png = tmp_path / "a.svg", tmp_path / "a.png"
    result = run(*FAST, "--sweep", "nics=1,2,4,8", "--svg", str(svg), "--png", str(png))
    assert result.return_value == ExitStatus.ANSWER
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_people_get_tables_plans_and_what_follows():
    text = run(*FAST).output
    for words in ("rail-only", "What follows", "cheapest", "Assumed"):
        assert words in text


def test_one_answer_on_stdout():
    result = run(*SMALL, "--svg", "-", "--json")
    assert result.exception is not None
    assert "--svg and --json" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--gpus", "1001"), "--gpus 1000 or 1008"),
        (("--gpus", "64", "--sweep", "hb-domain=8,24"), "--hb-domain 16"),
        (("--gpus", "64", "--network", "star"), "rail-only"),
        (("--gpus", "64", "--sweep", "foo=1"), "nics"),
        (("--gpus", "64", "--fix", "foo=1"), "tp"),
        (("--gpus", "64", "--model", "nonsense"), "public model"),
        (("--gpus", "64", "--precision", "fp8", "--gpu", "a100"), "--precision"),
        (("--gpus", "64", "--cluster", "titan", "--node", "dgx-h100"), "one of them"),
        ((), "--gpus"),
    ],
)
def test_an_impossible_request_names_the_nearest_that_works(arguments: tuple[str, ...], hint: str):
    error = error_of(*arguments)
    assert isinstance(error, InputError)
    assert hint in error.hint


def test_hostile_text_is_shown_harmless():
    error = error_of("--gpus", "64", "--network", "\x1b[31mred")
    assert "\x1b" not in error.message


@given(
    gpus=st.integers(0, 70_000), radix=st.integers(0, 300), domain=st.integers(0, 512), nics=st.integers(1, 20),
    ratio=st.sampled_from(["0.5", "1", "2", "2.5", "63", "nan", "inf"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_sizes_are_answered_or_refused_with_a_hint(gpus: int, radix: int, domain: int, nics: int, ratio: str):
    result = run("--gpus", str(gpus), "--radix", str(radix), "--hb-domain", str(domain), "--nics", str(nics),
                 "--network", "rail-only", "--network", f"fat-tree:{ratio}", "--json")  # fmt: skip
    if result.exception is None:
        rows = json.loads(result.stdout)["rows"]
        assert all(row["switches"] >= 1 and row["cost_usd"] > 0 for row in rows)
    else:
        assert isinstance(result.exception, OpskError | click.UsageError), result.exception
        assert isinstance(result.exception, click.UsageError) or result.exception.hint


def test_no_plan_anywhere_is_bad_news():
    result = run("--gpus", "8", "--model", "gpt-1t", "--global-batch", "8", "--network", "rail-only")
    assert result.return_value == ExitStatus.BAD_NEWS
    assert "memory" in result.output


def test_ctrl_c_keeps_what_was_found():
    def entries():
        yield 1
        raise KeyboardInterrupt

    walk = design_run.ProgressIterator("numbers")
    assert walk.collect(walk(_Sequence(entries))) == [1]
    assert walk.interrupted
    with pytest.raises(KeyboardInterrupt):
        design_run.ProgressIterator("numbers").collect(iter(_raising()))


def _raising():
    raise KeyboardInterrupt
    yield


class _Sequence:
    """A sequence of one entry, whose second is never reached."""

    def __init__(self, entries):
        self._entries = entries

    def __len__(self) -> int:
        return 2

    def __iter__(self):
        return self._entries()
