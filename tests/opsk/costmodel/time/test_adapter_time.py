"""Times of adapters and of quantised bases: counted by hand, and beside published runs that differ in one thing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.calibration.runs.runs import parse_runs
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict_rows
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.adapter_time import AdapterTime, adapter_time, count_launches, unpacked_s
from opsk.workload.plan import AdapterFormat, LoraTargets, Plan, Software
from tests.fakes.ideal_machine import HBM_BYTES_PER_S, endless_arithmetic, endless_memory, machine
from tests.fakes.tables_of_runs import table
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=2, hidden=1024, heads=8, vocab=512, seq=1024, flash=True)
TOKENS = 1024
ELEMENTS = 4 * 1024 + 4 * 1024
"""Inputs and outputs of four square projections."""
LORA = Plan(
    global_batch=1,
    software=Software.PYTORCH,
    lora_rank=16,
    lora_targets=LoraTargets.ATTENTION,
    adapter_format=AdapterFormat.AUTOCAST,
)


def times(plan: Plan, on=endless_arithmetic) -> AdapterTime | None:  # type: ignore[no-untyped-def]
    shares, _ = shares_and_stages(MODEL, plan)
    return adapter_time(build_shape(MODEL), PlanTable.of([plan]), shares, on(), np.ones(1))


def moved(plan: Plan) -> tuple[float, float]:
    """Return the bytes that an adapter moves for an element of its inputs and outputs, forward and backward."""
    found = times(plan)
    assert found is not None
    scale = HBM_BYTES_PER_S / (TOKENS * ELEMENTS)
    return float(found.plain.forward[0]) * scale, float(found.plain.by_input[0]) * scale


@pytest.mark.parametrize(
    ("changed", "forward", "backward"),
    [
        # read 2, write 2, scale 4, add 6: 14 for an input and an output; their gradients 18
        ({}, 7, 9),
        ({"lora_dropout": True}, 9.5, 11.5),
        ({"adapter_format": AdapterFormat.FP32}, 19, 21),
        ({"base_bits": 4, "compiled": True}, 3, 5),
        ({"compiled": True}, 7, 9),
    ],
)
def test_an_adapter_passes_over_its_inputs_and_outputs(
    changed: dict[str, object], forward: float, backward: float
) -> None:
    assert moved(replace(LORA, **changed)) == (pytest.approx(forward), pytest.approx(backward))  # type: ignore[arg-type]


def test_products_of_an_adapter_have_its_rank() -> None:
    found = times(LORA, endless_memory)
    assert found is not None
    # 2 x 1,024 tokens x rank 16 x 8,192 at 100 TFLOP/s, one way, and as much for each of both gradients
    assert [float(found.plain.forward[0]), float(found.plain.by_weight[0])] == pytest.approx(
        [2 * TOKENS * 16 * ELEMENTS / 1e14] * 2
    )


@pytest.mark.parametrize("plan", [replace(LORA, lora_rank=0), replace(LORA, software=Software.MEGATRON_CORE)])
def test_only_modules_of_peft_are_counted(plan: Plan) -> None:
    assert times(plan) is None


def test_a_4_bit_weight_is_read_and_written_in_16_bits() -> None:
    plan = replace(LORA, base_bits=4)
    found = unpacked_s(PlanTable.of([plan]), machine(), np.array([1e6]))
    # 4.127 bits (QLoRA, section 3) and 16
    assert found is not None
    assert float(found[0]) * HBM_BYTES_PER_S == pytest.approx(1e6 * (4.127 / 8 + 2))


def test_adapters_and_quantised_weights_launch_kernels_of_their_own() -> None:
    plain, quantised = (count_launches(PlanTable.of([replace(LORA, base_bits=bits)])) for bits in (16, 4))
    assert [float(np.ravel(each)[0]) for each in plain] == [4 * 4, 4 * 6]
    assert [float(np.ravel(each)[0]) for each in quantised] == [4 * 4 + 14, 4 * 6 + 14]


QLORA = {
    "model": "Mistral 7B", "arch": "llama", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8",
    "ffn_hidden": "14336", "vocab": "32000", "seq_len": "4096", "gpu": "A100", "gpu_mem_gb": "80", "gpus": "1",
    "tp": "1", "pp": "1", "dp": "1", "sharding": "none", "recompute": "full", "precision": "bf16",
    "micro_batch": "4", "global_batch": "4", "software": "hf-trainer", "torch_version": "2.4.1",
    "attention_kernel": "flash2", "layer_kernels": "torch", "optimizer": "adamw", "task": "sft",
    "finetuning": "qlora", "lora_rank": "16", "lora_targets": "attention", "mem_definition": "allocated",
}  # fmt: skip
"""QLoRA of Mistral 7B (fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv)."""
SANTACODER = {
    **QLORA, "model": "SantaCoder", "arch": "gpt", "layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "1",
    "ffn_hidden": "8192", "vocab": "49280", "seq_len": "2048", "positions": "learned", "tied_embeddings": "yes",
    "gated_mlp": "no", "linear_bias": "yes", "norm": "layernorm", "lora_targets": "query-value",
}  # fmt: skip


def predicted(**columns: str) -> tuple[float, float]:
    """Return the seconds of a step and the allocated memory [GB] of a row."""
    (run,) = parse_runs(table({"id": "fms-1", **columns})).runs
    found = predict_rows([run.model], PlanTable.of([run.plan]), [run.cluster], DEFAULT)
    return float(np.ravel(found.time.step_s.expected)[0]), float(np.ravel(found.memory.allocated_bytes)[0]) / 1e9


@pytest.mark.parametrize(
    ("row", "upcast", "seconds", "gigabytes"),
    [
        # the same run with PEFT's prepare_model_for_kbit_training and without
        (QLORA, "yes", 5.6417, 20.669),
        (QLORA, "no", 4.5558, 16.374),
        ({**QLORA, "micro_batch": "8", "global_batch": "8"}, "yes", 10.9739, 37.003),
        # LayerNorms give fp32 under autocast, so that all outputs of a 4-bit base are in fp32
        (SANTACODER, "no", 0.5485, 9.147),
        ({**SANTACODER, "micro_batch": "8", "global_batch": "8"}, "no", 1.0238, 17.487),
    ],
)
def test_a_stream_in_fp32_costs_what_published_runs_show(
    row: dict[str, str], upcast: str, seconds: float, gigabytes: float
) -> None:
    found = predicted(**row, upcast_base=upcast)
    # these runs are of a source that is quicker than most with a trainer
    assert found == (pytest.approx(seconds, rel=0.09), pytest.approx(gigabytes, rel=0.12))
