"""Since when frameworks have what plans use, and what they warn of; releases are those of their argument parsers."""

from __future__ import annotations

import pytest

from opsk.frameworks.catalog import FRAMEWORKS, frameworks_for, frameworks_that_run
from opsk.frameworks.features import FEATURES, Standing, list_features
from opsk.hardware import catalog
from opsk.workload.plan import Offload, Optimizer, Plan, Precision, Schedule, Sharding, Software
from opsk.workload.public_models.lookup import public_model

H100, B200 = catalog.cluster("superpod-h100"), catalog.cluster("superpod-b200")
FSDP = {"dp": 8, "global_batch": 16, "sharding": Sharding.ZERO3}


@pytest.mark.parametrize(
    ("framework", "plan", "since"),
    [
        ("megatron", Plan(**FSDP), ["Core 0.14 (0.12 as --use-custom-fsdp)"]),
        ("megatron", Plan(pp=4, first_stage_layers=3, global_batch=8), ["Core 0.9"]),
        ("megatron", Plan(pp=4, vpp=2, first_stage_layers=7, global_batch=8), ["Core 0.11"]),
        ("megatron", Plan(pp=4, vpp=4, last_stage_layers=5, global_batch=8), ["Core 0.13"]),
        ("megatron", Plan(dp=8, shard_gpus=4, sharding=Sharding.ZERO1, global_batch=8), ["Core 0.10"]),
        ("megatron", Plan(tp=2, ep=2, etp=1, global_batch=8), ["Core 0.10"]),
        ("megatron", Plan(offload=Offload.OPTIMIZER, global_batch=8), ["Core 0.12"]),
        ("megatron", Plan(optimizer=Optimizer.LION, global_batch=8), ["Core 0.17"]),
        ("megatron", Plan(dp=8, ep=4, precision=Precision.FP16, global_batch=8), ["Core 0.16"]),
        ("megatron", Plan(offload=Offload.ACTIVATIONS, global_batch=8), ["Core 0.16"]),
        ("torchtitan", Plan(ep=2, **FSDP), ["v0.2.0"]),
        ("torchtitan", Plan(pp=4, last_stage_layers=3, global_batch=8), ["v0.2.0"]),
        ("fsdp", Plan(cp=2, **FSDP), ["accelerate 1.10"]),
        ("deepspeed", Plan(cp=2, global_batch=8), ["DeepSpeed 0.10.2"]),
        ("deepspeed", Plan(tp=2, pp=2, global_batch=8), []),
    ],
)
def test_the_release_is_that_which_brought_the_flag(framework: str, plan: Plan, since: list[str]):
    assert [feature.since for feature in list_features(framework, plan, H100)] == since


@pytest.mark.parametrize(
    ("framework", "plan", "standing"),
    [
        ("megatron", Plan(tp=2, **FSDP), Standing.SLOW),
        ("torchtitan", Plan(pp=2, vpp=2, schedule=Schedule.ZERO_BUBBLE_V, global_batch=8), Standing.SLOW),
        ("torchtitan", Plan(tp=2, ep=2, etp=2, **FSDP), Standing.UNTESTED),
    ],
)
def test_what_a_framework_warns_of_is_marked_with_the_reason(framework: str, plan: Plan, standing: Standing):
    marked = [feature for feature in list_features(framework, plan, H100) if feature.standing is not Standing.USUAL]
    assert [(feature.standing, bool(feature.why)) for feature in marked] == [(standing, True)]


def test_megatron_warns_of_tp_beside_fsdp_only_before_blackwell():
    """arguments.py: CUDA_DEVICE_MAX_CONNECTIONS matters where the architecture is below 10."""
    assert "tp or cp beside FSDP" not in [
        feature.name for feature in list_features("megatron", Plan(tp=2, **FSDP), B200)
    ]


def test_every_feature_is_of_a_framework_and_names_its_source():
    for feature in FEATURES:
        assert feature.framework in FRAMEWORKS
        assert "/" in feature.source
        assert (feature.standing is Standing.USUAL) == (feature.why == "")


def test_a_model_is_for_the_frameworks_whose_options_have_all_of_it():
    """Megatron-DeepSpeed has no latent attention, torchtitan no MLP of two matrices."""
    deepseek, gpt3 = public_model("deepseek-v3"), public_model("gpt-3-175b")
    assert deepseek is not None
    assert gpt3 is not None
    assert [framework.name for framework in frameworks_for(deepseek)] == ["megatron", "fsdp", "torchtitan"]
    assert [framework.name for framework in frameworks_for(gpt3)] == ["megatron", "fsdp", "deepspeed"]


def test_a_model_that_no_framework_has_whole_is_for_those_that_miss_the_fewest_of_its_features():
    gemma = public_model("gemma-2-9b")  # four norms a layer
    assert gemma is not None
    assert [framework.name for framework in frameworks_for(gemma)] == ["megatron"]


def test_a_plan_is_run_by_the_frameworks_of_its_software():
    llama = public_model("llama-3-8b")
    assert llama is not None
    run_by = {
        software: [framework.name for framework in frameworks_that_run(llama, Plan(software=software, **FSDP))]
        for software in (Software.MEGATRON_CORE, Software.MEGATRON, Software.DEEPSPEED)
    }
    assert run_by == {
        Software.MEGATRON_CORE: ["megatron"],
        Software.MEGATRON: ["megatron"],
        Software.DEEPSPEED: ["deepspeed"],
    }
