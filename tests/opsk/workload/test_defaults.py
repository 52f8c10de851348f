"""What is assumed for programs of HuggingFace's Trainer; the numbers are those of transformers, TRL and the others."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import (
    Loss,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    Sharding,
    Software,
    StatedPlan,
    States,
)
from opsk.workload.workload import Workload


def planned(framework: str = "hf-trainer", *, plan: StatedPlan | None = None, **options: str) -> Plan:
    """Return the plan of a run on 16 GPUs; options by name, underscores for dots."""
    workload = Workload(
        framework=framework,
        model=StatedModel(name="llama-3-8b", seq=512),
        plan=plan or StatedPlan(gpus=16),
        options=tuple((name.replace("_", "."), value) for name, value in options.items()),
    )
    found = complete(workload).plan
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("framework", "batch"),
    [
        ("hf-trainer", 8),
        ("hf-trainer+deepspeed", 8),
        ("trl", 8),
        ("trl + accelerate", 8),
        ("llama-factory", 8),
        ("axolotl", 1),
    ],
)
def test_a_batch_that_nobody_gives(framework: str, batch: int) -> None:
    assert (planned(framework).micro_batch, planned(framework).global_batch) == (batch, 16 * batch)


def test_the_trainer_computes_in_fp32_unless_a_format_is_set() -> None:
    # TrainingArguments of transformers: bf16 and fp16 are False; a model in 16 bits is computed with as it is
    assert planned().precision is Precision.FP32
    assert planned(weights_dtype="fp16").precision is Precision.FP16
    assert planned("llama-factory").precision is Precision.BF16


@pytest.mark.parametrize(("framework", "length"), [("trl", 1024), ("llama-factory", 2048), ("axolotl", 512)])
def test_a_length_that_nobody_gives(framework: str, length: int) -> None:
    model = StatedModel(name="llama-3-8b")
    done = complete(Workload(framework=framework, model=model, plan=StatedPlan(gpus=8)))
    assert done.model is not None
    assert done.model.seq == length


def test_a_program_of_ones_own_has_no_default_length() -> None:
    done = complete(Workload(framework="hf-trainer", model=StatedModel(name="gpt2"), plan=StatedPlan(gpus=8)))
    assert "model.seq" in done.missing


def test_accumulation_counts_where_the_batch_is_assumed() -> None:
    # 8 sequences x 4 steps x 16 ranks
    options = (("deepspeed.accumulation_steps", "4"),)
    model = StatedModel(name="gpt2", seq=64)
    plan = complete(Workload(framework="trl", model=model, plan=StatedPlan(gpus=16), options=options)).plan
    assert plan is not None
    assert plan.global_batch == 512


def test_only_llama_factory_recomputes_by_itself() -> None:
    assert planned("llama-factory").recompute is Recompute.FULL
    assert planned("axolotl").recompute is Recompute.NONE


def test_fsdp_shards_all_unless_told_otherwise() -> None:
    assert planned(fsdp="true").sharding is Sharding.ZERO3
    assert planned(fsdp="true", plan=StatedPlan(gpus=16, sharding=Sharding.ZERO2)).sharding is Sharding.ZERO2


def test_deepspeed_is_its_own_engine() -> None:
    plan = planned(deepspeed="true", optimizer_offload="cpu")
    assert (plan.software, plan.states) == (Software.DEEPSPEED, States.MIXED_16BIT_GRADIENTS)
    assert plan.offload is Offload.OPTIMIZER
    assert planned(weights_offload="cpu", optimizer_offload="cpu").offload is Offload.OPTIMIZER_AND_WEIGHTS


def test_weights_loaded_in_16_bits_stay_so_without_an_engine() -> None:
    assert planned(weights_dtype="bf16").states is States.PURE_16BIT
    assert planned().states is States.AUTOCAST


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("adamw_torch_fused", Optimizer.ADAM),
        ("adamw_bnb_8bit", Optimizer.ADAM_8BIT),
        ("adafactor", Optimizer.ADAFACTOR),
    ],
)
def test_the_optimizer_is_taken_by_its_name(name: str, optimizer: Optimizer) -> None:
    assert planned(optimizer_name=name).optimizer is optimizer


def test_other_frameworks_have_no_such_defaults() -> None:
    done = complete(Workload(framework="torchtitan", model=StatedModel(name="gpt2"), plan=StatedPlan(gpus=8)))
    assert {"model.seq", "plan.micro_batch"} <= set(done.missing)


@pytest.mark.parametrize("framework", ["trl", "trl + accelerate"])
def test_trl_recomputes_and_computes_its_loss_in_chunks(framework: str) -> None:
    # trl/trainer/base_config.py: gradient_checkpointing is True (pull request 3510, 0.21)
    # trl/trainer/sft_config.py: loss_type is "chunked_nll" (1.7)
    plan = planned(framework)
    assert (plan.recompute, plan.loss) == (Recompute.FULL, Loss.RECOMPUTED_FP32)
    stated = planned(framework, plan=StatedPlan(gpus=16, recompute=Recompute.NONE), loss_kernel="fused")
    assert (stated.recompute, stated.loss) == (Recompute.NONE, Loss.FUSED)


def test_a_preference_loss_of_trl_needs_whole_logits() -> None:
    assert planned("trl", roles_method="dpo").loss is not Loss.RECOMPUTED_FP32
