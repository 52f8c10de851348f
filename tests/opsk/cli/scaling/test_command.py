"""``opsk scaling``: the numbers of the papers come out, and what contradicts itself is refused whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import InputError


def run(*words: str) -> Result:
    return CliRunner().invoke(opsk, ["scaling", *words], standalone_mode=False, env={"COLUMNS": "200"})


def quantities(*words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of an answer by name and source."""
    result = run(*words, "--json")
    assert result.exception is None, result.exception
    return {(row["name"], row["source"]): row for row in json.loads(result.stdout)["quantities"]}


def named(rows: dict[tuple[str, str], dict[str, Any]], name: str) -> float:
    """The value of the only row of this name."""
    (value,) = [row["value"] for (own, _), row in rows.items() if own == name]
    return value


def test_numbers_of_the_summit_and_crusher_paper_come_out() -> None:
    # Yin et al. 2023: 175e9 parameters take 120 P^2 = 3.675e24 FLOP; at 0.165 TFLOP/s a watt 6.19 GWh.
    rows = quantities("--parameters", "175e9", "--gpus", "1024", "--tflops-per-gpu", "0.165", "--watts-per-gpu", "1")
    assert named(rows, "FLOP of a compute-optimal run") == pytest.approx(3.675e24)
    assert named(rows, "energy of the run") == pytest.approx(6.19e9 * 3600, rel=2e-3)
    assert named(rows, "states of one GPU, FSDP") == pytest.approx(6 / 1024)


def test_gpt_3_takes_33_days_as_narayanan_et_al_print() -> None:
    rows = quantities(
        "--parameters", "175e9", "--tokens", "300e9", "--gpus", "1040", "--tflops-per-gpu", "140"
    )  # fmt: skip
    assert named(rows, "time with full recomputation") / 86400 == pytest.approx(33.4, abs=0.1)


def test_a_slip_of_a_source_stands_beside_what_is_right() -> None:
    rows = quantities("--parameters", "1e12", "--gpus", "1024", "--tp", "8", "--pp", "16")
    # N = 1024, TP 8, PP 16, DP 8: 2 (8 + 128 + 1) / 1024 as printed, (2 x 8 + 4) / 1024 as ZeRO-1 shards.
    assert named(rows, "states of one GPU, DeepSpeed, as printed") == pytest.approx(274 / 1024)
    assert named(rows, "states of one GPU, DeepSpeed, corrected") == pytest.approx(20 / 1024)
    text = run("--parameters", "1e12", "--gpus", "1024", "--tp", "8", "--pp", "16").output
    assert "a slip" in text


def test_a_public_model_has_steps_and_layers() -> None:
    # Narayanan et al. 2021: GPT-3 at batch 1,024 takes 3.0073e18 FLOP a step.
    rows = quantities("--model", "gpt-3-175b", "--global-batch", "1024", "--seq", "2048")
    assert named(rows, "FLOP of a step, full recomputation") == pytest.approx(3.0073e18, rel=2e-3)
    assert named(rows, "activations, full recomputation") == 2 * 2048 * 12288


def test_what_the_rail_only_paper_says_of_traffic_comes_out() -> None:
    # figure 2: more than 75 % of the bytes are tensor parallelism's, more than 99 % of the pairs never exchange data
    rows = quantities(
        "--model", "gpt-3-175b", "--gpus", "1536", "--tp", "8", "--pp", "8", "--global-batch", "2304",
        "--tflops-per-gpu", "140",
    )  # fmt: skip
    sent = {axis: named(rows, f"sent for {axis}") for axis in ("tensor parallelism", "pipeline", "data parallelism")}
    assert sent["tensor parallelism"] > 0.75 * sum(sent.values())
    assert named(rows, "pairs of GPUs that exchange data") == pytest.approx(3 / 1535)
    # 3 x 2 bytes of each of P parameters in the time of 6 P FLOP a token and attention's
    step_s = named(rows, "FLOP of a token") * 2304 * 2048 / (1536 * 140e12)
    expected = 6 * 174.6e9 / step_s
    assert named(rows, "bandwidth of a GPU that hides FSDP's traffic") == pytest.approx(expected, rel=2e-3)


def test_experts_have_fewer_active_parameters() -> None:
    # Jiang et al. 2024: 13B of Mixtral's 47B
    rows = quantities("--model", "mixtral-8x7b")
    assert named(rows, "parameters that a token passes") == pytest.approx(12.9e9, rel=0.01)


def test_what_is_not_known_is_left_out() -> None:
    groups = {row["group"] for row in quantities("--parameters", "7e9").values()}
    assert groups == {"compute", "loss", "memory", "traffic"}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((), ("either --model or --parameters",)),
        (("--model", "llama-3-8b", "--parameters", "1e9"), ("either --model or --parameters",)),
        (
            ("--parameters", "1e9", "--watts-per-gpu", "500"),
            ("--watts-per-gpu needs --gpus", "--watts-per-gpu needs --tflops-per-gpu"),
        ),
        (("--parameters", "1e9", "--gpus", "12", "--tp", "8"), ("not a multiple of tp x pp = 8",)),
    ],
)
def test_all_that_is_wrong_is_said_at_once(words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    result = run(*words)
    assert isinstance(result.exception, InputError)
    assert all(part in str(result.exception) for part in parts)


def test_the_heat_map_is_written(tmp_path: Path) -> None:
    file = tmp_path / "traffic.svg"
    arguments = ["scaling", "--model", "gpt-1t", "--gpus", "3072", "--tp", "8", "--pp", "64", "--global-batch", "3072"]
    result = CliRunner().invoke(opsk, [*arguments, "--heat-map", str(file)], standalone_mode=False)
    assert result.exception is None, result.exception
    drawn = file.read_text("utf-8")
    assert "100 GB to 1 TB" in drawn
    assert "tensor parallelism 96.6%" in drawn
    # 192 rings of TP and DP each, and 48 neighbours of three borders of stages, both ways
    assert drawn.count("<rect") >= 192 * 2 + 2 * 48 * 3


def test_a_heat_map_needs_a_plan(tmp_path: Path) -> None:
    arguments = ["scaling", "--parameters", "1e9", "--heat-map", str(tmp_path / "a.svg")]
    error = CliRunner().invoke(opsk, arguments, standalone_mode=False).exception
    assert isinstance(error, InputError)
    assert "--heat-map" in error.hint
