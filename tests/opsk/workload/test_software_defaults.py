"""Defaults of training software: each rule is whole, and the last one that fits holds."""

from __future__ import annotations

import re

import pytest

from opsk.calibration.runs.columns import BY_NAME
from opsk.hardware import catalog
from opsk.workload.plan import (
    AdapterFormat,
    LoraTargets,
    Loss,
    MoeGemm,
    OptimizerStep,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.software_defaults import SETTINGS, Rule, find_defaults, find_family, known_software, rules

VALUES = {
    "family": set(Software),
    "attention_kernel": set(BY_NAME["attention_kernel"].values),
    "flash": set(BY_NAME["attention_kernel"].values),
    "cuda_graphs": {True, False},
    "layer_kernels": set(BY_NAME["layer_kernels"].values),
    "compiled": {True, False},
    "states": set(States),
    "loss_kernel": set(Loss),
    "sharding": set(Sharding),
    "sequence_parallel": {True, False},
    "tp_comm_overlap": {True, False},
    "moe_dispatcher": set(BY_NAME["moe_dispatcher"].values),
    "optimizer_step": set(OptimizerStep),
    "compiled_loss": set(Loss),
    "recompute": set(Recompute),
    "stage_balance": {"parameters"},
    "micro_batch": {1, 2, 4, 8},
    "pretrain_micro_batch": {4},
    "lora_targets": set(LoraTargets),
    "adapter_format": set(AdapterFormat),
    "reentrant": {True, False},
    "keeps_gathered": {True, False},
    "reduces_16bit": {True, False},
    "fused_norms": {True, False},
    "moe_gemm": set(MoeGemm),
    "moe_permute_fusion": {True, False},
    "fused_moe": {True, False},
    "natural_routing": {True, False},
    "ep_comm_overlap": {True, False},
    "upcast_base": {True, False},
    "expandable_segments": {True, False},
    "tp_async": {True, False},
    "quantised_head": {True, False},
    "lora_dropout": {True, False},
    "keeps_base_inputs": {True, False},
    "qkv_layout": set(QkvLayout),
    "lora_rank": {8, 16, 64},
    "gathers_fp32": {True},
    "keeps_kv_cache": {True},
    "accumulates_unsharded": {True},
    "flat_adapters": {True},
    "gathers_logits": {True, False},
    "bare_loop": {True},
    "distributed_tensors": {True, False},
    "chunked_loss": set(Loss),
    "quantised_recompute": set(Recompute),
    "tuning_batch": {128},
    "memory_definition": {"allocated", "reserved"},
    "splits_model": {True, False},
    "pretrain_recompute": set(Recompute),
}


def test_every_setting_has_its_values() -> None:
    assert VALUES.keys() == set(SETTINGS)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{min(rule.software)}-{rule.since}-{rule.until}")
def test_a_rule_has_values_that_exist_a_reason_and_months(rule: Rule) -> None:
    assert rule.why
    assert all(value in VALUES[name] for name, value in rule.settings.items())
    assert all(re.fullmatch(r"(20\d\d-(0[1-9]|1[0-2]))?", month) for month in (rule.since, rule.until))
    assert rule.gpu <= {catalog.gpu(name).architecture for name in catalog.names("gpu")}


@pytest.mark.parametrize("software", [*sorted(known_software()), "a-program-of-ones-own"])
def test_every_software_has_what_a_plan_needs(software: str) -> None:
    found = find_defaults(software, gpu="hopper", month="2025-01")
    assert {"family", "attention_kernel", "layer_kernels", "states", "loss_kernel", "sharding"} <= found.keys()
    assert isinstance(find_family(found), Software)


def test_a_release_changes_what_holds() -> None:
    old = find_defaults("megatron-lm", gpu="ampere", month="2022-05")
    new = find_defaults("megatron-lm", gpu="ampere", month="2024-05")
    assert (find_family(old), old["attention_kernel"].value) == (Software.MEGATRON, "unfused")
    assert (find_family(new), new["attention_kernel"].value) == (Software.MEGATRON_CORE, "flash2")


def test_sharded_states_may_have_other_formats() -> None:
    formats = {
        sharded: find_defaults("hf-trainer", gpu="ampere", month="2024-05", sharded=sharded)["states"].value
        for sharded in (True, False)
    }
    assert formats == {True: "autocast", False: "pure-16bit"}


def test_a_chip_generation_changes_what_holds() -> None:
    kernels = {
        gpu: find_defaults("megatron-core", gpu=gpu, month="2025-01")["attention_kernel"].value
        for gpu in ("ampere", "hopper")
    }
    assert kernels == {"ampere": "flash2", "hopper": "cudnn"}


@pytest.mark.parametrize(
    ("month", "states"),
    # NeMo-Framework-Launcher's examples set optim.grad_sync_dtype=bf16 since April 2024
    [("2023-09", States.MIXED), ("2024-07", States.MIXED_16BIT_GRADIENTS), ("2025-11", States.MIXED_16BIT_GRADIENTS)],
)
def test_published_runs_of_nemo_have_16_bit_gradients_since_their_scripts_set_them(month: str, states: States) -> None:
    assert find_defaults("nemo", gpu="hopper", month=month)["states"].value == states
