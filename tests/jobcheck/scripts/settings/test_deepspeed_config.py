"""What DeepSpeed configurations say, in files and in here-documents; keys are those of its ``config-json.md``."""

from __future__ import annotations

import json

import pytest

from opsk.workload.plan import Precision, Sharding
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, read_config_file, read_object
from opsk_jobcheck.scripts.settings.deepspeed_config import (
    OPTIMIZER_OFFLOAD,
    STEPS_OPTION,
    WEIGHTS_OFFLOAD,
    derive_global_batch,
    read_deepspeed,
)
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, Findings


def found(settings: object, **stated: object) -> Findings:
    """Read a configuration; ``stated`` are fields of the plan that flags have stated before."""
    findings = Findings("job.sh")
    for name, value in stated.items():
        findings.state(f"plan.{name}", value, 1, "a flag")
    read_deepspeed(read_config_file(json.dumps(settings, indent=1), path="ds.json"), findings)
    return findings


@pytest.mark.parametrize(("stage", "sharding"), [(0, "none"), (1, "zero1"), (2, "zero2"), (3, "zero3")])
def test_a_stage_is_sharding(stage: int, sharding: str) -> None:
    assert found({"zero_optimization": {"stage": stage}}).get("plan.sharding") is Sharding(sharding)


@pytest.mark.parametrize(("key", "precision"), [("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")])
def test_a_switch_is_precision(key: str, precision: str) -> None:
    assert found({key: {"enabled": True}}).get("plan.precision") is Precision(precision)
    assert found({key: {"enabled": False}}).get("plan.precision") is None
    assert found({key: {"enabled": "auto"}}).get("plan.precision") is None


def test_flags_come_first() -> None:
    settings = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "fp16": {"enabled": True}}
    findings = found(settings, micro_batch=2, sharding="zero1", precision="bf16")
    assert [findings.get(f"plan.{name}") for name in ("micro_batch", "sharding", "precision")] == [
        2,
        Sharding.ZERO1,
        Precision.BF16,
    ]


def test_a_value_is_cited_on_its_line() -> None:
    evidence = found({"a": 1, "train_batch_size": 64}).evidence["plan.global_batch"]
    assert (evidence.file, evidence.line, evidence.text) == ("ds.json", 3, '"train_batch_size": 64')


def test_what_is_left_to_the_trainer_says_nothing() -> None:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    findings = found(dict.fromkeys(names, "auto"))
    assert (findings.values, findings.unknown, findings.options) == ({}, {}, {})


def test_offloading_is_an_option() -> None:
    settings = {"zero_optimization": {"offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "none"}}}
    assert found(settings).options.get(OPTIMIZER_OFFLOAD) == "cpu"
    assert WEIGHTS_OFFLOAD not in found(settings).options


def test_steps_make_the_global_batch() -> None:
    findings = found({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8})
    assert findings.options[STEPS_OPTION] == "8"
    derive_global_batch(findings, 4)
    assert findings.get("plan.global_batch") == 64


def test_a_batch_beyond_belief_is_not_stated() -> None:
    findings = found({"train_micro_batch_size_per_gpu": MAX_NUMBER, "gradient_accumulation_steps": MAX_NUMBER})
    derive_global_batch(findings, 4)
    assert findings.get("plan.global_batch") is None


def test_a_file_that_was_not_read_says_nothing() -> None:
    findings = Findings("job.sh")
    read_deepspeed(ConfigFile(path="ds.json", why="it was not read"), findings)
    assert not findings.values
    assert not findings.unknown


@pytest.mark.parametrize(
    "settings", [{}, [], 3, {"zero_optimization": []}, {"fp16": 1}, {"train_batch_size": [1]}, {"train_batch_size": {}}]
)
def test_nonsense_states_no_number(settings: object) -> None:
    assert not found(settings).values


def test_comments_of_hjson_are_left_out_and_lines_stay() -> None:
    """DeepSpeed reads its file by ``hjson``."""
    text = '{\n/* one\n two */ "a": "x # y", // z\n"b": 2, # c\n}'
    found = read_object(text, is_lenient=True)
    assert (found.values, found.lines) == ({"a": "x # y", "b": 2}, {("a",): 3, ("b",): 4})
