"""What is taken from the answer of ``opsk check`` on a job's own script."""

from __future__ import annotations

from typing import Any

import pytest

from opsk.app.inputs import job_work as module
from opsk.app.inputs.job_work import parse_checked_plan, read_script_plan
from opsk.slurm.commands import job_script
from opsk.slurm.records import JobRecord

SCRIPT = b"""#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\
  --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 128 --bf16 \\
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --train-iters 10 --vocab-size 50257
"""
JOB = JobRecord(id=7, label="7", user="u", name="n", state="RUNNING", nodes=("n0", "n1"), node_count=2, gpus=16)


def checked(plan: dict[str, Any], assumed: dict[str, Any], framework: str | None) -> dict[str, Any]:
    return {
        "workload": {"framework": framework, "plan": plan},
        "assumed": [{"field": f"plan.{name}", "value": value} for name, value in assumed.items()],
    }


def test_replicas_are_what_the_gpus_leave() -> None:
    found = parse_checked_plan(checked({"tp": 4}, {"pp": 2, "cp": 1}, "megatron-lm"), 16)
    assert found is not None
    assert (found.tp, found.pp, found.dp) == (4, 2, 2)


@pytest.mark.parametrize(("plan", "assumed"), [({}, {"tp": 1, "pp": 1}), ({"tp": 2}, {}), ({}, {})])
def test_what_no_framework_says_is_no_plan(plan: dict[str, Any], assumed: dict[str, Any]) -> None:
    assert parse_checked_plan(checked(plan, assumed, None), 16) is None


def test_a_real_script_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(module, "read_batch_script", lambda *_, **__: SCRIPT)
    monkeypatch.setattr(job_script, "_READING_S", 60.0)  # on a busy machine even the start of a process takes seconds
    found = read_script_plan(JOB)
    assert found is not None
    assert (found.tp, found.pp, found.dp) == (4, 2, 2)


def test_the_script_of_another_job_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert read_script_plan(JOB) is None


def test_a_script_that_cannot_be_read_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(module, "read_batch_script", lambda *_, **__: b"\0\xff" * 100)
    assert read_script_plan(JOB) is None
