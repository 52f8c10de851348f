"""Nothing is suggested that the framework of a job cannot run or that opsk could not spell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.completion import complete
from opsk.workload.model import ModelShape, StatedModel
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, StatedPlan
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.abilities import find_abilities, is_deepspeed
from opsk_jobcheck.advice.suggestions import Question, Suggestion, find_best_plan, find_near_plans, find_useful_changes
from tests.fakes.questions import question_of

LLAMA_8B = StatedModel(experts=0, layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=128256, seq=8192)
DATA_PARALLEL = (
    *("hf-trainer", "trl", "axolotl", "llama-factory"),
    *("pytorch-fsdp", "fms-fsdp", "llama-cookbook", "composer"),
)
OTHERS = ("megatron-lm", "megatron-bridge", "megatron-deepspeed", "nemo", "nanotron", "gpt-neox", "torchtitan")


def offered(framework: str, **plan: object) -> tuple[Question, list[Suggestion]]:
    """Return what is offered to a job that is too large or slow for its GPUs."""
    stated = StatedPlan(nodes=4, gpus_per_node=8, gpus=32, precision=Precision.BF16, **plan)  # type: ignore[arg-type]
    workload = Workload(framework=framework, model=LLAMA_8B, plan=stated)
    question = question_of(workload)
    best = find_best_plan(question)
    found = [*find_useful_changes(question, find_near_plans(question)), *((best.suggestion,) if best else ())]
    return question, found


@pytest.mark.parametrize("framework", DATA_PARALLEL)
def test_frameworks_of_data_parallelism_are_offered_nothing_else(framework: str) -> None:
    found = []
    for sharding in (Sharding.NONE, Sharding.ZERO3):
        found += offered(framework, micro_batch=4, global_batch=128, sharding=sharding)[1]
    assert found
    for entry in found:
        assert (entry.plan.tp, entry.plan.pp, entry.plan.vpp) == (1, 1, 1)
        assert entry.plan.recompute in (Recompute.NONE, Recompute.FULL)
        assert entry.plan.sharding is not Sharding.ZERO1


def test_a_program_that_splits_nothing_is_offered_no_split() -> None:
    """A user's own program with DDP has no flag for tensor or pipeline parallelism."""
    plan = StatedPlan(nodes=4, gpus_per_node=8, gpus=32, tp=1, pp=1, dp=32, micro_batch=1, global_batch=32)
    where = Evidence(field="plan.tp", value=1, file="train.py", line=1, text="the program splits nothing")
    open_plan, own = (
        find_abilities(workload, *_complete(workload)).limits
        for workload in (
            Workload(framework=None, model=LLAMA_8B, plan=plan),
            Workload(framework=None, model=LLAMA_8B, plan=plan, evidence=(where,)),
        )
    )
    assert open_plan.largest_tp != 1
    assert (own.largest_tp, own.largest_pp, own.largest_cp, own.interleaved) == (1, 1, 1, False)


def _complete(workload: Workload) -> tuple[ModelShape, Plan]:
    """Return the model and the plan of a workload that states both."""
    completion = complete(workload)
    assert completion.model is not None
    assert completion.plan is not None
    return completion.model, completion.plan


@pytest.mark.parametrize("framework", OTHERS)
def test_the_others_are_offered_what_they_have(framework: str) -> None:
    _, found = offered(framework, micro_batch=4, global_batch=128, tp=2, pp=1)
    assert found
    if framework in ("megatron-deepspeed", "nanotron", "gpt-neox"):
        assert all(entry.plan.vpp == 1 for entry in found)


@pytest.mark.parametrize(
    ("layers", "gpus", "largest"),
    [(32, 32, (0, 0)), (32, 1, (1, 1)), (2, 32, (1, 1))],
    ids=["7B on 32 GPUs", "7B on one", "0.7B on 32"],
)
def test_a_small_model_and_a_job_on_one_gpu_are_not_split(layers: int, gpus: int, largest: tuple[int, int]) -> None:
    """Two layers of 4096 and 14336 with 32,000 rows are 0.7 billion parameters."""
    stated = StatedPlan(nodes=1, gpus_per_node=gpus, gpus=gpus, micro_batch=1, global_batch=128)
    model = replace(LLAMA_8B, layers=layers, vocab=32000)
    completion = complete(workload := Workload(framework="megatron-lm", model=model, plan=stated))
    assert completion.model is not None
    assert completion.plan is not None
    limits = find_abilities(workload, completion.model, completion.plan).limits
    assert (limits.largest_tp, limits.largest_pp) == largest


def test_picotron_has_no_recomputation_and_no_sequence_parallelism() -> None:
    _, found = offered("picotron", micro_batch=4, global_batch=128, tp=2, pp=1)
    assert found
    for entry in found:
        assert (entry.plan.recompute, entry.plan.sharding) == (Recompute.NONE, Sharding.NONE)
        assert not (entry.plan.sequence_parallel and entry.plan.tp > 2)


def test_every_change_of_a_framework_with_a_table_is_spelled() -> None:
    for framework in ("hf-trainer", "axolotl", "nanotron", "gpt-neox", "torchtitan", "megatron-lm", "llama-cookbook"):
        for entry in offered(framework, micro_batch=4, global_batch=128, sharding=None)[1]:
            assert entry.flags, (framework, entry.what)


def test_deepspeed_below_a_trainer_is_told_by_its_words() -> None:
    evidence = Evidence(field="plan.sharding", value="zero2", file="ds.json", line=3, text='"stage": 2')
    assert not is_deepspeed(Workload(framework="trl"))
    assert is_deepspeed(Workload(framework="trl", launcher="srun + deepspeed"))
    named = Evidence(field="plan.sharding", value="zero2", file="z.json", line=3, text="zero_optimization.stage 2")
    assert is_deepspeed(Workload(framework="trl", evidence=(named,)))
    assert is_deepspeed(Workload(framework="trl", evidence=(evidence,)))


@pytest.mark.parametrize(("name", "accumulates"), [("batch_size", False), ("local_batch_size", True)])
def test_torchtitan_accumulates_since_it_calls_the_batch_local(name: str, accumulates: bool) -> None:
    # pull request 1238 of torchtitan: global_batch_size came, batch_size became local_batch_size
    said = Evidence(field="plan.micro_batch", value=1, file="run.toml", line=5, text=f"{name} = 1")
    workload = Workload(framework="torchtitan", evidence=(said,))
    model, asked = complete_llama(), Plan(dp=8, micro_batch=1, global_batch=8, sharding=Sharding.ZERO3)
    refuses = find_abilities(workload, model, asked).refuses
    assert refuses is not None
    assert bool(refuses(model, replace(asked, global_batch=16))) is not accumulates
    assert not refuses(model, asked)


def complete_llama() -> ModelShape:
    """Return a dense model of 8 billion parameters."""
    stated = StatedPlan(nodes=1, gpus_per_node=8, gpus=8, micro_batch=1, global_batch=8)
    model = complete(Workload(framework="torchtitan", model=LLAMA_8B, plan=stated)).model
    assert model is not None
    return model
