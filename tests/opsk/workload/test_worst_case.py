"""The largest case of what a workload leaves open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.model import StatedModel
from opsk.workload.plan import Loss, Optimizer, Precision, Sharding, StatedPlan
from opsk.workload.roles import METHOD, REFERENCE, REFERENCE_BITS, SEQUENCES
from opsk.workload.workload import Unknown, Workload
from opsk.workload.worst_case import (
    ADAPTER_RANK,
    ADAPTER_TARGETS,
    CHECKED,
    MICRO_BATCH,
    TRAINED,
    find_worst_case,
)

WORKLOAD = Workload(
    framework=None,
    model=StatedModel(name="bert-base-uncased", seq=128),
    plan=StatedPlan(gpus=2, micro_batch=8, precision=Precision.BF16),
    options=((CHECKED, "true"),),
)


def leave_open(*fields: str, **options: str) -> Workload:
    rows = tuple(Unknown(field=field, why="$1") for field in fields)
    return replace(WORKLOAD, unknown=rows, options=(*WORKLOAD.options, *options.items()))


def test_nothing_is_sharded_or_recomputed_where_that_is_not_known() -> None:
    case = find_worst_case(leave_open("plan.sharding", "plan.recompute", "plan.tp"))
    assert case is not None
    plan = case.completions[0].plan
    assert plan is not None
    assert (plan.sharding, plan.tp, plan.recompute.value) == (Sharding.NONE, 1, "none")


def test_both_number_formats_are_tried_the_lower_one_as_fp16_which_every_gpu_has() -> None:
    case = find_worst_case(leave_open("plan.precision"))
    assert case is not None
    assert {entry.plan.precision for entry in case.completions if entry.plan} == {Precision.FP32, Precision.FP16}


def test_a_batch_counts_where_its_limit_is_known() -> None:
    plan = replace(WORKLOAD.plan, micro_batch=None)
    assert find_worst_case(replace(leave_open("plan.micro_batch"), plan=plan)) is None
    case = find_worst_case(replace(leave_open("plan.micro_batch", **{MICRO_BATCH: "64"}), plan=plan))
    assert case is not None
    assert case.completions[0].plan is not None
    assert case.completions[0].plan.micro_batch == 64


@pytest.mark.parametrize(("name", "is_known"), [("lamb", True), ("shampoo", False)])
def test_an_optimizer_counts_where_it_has_no_more_states_than_adam(name: str, is_known: bool) -> None:
    case = find_worst_case(leave_open(**{"optimizer.name": name}))
    assert (case is not None) is is_known
    if case is not None:
        assert case.completions[0].plan is not None
        assert case.completions[0].plan.optimizer is Optimizer.ADAM


def test_another_model_in_memory_has_no_limit() -> None:
    why = {"trainable": "unknown: only adapters are trained (--use_lora, job.sh:3)"}
    assert find_worst_case(leave_open(**why)) is None
    assert find_worst_case(leave_open(**why, **{TRAINED: "true"})) is not None


@pytest.mark.parametrize("field", ["model.layers", "model.ffn"])
def test_a_size_that_is_not_known_has_no_limit(field: str) -> None:
    assert find_worst_case(leave_open(field)) is None


def test_on_any_number_of_gpus_each_has_all_states_at_most() -> None:
    workload = leave_open("plan.dp", "plan.sharding")
    case = find_worst_case(replace(workload, plan=replace(workload.plan, gpus=None, nodes=None)))
    plan = case.completions[0].plan if case is not None else None
    assert plan is not None
    assert (plan.sharding, plan.dp) == (Sharding.NONE, 2)


def test_a_program_that_nobody_looked_at_has_no_limit() -> None:
    assert find_worst_case(replace(WORKLOAD, options=())) is None


@pytest.mark.parametrize(("name", "seq"), [("facebook/bart-large", 1024), ("google-t5/t5-base", None)])
def test_a_sequence_has_no_more_tokens_than_learned_positions(name: str, seq: int | None) -> None:
    # BART has 1,024 positions on both sides (facebook/bart-large, config.json); T5 has relative ones
    case = find_worst_case(replace(WORKLOAD, model=StatedModel(name=name)))
    model = case.completions[0].model if case is not None else None
    assert (model.seq if model else None) == seq


@pytest.mark.parametrize("name", ["resnet50", "openai/whisper-small"])
def test_the_length_is_not_asked_for_where_the_model_fixes_it(name: str) -> None:
    assert find_worst_case(replace(leave_open("model.seq"), model=StatedModel(name=name))) is not None


DPO = {METHOD: "dpo", SEQUENCES: "2", REFERENCE: "gpu", REFERENCE_BITS: "32"}


def test_a_trainer_whose_models_are_known_trains_the_whole_model_at_most() -> None:
    why = {"trainable": "unknown: only adapters are trained (LoraConfig, train.py:3)"}
    case = find_worst_case(leave_open(**why, **DPO))
    assert case is not None
    assert "adapters" not in dict(case.workload.options)
    assert dict(case.workload.options)[REFERENCE] == "gpu"


def test_the_reference_of_adapters_of_known_rank_is_the_model_itself() -> None:
    why = {"trainable": "unknown: only adapters are trained (LoraConfig, train.py:3)"}
    case = find_worst_case(leave_open(**why, **DPO, **{ADAPTER_RANK: "8", ADAPTER_TARGETS: "all"}))
    assert case is not None
    assert REFERENCE not in dict(case.workload.options)


def test_models_that_are_not_known_have_no_limit() -> None:
    assert find_worst_case(leave_open(**DPO, trainable="unknown: the memory of its models (dpo) is not known")) is None
    assert find_worst_case(leave_open(**{REFERENCE: "gpu"})) is None


def test_a_length_that_nothing_states_is_the_one_at_which_the_framework_cuts() -> None:
    workload = replace(
        WORKLOAD, framework="trl", model=StatedModel(name="Qwen/Qwen2.5-0.5B"), options=((CHECKED, "true"),)
    )
    case = find_worst_case(workload)
    model = case.completions[0].model if case is not None else None
    assert model is not None
    assert model.seq == 1024
    assert find_worst_case(replace(workload, framework="hf-trainer")) is None


def test_logits_are_whole_where_the_loss_depends_on_the_release() -> None:
    workload = replace(WORKLOAD, framework="trl", model=StatedModel(name="Qwen/Qwen2.5-0.5B", seq=512))
    case = find_worst_case(workload)
    plan = case.completions[0].plan if case is not None else None
    assert plan is not None
    assert plan.loss is Loss.PLAIN


@pytest.mark.parametrize(("framework", "is_known"), [("torchtune", True), ("llama-factory", True), ("trl", False)])
def test_programs_of_a_framework_take_one_text_as_a_sample(framework: str, *, is_known: bool) -> None:
    workload = replace(leave_open("plan.sharding"), framework=framework, options=())
    assert (find_worst_case(workload) is not None) is is_known
