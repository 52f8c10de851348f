"""A single plan is predicted on plain numbers, many on columns: the same formulas, and the same results to the bit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opsk.costmodel.predict import predict, predict_one, prediction_document
from opsk.costmodel.rules import find_violations
from opsk.costmodel.table import PlanTable
from opsk.errors import InputError, PlanInfeasibleError
from opsk.hardware.catalog import cluster
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    MoeDispatcher,
    MoeGemm,
    Offload,
    OffloadModule,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
)
from tests.fakes.training_runs import gpt

LLAMA = ModelShape(
    layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256, seq=8192, gated_mlp=True,
    tied_embeddings=False, attention_window=1024, windowed_layers=16, qk_norm=True,
)  # fmt: skip
MIXTRAL = replace(LLAMA, experts=8, top_k=2, expert_ffn=14336, shared_experts=1, dense_layers=2)
DEEPSEEK = replace(
    MIXTRAL, head_dim=192, v_head_dim=128, q_lora_rank=1536, kv_lora_rank=512, qk_rope_dim=64, mtp_layers=1,
    router_bias=True, expert_imbalance=1.3,
)  # fmt: skip
T5 = replace(
    gpt(layers=32, hidden=4096, heads=32), encoder_layers=32, encoder_seq=512, relative_positions=32,
    flash_attention=False,
)  # fmt: skip
MODELS = st.sampled_from([gpt(layers=48, hidden=6144, heads=64), LLAMA, MIXTRAL, DEEPSEEK, T5])
CLUSTERS = st.sampled_from(
    [
        cluster("superpod-h100"),
        replace(cluster("superpod-h100"), fabric="rail-only"),
        replace(cluster("superpod-h100"), in_network_reduction=True),
    ]
)
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw plans of every kind, those that no framework would start among them."""
    micro_batch, dp, lora_rank = draw(POWERS), draw(st.sampled_from([1, 2, 3, 16])), draw(st.sampled_from([0, 0, 0, 8]))
    kinds = {
        "sharding": Sharding,
        "recompute": Recompute,
        "schedule": Schedule,
        "states": States,
        "optimizer": Optimizer,
        "offload": Offload,
        "software": Software,
        "loss": Loss,
        "moe_dispatcher": MoeDispatcher,
        "moe_gemm": MoeGemm,
        **dict.fromkeys(("gradient_format", "master_format", "moment_format", "second_moment_format"), StateFormat),
    }
    switches = (
        *("sequence_parallel", "overlap", "tp_overlap", "compiled", "fused_moe", "fp8_weights"),
        *("moe_permute_fusion", "ep_overlap", "cuda_graphs"),
    )
    return Plan(
        **{name: draw(POWERS) for name in ("tp", "pp", "vpp", "cp", "ep")},
        **{name: draw(st.sampled_from(list(kind))) for name, kind in kinds.items()},
        **{name: draw(st.booleans()) for name in switches},
        precision=draw(st.sampled_from([Precision.BF16, Precision.FP32, Precision.FP8])),
        dp=dp,
        micro_batch=micro_batch,
        global_batch=micro_batch * dp * draw(st.integers(1, 64)),
        etp=draw(st.sampled_from([0, 1, 2])),
        shard_gpus=draw(st.sampled_from([0, 0, 2])),
        recompute_layers=draw(st.sampled_from([0, 0, 1])),
        first_stage_layers=draw(st.sampled_from([0, 0, 3])),
        last_stage_layers=draw(st.sampled_from([0, 0, 3])),
        frozen_fraction=draw(st.sampled_from([0.0, 0.5])),
        lora_rank=lora_rank,
        base_bits=draw(st.sampled_from([4, 16])) if lora_rank else 16,
        recompute_modules=" ".join(draw(st.sets(st.sampled_from(RecomputeModule)))),
        offload_modules=" ".join(draw(st.sets(st.sampled_from(OffloadModule)))),
        offload_layers=draw(st.sampled_from([0, 0, 2])),
        offload_fraction=draw(st.sampled_from([1.0, 0.5])),
    )


@given(model=MODELS, plan=plans(), machine=CLUSTERS)
def test_a_single_plan_is_predicted_as_a_row_of_a_table_is(model: ModelShape, plan: Plan, machine: Any):
    # what lays layers out in a way that leaves a stage none divides nothing by nothing
    assume(not any("stage" in words or "layers" in words for words in find_violations(model, plan)))
    neighbour = replace(plan, global_batch=2 * plan.global_batch)
    table = predict(model, PlanTable.of([neighbour, plan]), machine)
    alone = predict_one(model, plan, machine)
    assert prediction_document(alone, 0) == prediction_document(table, 1)
    for name in ("allocated", "reserved", "device"):
        assert np.array_equal(getattr(alone.memory.by_stage, name), getattr(table.memory.by_stage, name)[:, 1])


@given(model=MODELS, plan=plans(), machine=CLUSTERS)
def test_its_columns_are_plain_numbers_of_the_types_of_a_table(model: ModelShape, plan: Plan, machine: Any):
    table, alone = predict(model, PlanTable.of([plan]), machine), predict_one(model, plan, machine)
    assert _looks(alone, of_table=False) == _looks(table, of_table=True)


def _looks(value: Any, *, of_table: bool) -> Any:
    """Return shape, without the axis of a table's plans, and type of every column."""
    if isinstance(value, dict):
        return {name: _looks(entry, of_table=of_table) for name, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _looks(getattr(value, name), of_table=of_table) for name in value.__dataclass_fields__}
    return np.shape(value)[:-1] if of_table else np.shape(value), np.asarray(value).dtype


def test_the_only_plan_of_a_table_comes_back_from_its_numbers():
    plan = Plan(tp=2, dp=4, global_batch=16, sharding=Sharding.ZERO1, software=Software.PYTORCH, frozen_fraction=0.25)
    assert PlanTable.single(plan).row(0) == plan
    assert len(PlanTable.single(plan)) == 1


def test_what_divides_by_nothing_is_predicted_as_in_a_table():
    machine = cluster("superpod-h100")
    unplugged = replace(machine, node=replace(machine.node, gpu=replace(machine.node.gpu, pcie_bytes_per_s=0.0)))
    plan = Plan(dp=8, global_batch=64, offload=Offload.OPTIMIZER)
    with np.errstate(divide="ignore", invalid="ignore"):
        table, alone = predict(LLAMA, PlanTable.of([plan]), unplugged), predict_one(LLAMA, plan, unplugged)
    assert math.isnan(alone.time.step_s.expected)
    assert str(prediction_document(alone, 0)) == str(prediction_document(table, 0))  # what is no number is not equal
    assert _looks(alone, of_table=False) == _looks(table, of_table=True)


def test_what_cannot_be_predicted_is_refused_alike():
    plan = Plan(dp=8, global_batch=64, precision=Precision.FP8)
    for _ in range(2):  # and again: a refusal is not taken for an answer that is kept
        with pytest.raises(InputError, match="has no fp8 peak"):
            predict_one(LLAMA, plan, cluster("superpod-a100"))
    with pytest.raises(InputError, match="layers is"):
        predict_one(replace(LLAMA, layers=10**10), replace(plan, precision=Precision.BF16), cluster("superpod-h100"))


def test_a_plan_beyond_64_bits_is_refused_by_either():
    plan = Plan(global_batch=1)
    object.__setattr__(plan, "global_batch", 10**30)
    with pytest.raises((InputError, PlanInfeasibleError), match="too large"):
        predict_one(LLAMA, plan, cluster("superpod-h100"))
