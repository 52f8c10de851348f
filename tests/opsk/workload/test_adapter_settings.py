"""Plans of fine-tuning with adapters, by the defaults of PEFT and of the frameworks that use it."""

from dataclasses import replace

import pytest

from opsk.workload.completion import complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import AdapterFormat, LoraTargets, Plan, Precision, Sharding, StatedPlan, States
from opsk.workload.workload import Workload

MODEL = StatedModel(layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, seq=2048, gated_mlp=True)
PLAN = StatedPlan(gpus=2, tp=1, pp=1, micro_batch=1, precision=Precision.BF16)


def completed(framework: str, *, sharding: Sharding | None = None, **options: str) -> Plan:
    named = {"adapters": "lora"} | {f"adapters.{name}": value for name, value in options.items()}
    plan = replace(PLAN, sharding=sharding)
    found = complete(Workload(model=MODEL, plan=plan, framework=framework, options=tuple(named.items())))
    assert found.plan is not None, found.missing
    return found.plan


def test_stated_adapters_are_taken_over() -> None:
    plan = completed("axolotl", rank="32", targets="all", base_bits="4", dropout="true")
    assert (plan.lora_rank, plan.lora_targets, plan.base_bits, plan.lora_dropout) == (32, LoraTargets.ALL, 4, True)


@pytest.mark.parametrize(
    ("framework", "rank", "targets", "stored"),
    [
        ("trl", 16, LoraTargets.QUERY_VALUE, AdapterFormat.AUTOCAST),
        ("trl + accelerate", 16, LoraTargets.QUERY_VALUE, AdapterFormat.AUTOCAST),
        ("llama-factory", 8, LoraTargets.ALL, AdapterFormat.AUTOCAST),
        ("litgpt", 8, LoraTargets.QUERY_VALUE, AdapterFormat.BASE),
        ("llama-cookbook", 8, LoraTargets.QUERY_VALUE, AdapterFormat.BASE),
    ],
)
def test_what_is_not_stated_is_what_the_framework_takes(
    framework: str, rank: int, targets: LoraTargets, stored: AdapterFormat
) -> None:
    plan = completed(framework)
    assert (plan.lora_rank, plan.lora_targets, plan.adapter_format) == (rank, targets, stored)
    assert (plan.base_bits, plan.states) == (16, States.PURE_16BIT)


def test_a_rank_that_has_no_default_is_missing() -> None:
    found = complete(Workload(model=MODEL, plan=PLAN, framework="torchtune", options=(("adapters", "lora"),)))
    assert "plan.lora_rank" in found.missing


def test_a_base_in_fp32_is_missing() -> None:
    plan = StatedPlan(gpus=2, tp=1, pp=1, micro_batch=1, precision=Precision.FP32)
    found = complete(Workload(model=MODEL, plan=plan, framework="trl", options=(("adapters", "lora"),)))
    assert "plan.base_bits" in found.missing


def test_litgpts_fsdp_flattens_adapters_with_their_layer() -> None:
    sharded = completed("litgpt", sharding=Sharding.ZERO3)
    assert (sharded.sharding, sharded.flat_adapters, sharded.accumulates_unsharded) == (Sharding.ZERO3, True, True)
    trainer = completed("trl", sharding=Sharding.ZERO3)
    assert (trainer.flat_adapters, trainer.accumulates_unsharded) == (False, True)
    assert not completed("litgpt", sharding=Sharding.NONE).flat_adapters


def test_only_a_quantised_base_has_what_belongs_to_quantising() -> None:
    assert not completed("litgpt").quantised_head
    assert completed("litgpt", base_bits="4").quantised_head
