"""Every open training log gives the iterations that EXPECTED.json has (kind train_log), and the speeds of its notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsk.cli.throughput.report import build_throughput_document
from opsk.telemetry.progress.runs import merge_logs, read_log

pytestmark = pytest.mark.shared


def document(shared: Path, name: str) -> dict[str, Any]:
    return build_throughput_document(merge_logs([read_log(shared / "data/real/train_log" / name)]), skip_warm_up=True)


def test_first_and_last_iterations_are_those_that_are_expected(shared: Path) -> None:
    """What is no Megatron has ``null`` there: only Megatron's lines were counted."""
    wrong = {}
    for name, answer in json.loads((shared / "data/real/EXPECTED.json").read_text())["train_log"].items():
        found = document(shared, name)
        count = answer["megatron_progress_lines"]
        if not count and found["framework"] not in (None, "hf-trainer"):
            assert found["framework"] == "torchtitan", name
            continue
        told = (found["first_iteration"], found["last_iteration"], len(found["steps"]))
        if told != (answer["first_iteration"], answer["last_iteration"], count):
            wrong[name] = told
    assert wrong == {}


def test_the_speeds_that_the_notes_tell(shared: Path) -> None:
    """Step 1990, 6785 tokens/s a GPU, many ranks; 273.0 s of training; 147 TFLOP/s of BLOOM's lines, read by eye."""
    titan = document(shared, "torchtitan_steps.log")
    assert (titan["steps"][0]["iteration"], titan["steps"][0]["tokens_per_s_per_gpu"]) == (1990, 6785.0)
    assert len(titan["steps"]) == 2
    summary = [event for event in document(shared, "bs_hf_ds_n16_bs4.log")["events"] if event["kind"] == "summary"]
    assert summary[0]["seconds"] == pytest.approx(273.0, abs=0.1)
    bloom = document(shared, "bs_bloom176b_chronicles.md")
    assert bloom["median"]["tflops_per_gpu"] == pytest.approx(147.4, abs=0.2)
    assert bloom["median"]["tokens_per_s"] == pytest.approx(2048 * 2048 / 106.33, rel=0.01)


def test_starts_that_a_log_holds_one_after_another_are_restarts(shared: Path) -> None:
    assert document(shared, "bs_104b_wide_chronicles.md")["restarts"] == 2
    assert document(shared, "aws_fsdp_steps.log")["restarts"] == 2
    assert document(shared, "bs_megds3d_ds_on.log")["restarts"] == 0
