"""Rows of every GPU, framework, model and setting that a table can state: each is predicted, and with possible numbers.

What makes a row impossible (no size of a model, a number format that the GPU does not have, more ranks than GPUs) is
left out of the draw, so that no row may be refused.
"""

from __future__ import annotations

import random

import pytest

from opsk.calibration.accuracy.predictions import predict_runs
from opsk.calibration.runs.columns import BY_NAME
from opsk.calibration.runs.runs import Runs, parse_runs
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.hardware import catalog
from opsk.workload.plan import Offload, Sharding
from opsk.workload.software_defaults import known_software
from tests.fakes.tables_of_runs import table

MODELS = (
    *("Llama 2 7B", "Llama 3.1 70B", "Llama 3.1 405B", "Qwen2.5-0.5B", "Qwen3-30B-A3B", "Mixtral 8x7B", "DeepSeek-V3"),
    *("gemma-2-9b", "Mistral-7B-v0.1", "gpt2", "GPT-3 175B", "Falcon-40B", "BLOOM-176B", "gpt-oss-20b", "OPT-13B"),
    *("Nemotron-H-8B", "Qwen3-Next-80B-A3B", "Kimi K2", "a model of 3B"),
)
COLUMNS = (
    *("finetuning", "optimizer", "attention_kernel", "param_dtype", "grad_dtype", "master_dtype", "moment_dtype"),
    *("loss_kernel", "optimizer_impl", "lora_targets", "adapter_format", "dp_kind", "mem_definition", "layer_kernels"),
    *("recompute_policy", "moe_dispatcher", "moe_gemm", "schedule", "task", "compiler", "qkv_layout"),
)
OTHERS = {
    "gpus": (1, 2, 8, 64, 1024),
    "sharding": ("none", "zero1", "zero2", "zero3/fsdp"),
    "recompute": ("none", "selective", "full"),
    "seq_len": (128, 512, 2048, 4096),
    "micro_batch": (1, 2, 16),
    "source_date": ("2019", "2022", "2023-06", "2024-06", "2025-10", "2026-06"),
    "offload": ("none", "optimizer", "params", "activations", "optimizer+activations"),
    "lora_rank": (1, 16, 256),
    "base_bits": (4, 8, 16),
    "window": (1024,),
    "grad_accum": (1, 16),
    "gpu_mem_gb": (24, 80, 141),
    **dict.fromkeys(
        ("torch_compile", "packed", "upcast_base", "quantised_head", "hsdp", "lora_dropout"), ("yes", "no")
    ),
}
ROWS = 160


@pytest.fixture(scope="module")
def drawn() -> Runs:
    draw = random.Random(23)
    values = {**{name: tuple(BY_NAME[name].values) for name in COLUMNS}, **OTHERS}
    names = {"gpu": sorted(catalog.names("gpu")), "software": (*sorted(known_software()), "in-house"), "model": MODELS}
    rows = []
    for number in range(ROWS):
        chosen = {**names, **{name: values[name] for name in draw.sample(sorted(values), draw.randint(0, 10))}}
        cells = {name: str(draw.choice(among)) for name, among in chosen.items()}
        rows.append({"id": f"any-{number}", "gpus": "8", **cells, "iter_time_s": "1", "peak_mem_gb": "10"})
    return parse_runs(table(*rows))


def test_no_row_is_refused_that_states_enough(drawn: Runs) -> None:
    assert [(row.id, row.why) for row in drawn.unpredictable] == []
    assert predict_runs(drawn.runs)[1] == {}


def test_no_prediction_is_impossible(drawn: Runs) -> None:
    for run, prediction in zip(drawn.runs, predict_runs(drawn.runs)[0], strict=True):
        assert prediction is not None
        # causal attention is counted in full and frozen weights as trained: no more than both can give
        assert 0 < prediction.quantities["mfu"].expected < 1, run.id
        definitions = prediction.definitions
        assert definitions["allocated"] <= definitions["reserved"] * (1 + 1e-9), run.id
        assert definitions["reserved"] <= definitions["device"] * (1 + 1e-9), run.id
        plan = run.plan
        shards = plan.tp * plan.pp * max(plan.ep, 1) * (plan.dp if plan.sharding is Sharding.ZERO3 else 1)
        bits = plan.base_bits if plan.lora_rank else 16
        if plan.offload is not Offload.OPTIMIZER_AND_WEIGHTS:
            assert definitions["allocated"] > total_parameters(run.model) * bits / 8 / shards * 0.9, run.id
