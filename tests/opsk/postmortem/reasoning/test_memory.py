"""Does a report on memory that ran out say which term was predicted largest, and what would have fit?"""

from __future__ import annotations

from typing import Any

import pytest

from opsk.postmortem.reasoning.memory import add_prediction
from opsk.postmortem.report import render_markdown
from opsk.postmortem.report.text import format_memory
from opsk.postmortem.values import Cause, FailureClass, Place, Report

# ruff: noqa: E501 -- an answer of opsk check

GIB = 2.0**30


def report(failure: FailureClass = FailureClass.GPU_MEMORY) -> Report:
    root = Cause(failure=failure, what="memory ran out", where=Place(rank=3), confidence=0.9)
    return Report(state="FAILED", root=root, facts={"asked_bytes": 2 * GIB, "capacity_bytes": 79 * GIB})


CHECKED: dict[str, Any] = {
    "memory": {
        "total_bytes": {"low": 90 * GIB, "expected": 96 * GIB, "high": 99 * GIB},
        "components": {"weights": 16 * GIB, "activations": 58 * GIB, "logits": 0.0, "optimizer": 20 * GIB},
    },
    "suggestions": [
        {"what": "PP 2 → 4", "flags": ["--pipeline-model-parallel-size 4"], "verdict": "fits", "memory_bytes": 68 * GIB, "step_ratio": 1.04},
        {"what": "TP 4 → 2", "flags": ["--tensor-model-parallel-size 2"], "verdict": "oom", "memory_bytes": 120 * GIB},
    ],
}  # fmt: skip


def test_the_largest_term_comes_first() -> None:
    found = add_prediction(report(), CHECKED)
    assert found.root is not None
    assert "activations" in found.root.why[-1]
    terms = [name for name in found.facts if name.startswith("predicted_")]
    assert terms == [
        "predicted_bytes",
        "predicted_activations_bytes",
        "predicted_optimizer_bytes",
        "predicted_weights_bytes",
    ]


def test_only_what_fits_is_said_to_fit() -> None:
    (action,) = add_prediction(report(), CHECKED).actions
    assert "68.0 GiB" in action.what
    assert action.command == "--pipeline-model-parallel-size 4"


def test_predicted_and_measured_stand_side_by_side() -> None:
    found = add_prediction(report(), CHECKED)
    told = format_memory(found.facts)
    assert told == (
        "before the first step was reported: asked for 2.00 GiB, the GPU has 79.00 GiB, predicted 96.00 GiB"
        " (most of it: activations 58.00 GiB, optimizer 20.00 GiB, weights 16.00 GiB)"
    )
    assert "most of it: activations" in render_markdown(found)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"memory": None},
        {"memory": {"components": None, "total_bytes": None}, "suggestions": [None, {"verdict": "fits"}]},
    ],
)
def test_advice_that_is_not_whole_is_no_error(document: dict[str, Any]) -> None:
    found = add_prediction(report(), document)
    assert found.root is not None
    assert found.root.why == ()


def test_other_failures_are_left_as_they_are() -> None:
    other = report(FailureClass.FABRIC)
    assert add_prediction(other, CHECKED) is other
