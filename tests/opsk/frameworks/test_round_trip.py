"""A script that was written is read back by ``opsk check`` to the very same model and plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.costmodel.rules import expert_tensor_size
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.script import Job, slurm_name
from opsk.workload.completion import complete
from opsk.workload.model import ModelShape
from opsk.workload.plan import MoeGemm, Plan, Precision
from opsk_jobcheck.scripts.script import read_script
from tests.opsk.frameworks.random_plans import trainings

MEGATRON, DEEPSPEED = FRAMEWORKS["megatron"], FRAMEWORKS["deepspeed"]
UNREAD = [FRAMEWORKS["fsdp"], FRAMEWORKS["torchtitan"]]
many = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)


def megatron_options(model: ModelShape, plan: Plan) -> set[str]:
    """Return the names of the options that express a plan."""
    return {option.name for option in MEGATRON.settings(model, plan).options}


@many
@given(st.data())
def test_megatron_reads_back_as_the_same_model_and_plan(data: st.DataObject) -> None:
    model, plan = data.draw(trainings(MEGATRON))
    workload = read_script(MEGATRON.script(model, plan, Job(nodes=1, gpus_per_node=plan.gpus)), file="job.sh")
    completion = complete(workload)
    assert workload.framework == "megatron-lm"
    assert completion.problems == ()
    assert completion.model == replace(model, name=slurm_name(model.name))
    # what Megatron does not look at cannot be read back: compiled, etp where it is tp anyway, and FP8 weights where
    # nothing is in FP8, the optimizer is not sharded or is on the host
    etp = expert_tensor_size(plan) if model.experts else 0
    assert completion.plan is not None
    # grouped products of experts are asked for in bf16 only
    is_wide = plan.precision in (Precision.FP16, Precision.FP32)
    gemm = MoeGemm.SEQUENTIAL if model.experts and is_wide else plan.moe_gemm
    told = replace(plan, compiled=False, etp=etp, moe_gemm=gemm)
    if "--fp8-param-gather" not in megatron_options(model, plan):
        told = replace(told, fp8_weights=completion.plan.fp8_weights)
    assert completion.plan == told


@many
@given(st.data())
def test_deepspeed_reads_back_as_the_same_plan(data: st.DataObject) -> None:
    model, plan = data.draw(trainings(DEEPSPEED))
    workload = read_script(DEEPSPEED.script(model, plan, Job(nodes=1, gpus_per_node=plan.gpus)), file="job.sh")
    read = complete(workload).plan
    assert workload.framework == "megatron-deepspeed"
    assert read is not None
    # the reader takes the engine's usual states, and does not look at offload in the JSON
    told = replace(plan, states=read.states, compiled=False, offload=read.offload, etp=read.etp, tp_overlap=False)
    assert read == told


@pytest.mark.parametrize("framework", UNREAD, ids=lambda framework: framework.name)
@many
@given(st.data())
def test_the_others_say_in_lines_of_their_own_what_they_train(framework, data: st.DataObject) -> None:
    model, plan = data.draw(trainings(framework))
    read = complete(read_script(framework.script(model, plan, Job(nodes=1, gpus_per_node=plan.gpus)), file="job.sh"))
    assert read.model == replace(model, name=slurm_name(model.name))
    assert read.plan is not None
    for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "recompute", "precision", "micro_batch"):
        assert getattr(read.plan, name) == getattr(plan, name), name
    assert read.plan.global_batch == plan.global_batch
