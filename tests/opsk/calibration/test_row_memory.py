"""Columns of recomputation, formats of states and host memory reach the fields of the plan."""

from __future__ import annotations

import pytest

from opsk.calibration.runs.runs import Run, parse_runs
from opsk.workload.plan import Loss, OptimizerStep, Recompute, StateFormat, States
from tests.fakes.tables_of_runs import row, table


def one(**columns: str) -> Run:
    (run,) = parse_runs(table(row(**columns))).runs
    return run


def test_modules_are_words() -> None:
    run = one(recompute="selective", recompute_modules="mlp core_attn", offload_modules="core_attn")
    assert (run.plan.recompute_modules, run.plan.offload_modules) == ("core_attn mlp", "core_attn")


def test_modules_alone_say_that_recomputation_is_selective() -> None:
    assert one(recompute="", recompute_modules="moe_act").plan.recompute is Recompute.SELECTIVE


def test_modules_that_are_not_known_are_said_to_be_left_out() -> None:
    run = one(recompute="selective", recompute_modules="mlp mhc")
    assert run.plan.recompute_modules == "mlp"
    assert any("recompute_modules 'mhc'" in problem for problem in run.problems)


def test_formats_that_the_states_do_not_have_are_the_plans() -> None:
    plan = one(
        software="megatron-core", param_dtype="bf16", grad_dtype="fp32", master_dtype="fp32", moment_dtype="bf16"
    ).plan
    assert (plan.states, plan.moment_format) == (States.MIXED, StateFormat.BF16)
    assert (plan.gradient_format, plan.master_format) == (StateFormat.AS_STATES, StateFormat.AS_STATES)


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ({"software": "megatron-bridge"}, True),
        ({"software": "megatron-core"}, False),
        ({"software": "megatron-core", "fp8_params": "yes"}, True),
        ({"software": "megatron-bridge", "fp8_params": "no"}, False),
    ],
)
def test_weights_are_kept_in_fp8_where_it_is_stated_or_usual(columns: dict[str, str], kept: bool) -> None:
    assert one(gpu="H100", precision="fp8", **columns).plan.fp8_weights is kept


def test_fused_losses_are_those_of_the_software() -> None:
    assert one(software="megatron-core", loss_kernel="fused").plan.loss is Loss.MEGATRON_FUSED
    assert one(software="pytorch-fsdp", loss_kernel="fused").plan.loss is Loss.KERNEL


@pytest.mark.parametrize(
    ("columns", "is_upcast"),
    [
        ({"software": "hf-trainer", "finetuning": "qlora"}, True),
        ({"software": "hf-trainer", "finetuning": "lora"}, False),
        ({"software": "hf-trainer", "finetuning": "qlora", "layer_kernels": "fused"}, False),
        ({"software": "hf-trainer", "finetuning": "qlora", "sharding": "zero3/fsdp", "gpus": "8", "dp": "8"}, False),
        ({"software": "hf-trainer", "finetuning": "qlora", "source_date": "2026-05"}, False),
        ({"software": "unsloth", "finetuning": "qlora"}, False),
    ],
)
def test_trainers_upcast_what_is_not_quantised(columns: dict[str, str], is_upcast: bool) -> None:
    # PEFT's prepare_model_for_kbit_training; FSDP needs one format, and plugins with kernels of their own omit it
    alone = {"gpus": "1", "tp": "1", "dp": "1", "precision": "bf16", "source_date": "2024-06", "arch": "llama"}
    assert one(**{**alone, **columns}).plan.upcast_base is is_upcast


def test_a_flat_adamw_holds_the_roots_of_its_moments() -> None:
    # InternEvo's HybridZeroOptimizer steps torch.optim.AdamW, which is fused since March 2024 (train/pipeline.py)
    steps = [one(software="internevo", source_date=date).plan.optimizer_step for date in ("2023-11", "2024-05")]
    assert steps == [OptimizerStep.FOREACH, OptimizerStep.FUSED]
