"""What the advice says of a model whose parameters were counted, while the rest of the memory is open."""

from __future__ import annotations

import json

import pytest

from opsk.hardware.catalog import cluster
from opsk.text import to_json_values
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.layout import MAX_WIDTH
from opsk_jobcheck.advice.rendering.document import document, record
from opsk_jobcheck.advice.rendering.terminal import Detail, lines, short_lines

ADVISER = Adviser(cluster=cluster("superpod-a100"))


def advise(counted: str, **options: str) -> Advice:
    rows = {"counted.parameters": counted, **{name.replace("_", "."): value for name, value in options.items()}}
    return ADVISER.advise(Workload(framework=None, job_name="mine", options=tuple(sorted(rows.items()))))


@pytest.mark.parametrize(
    ("counted", "options", "brief", "whole"),
    [
        # 16 bytes of each in fp32: weight, gradient and two states
        (
            "86000000-86000000",
            {},
            "86.0 M parameters, without a batch: 1.3 GiB of 79.1 GiB in fp32 with gradients and Adam",
            "86.0 M parameters: weights, gradients and Adam's states in fp32 take 1.3 GiB of 79.1 GiB per GPU",
        ),
        (
            "1540000000-1600000000",
            {},
            "1.54–1.60 B parameters, without a batch: 22.9–23.8 GiB of 79.1 GiB in fp32",
            "take 22.9–23.8 GiB of 79.1 GiB per GPU",
        ),
        (
            "86000000-",
            {},
            "at least 86.0 M parameters, without a batch: 1.3 GiB of 79.1 GiB",
            "take at least 1.3 GiB of 79.1 GiB",
        ),
        (  # what does not fit the row is left out
            "86000000-",
            {"optimizer_name": "sgd"},
            "at least 86.0 M parameters, without a batch: 1.0 GiB of 79.1 GiB in fp32",
            "weights, gradients and momentum in fp32 take at least 1.0 GiB",
        ),
        ("86000000-860000000", {}, "at least 86.0 M parameters", "take at least 1.3 GiB"),
        (
            "86000000-86000000",
            {"optimizer_name": "sgd"},
            "1.0 GiB of 79.1 GiB in fp32 with gradients and momentum",
            "take 1.0",
        ),
        (
            "860000000-860000000",
            {"optimizer_name": "shampoo"},
            "6.4 GiB of 79.1 GiB in fp32 with gradients",
            "take 6.4 GiB",
        ),
        (
            "860000000-860000000",
            {"trainable": "unknown: part is frozen"},
            "3.2 GiB of 79.1 GiB in fp32 for the weights",
            "take 3.2",
        ),
    ],
)
def test_the_states_of_counted_parameters_are_stated(
    counted: str, options: dict[str, str], brief: str, whole: str
) -> None:
    advice = advise(counted, **options)
    assert advice.verdict is Verdict.UNKNOWN
    said = lines(advice)
    assert any(brief in row for row in said)
    assert all(len(row) <= MAX_WIDTH for row in said)
    assert brief in short_lines(advice)[1]
    long = " ".join(row.strip() for row in lines(advice, Detail.LONG))
    assert whole in long
    assert "without what a batch adds" in long
    assert "fits" not in long


@pytest.mark.parametrize("counted", ["900000-900000", "5000000-", "0-86000000", "", "many", "11200000-11200000"])
def test_small_models_and_wide_ranges_are_not_worth_a_line(counted: str) -> None:
    """16 bytes of each of 11.2 million are 0.2 % of an A100's memory."""
    assert lines(advise(counted)) == ()


def test_the_long_form_has_small_models_too() -> None:
    assert any("11.2 M parameters" in row for row in lines(advise("11200000-11200000"), Detail.LONG))


@pytest.mark.parametrize(
    "why", ["the weights are quantized", "only adapters are trained", "other models are in memory too"]
)
def test_weights_of_another_format_or_beside_others_are_not_stated(why: str) -> None:
    assert lines(advise("86000000-86000000", trainable=f"unknown: {why} (x, train.py:3)")) == ()


def test_the_document_has_the_range_and_the_record_no_verdict() -> None:
    advice = advise("86000000-")
    content = json.loads(json.dumps(to_json_values(document(advice))))
    assert content["workload"]["counted_parameters"] == {"low": 86000000, "high": None}
    assert content["memory"]["total_bytes"] is None
    assert record(advice).verdict is Verdict.UNKNOWN
    assert "counted_parameters" not in document(advise(""))["workload"]
