from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.rules import excess_gpus, violations
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def test_the_published_plans_break_no_rule(gpt3: ModelShape, llama3_8b: ModelShape, mixtral: ModelShape):
    assert violations(gpt3, Plan(tp=8, pp=8, vpp=3, sequence_parallel=True, global_batch=64)) == ()
    assert violations(llama3_8b, Plan(tp=2, cp=2, dp=2, global_batch=64)) == ()
    assert violations(mixtral, Plan(tp=2, pp=4, ep=8, dp=8, global_batch=64)) == ()


def test_embedding_and_head_may_count_as_layers(gpt3: ModelShape):
    # BLOOM's 70 layers on 12 stages
    assert violations(replace(gpt3, layers=70), Plan(pp=12, global_batch=64)) == ()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(tp=7, global_batch=8), ["heads 32 is not a multiple of tp 7", "kv_heads 8 and tp 7"]),
        (Plan(tp=3, global_batch=8), ["heads 32 ", "kv_heads 8 and tp 3", "ffn 14336 is not a multiple of tp 3"]),
        (Plan(pp=5, global_batch=8), ["layers 32 is not a multiple of pp 5 x vpp 1 = 5"]),
        (Plan(vpp=2, global_batch=8), ["vpp 2 needs pp of at least 2"]),
        (Plan(pp=4, vpp=2, global_batch=6), ["micro-batches (6) that are a multiple of pp 4"]),
        (Plan(cp=3, global_batch=8), ["seq 8192 is not a multiple of 2 x cp 3"]),
        (Plan(ep=2, dp=2, global_batch=8), ["ep 2, but the model has no experts"]),
    ],
)
def test_every_broken_rule_is_named_with_its_numbers(llama3_8b: ModelShape, plan: Plan, words: list[str]):
    found = violations(llama3_8b, plan)
    assert len(found) == len(words)
    for violation, expected in zip(found, words, strict=True):
        assert expected in violation


def test_experts_must_divide(mixtral: ModelShape):
    found = violations(mixtral, Plan(dp=4, ep=3, global_batch=8))
    assert found == ("experts 8 is not a multiple of ep 3", "dp 4 x cp 1 x tp 1 is not a multiple of ep 3")


def test_a_plan_larger_than_the_cluster_is_told_both_numbers(cluster: ClusterSpec):
    (violation,) = excess_gpus(Plan(tp=8, pp=8, dp=128, global_batch=128), cluster)
    assert "= 8192 GPUs" in violation
    assert "has 4096" in violation
    assert excess_gpus(Plan(tp=8, pp=8, dp=64, global_batch=64), cluster) == ()
