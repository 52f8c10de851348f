"""Real launch scripts against the answers that people read out of them.

Source: ``shared/data/real/EXPECTED.json``, section ``sbatch``; ``null`` there is "cannot tell".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

pytestmark = pytest.mark.shared

MODEL = {"layers": "layers", "hidden": "hidden", "ffn": "ffn", "heads": "heads", "seq": "seq", "kv_groups": "kv_heads"}
PLAN = ("nodes", "gpus_per_node", "gpus", "tp", "pp", "dp", "micro_batch", "global_batch", "precision")
ASKED_OF_SLURM = ("nodes", "gpus_per_node", "gpus")


@pytest.fixture(scope="module")
def expected(shared: Path) -> dict[str, dict[str, Any]]:
    """Answers by file name."""
    answers: dict[str, dict[str, Any]] = json.loads((shared / "data/real/EXPECTED.json").read_text())["sbatch"]
    return answers


def read(shared: Path, name: str) -> Workload:
    """Read one real script."""
    return read_script((shared / "data/real/sbatch" / name).read_bytes(), file=name)


def said(workload: Workload) -> dict[str, Any]:
    """Return what was read, by the names of the answers."""
    found = {name: getattr(workload.model, field) for name, field in MODEL.items()}
    found |= {name: getattr(workload.plan, name) for name in PLAN}
    return found | {"framework": workload.framework, "launcher": workload.launcher}


def test_every_megatron_script_is_read_value_for_value(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    wrong = {}
    for name, answer in expected.items():
        if not answer["framework"].startswith("megatron"):
            continue
        found = said(read(shared, name))
        differing = {
            key: (answer[key], found[key]) for key in answer.keys() & found.keys() if answer[key] != found[key]
        }
        if differing:
            wrong[name] = differing
    assert not wrong


def test_accumulation_of_megatron_scripts_is_as_answered(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    checked = 0
    for name, answer in expected.items():
        if not answer["framework"].startswith("megatron") or answer.get("accumulation_steps") is None:
            continue
        plan = read(shared, name).plan
        assert None not in (plan.global_batch, plan.micro_batch, plan.dp), name
        steps = plan.global_batch / (plan.micro_batch * plan.dp)
        assert steps == answer["accumulation_steps"], name
        assert steps.is_integer() == answer["batch_is_consistent"], name
        checked += 1
    assert checked


def test_no_script_is_read_wrong(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    wrong = {}
    for name, answer in expected.items():
        found = said(read(shared, name))
        numbers = [key for key in (*MODEL, *PLAN) if key in answer and found[key] is not None]
        differing = {key: (answer[key], found[key]) for key in numbers if answer[key] != found[key]}
        if differing:
            wrong[name] = differing
    assert not wrong


def test_what_is_asked_of_slurm_is_always_read(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    for name, answer in expected.items():
        plan = read(shared, name).plan
        given = {key: answer[key] for key in ASKED_OF_SLURM if answer.get(key) is not None}
        assert {key: getattr(plan, key) for key in given} == given, name


def test_every_value_of_a_script_is_cited(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    for name in expected:
        workload = read(shared, name)
        sources = {entry.field for entry in workload.evidence}
        stated = {f"plan.{key}" for key in PLAN if getattr(workload.plan, key) is not None}
        stated |= {f"model.{key}" for key in MODEL.values() if getattr(workload.model, key) is not None}
        assert stated <= sources, name


def test_training_without_a_reader_says_so(shared: Path, expected: dict[str, dict[str, Any]]) -> None:
    for name, answer in expected.items():
        workload = read(shared, name)
        if workload.is_training and workload.model.layers is None:
            reasons = {entry.field: entry.why for entry in workload.unknown}
            assert answer["layers"] is None or reasons.get("model.layers"), name
