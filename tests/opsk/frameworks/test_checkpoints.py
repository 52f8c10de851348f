"""When a checkpoint must be converted before a plan of another TP or PP can load it, and how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.frameworks.checkpoints import FORMAT, LOADED, describe_conversion
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload

REQUESTED = Plan(tp=4, pp=2, dp=8, micro_batch=1, global_batch=64)
OTHER = replace(REQUESTED, tp=8, dp=4)
CONVERT = "tools/checkpoint/convert.py: --target-tensor-parallel-size 8 --target-pipeline-parallel-size 2"


def described(framework: str, **options: str) -> str:
    names = {"loaded": LOADED, "format": FORMAT}
    workload = Workload(framework=framework, options=tuple((names[name], value) for name, value in options.items()))
    return describe_conversion(workload, REQUESTED, [REQUESTED, OTHER])


@pytest.mark.parametrize(
    ("framework", "options", "text"),
    [
        ("megatron-lm", {}, ""),
        ("megatron-lm", {"loaded": "--load c"}, CONVERT),
        ("megatron-lm", {"loaded": "--load c", "format": "torch"}, CONVERT),
        ("megatron-lm", {"loaded": "--load c", "format": "torch_dist"}, ""),
        ("megatron-deepspeed", {"loaded": "--load c"}, "ds_to_universal.py"),
        ("megatron-deepspeed", {"loaded": "--load c", "format": "universal"}, ""),
        ("torchtitan", {"loaded": "--load c"}, ""),
    ],
)
def test_a_checkpoint_of_another_plan_is_converted_where_its_format_is_bound_to_the_plan(
    framework: str, options: dict[str, str], text: str
) -> None:
    found = described(framework, **options)
    assert text in found
    assert bool(found) is bool(text)


def test_the_exception_is_named_where_the_format_is_not_stated() -> None:
    assert "not if" in described("megatron-lm", loaded="--load c")
    assert "not if" not in described("megatron-lm", loaded="--load c", format="torch")


def test_other_changes_need_no_conversion() -> None:
    workload = Workload(framework="megatron-lm", options=((LOADED, "--load c"),))
    assert describe_conversion(workload, REQUESTED, [replace(REQUESTED, micro_batch=2)]) == ""
