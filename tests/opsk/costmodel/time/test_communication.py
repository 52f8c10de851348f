"""Communication of each axis, all of it and what shows, worked out by hand on links of round numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.machine import Machine
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.communication import (
    LAYER_TENSORS,
    SCATTERED_FRACTION,
    LayerCommunication,
    Traffic,
    data_parallel,
    layer_communication,
    pipeline,
    tied_embedding,
)
from opsk.costmodel.time.layer_time import LayerTime, layer_time
from opsk.costmodel.time.optimizer_time import PCIE_FRACTION, trained_parameters
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Schedule, Sharding, Software, States
from tests.fakes.ideal_machine import (
    HB_BYTES_PER_S,
    NIC_BYTES_PER_S,
    PCIE_BYTES_PER_S,
    endless_memory,
    machine,
    software,
)
from tests.fakes.training_runs import gpt, parts, shares_and_stages

MODEL = gpt(layers=4, hidden=1024, heads=16, vocab=1024, seq=2048, flash=True)
MOE = replace(MODEL, experts=8, top_k=2, expert_ffn=1024)
STREAM_BYTES = 2048 * 1024 * 2
SHARDED = Plan(
    dp=8, global_batch=32, sharding=Sharding.ZERO3, states=States.MIXED_16BIT_GRADIENTS, software=Software.PYTORCH
)
"""FSDP inside one node: 4 micro-batches."""


def _times(model: ModelShape, plan: Plan, on: Machine) -> LayerTime:
    return layer_time(build_shape(model), PlanTable.of([plan]), shares_and_stages(model, plan)[0], on, software())


def _layer(
    model: ModelShape, plan: Plan, *, on: Machine | None = None, using: SoftwareColumns | None = None
) -> LayerCommunication:
    on = on or machine()
    shares, _ = shares_and_stages(model, plan)
    return layer_communication(build_shape(model), shares, _times(model, plan, on), on, using or software())


def _data(
    plan: Plan,
    model: ModelShape = MODEL,
    *,
    on: Machine | None = None,
    using: SoftwareColumns | None = None,
    compute_s: float = 0.0,
    backward_s: float = 0.0,
) -> tuple[float, float]:
    """Return total and exposed time of the first stage [s]."""
    shares, _, count = parts(model, plan)
    stages = np.ones((3, 1))
    traffic = data_parallel(
        build_shape(model), PlanTable.of([plan]), shares, count, trained_parameters(shares, count), on or machine(),
        using or software(), compute_s * stages, backward_s * stages,
    )  # fmt: skip
    return float(traffic.total[0, 0]), float(traffic.exposed[0, 0])


def _held(plan: Plan, model: ModelShape = MODEL) -> float:
    return float(parts(model, plan)[2].dense[0, 0])


def _s(column: np.ndarray) -> float:
    return float(np.asarray(column).reshape(-1)[0])


def _both(traffic: Traffic) -> tuple[float, float]:
    return _s(traffic.total), _s(traffic.exposed)


@pytest.mark.parametrize(("recompute", "passes"), [(Recompute.NONE, 2), (Recompute.FULL, 3)])
def test_tensor_parallelism_all_reduces_four_times_a_layer(recompute: Recompute, passes: int) -> None:
    # 2 arrays a pass, each 2 x 3/4 of it over 100 GB/s
    traffic = _layer(MODEL, Plan(tp=4, global_batch=1, recompute=recompute)).tp
    expected = passes * 2 * (2 * 3 / 4) * STREAM_BYTES / HB_BYTES_PER_S
    assert _both(traffic) == (pytest.approx(expected), pytest.approx(expected))


def test_tensor_parallelism_hides_only_where_the_software_pipelines_it() -> None:
    plan, on = Plan(tp=4, global_batch=1), machine()
    window = 0.01 * _s(_times(MODEL, plan, on).average.total)
    total, exposed = _both(_layer(MODEL, plan, on=on, using=software(tp_overlap=0.01)).tp)
    assert exposed == pytest.approx(total - window)
    assert _both(_layer(MODEL, plan, on=on, using=software(tp_overlap=1e3)).tp) == (total, 0)


@pytest.mark.parametrize(("share", "hidden_passes"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_what_megatron_starts_before_weight_gradients_hides_beside_them(share: float, hidden_passes: float) -> None:
    # all of a backward's pass, or the reduce-scatters of one, where the products take long enough
    plan, on = Plan(tp=4, global_batch=1), replace(machine(), hb_bytes_per_s=1e13)
    total, exposed = _both(_layer(MODEL, plan, on=on, using=software(tp_async_share=share)).tp)
    assert exposed == pytest.approx(total * (1 - hidden_passes / 2))


def test_no_more_hides_than_column_parallel_weight_gradients_take() -> None:
    # 3 of 4 and 4 of 8 h^2 weights are of queries, keys, values and of the MLP's first matrix: 7 of 12
    plan, on = Plan(tp=4, global_batch=1), replace(machine(), hb_bytes_per_s=1e3)
    by_weight = _s(_times(MODEL, plan, on).average.by_weight)
    total, exposed = _both(_layer(MODEL, plan, on=on, using=software(tp_async_share=1.0)).tp)
    assert total - exposed == pytest.approx(by_weight * 7 / 12)


def test_each_call_pays_the_latency_of_its_ring() -> None:
    # 2 all-reduces a pass of 2 (4 - 1) hops, 2 passes
    plan = Plan(tp=4, global_batch=1)
    slow, fast = (_s(_layer(MODEL, plan, on=machine(hb_hop_s=hop)).tp.total) for hop in (1e-5, 0.0))
    assert slow - fast == pytest.approx(2 * 2 * 6 * 1e-5)


def test_context_parallelism_passes_keys_and_values_round_and_their_gradients_back() -> None:
    # 3 turns (forward, backward, gradients) of 3/4 of keys and values of all 2,048 tokens; cp lies beside tp 1
    total, exposed = _both(_layer(MODEL, Plan(cp=4, global_batch=1)).cp)
    assert total == exposed == pytest.approx(3 * 3 / 4 * 2 * STREAM_BYTES / HB_BYTES_PER_S)
    grouped, _ = _both(_layer(replace(MODEL, kv_heads=4), Plan(cp=4, global_batch=1)).cp)
    assert grouped == pytest.approx(total / 4)


def test_context_parallelism_hides_beside_attention() -> None:
    plan, on = Plan(cp=4, global_batch=1), endless_memory()
    attention = _s(_times(MODEL, plan, on).attention)
    total, exposed = _both(_layer(MODEL, plan, on=on, using=software(cp_overlap=0.5)).cp)
    assert exposed == pytest.approx(total - 0.5 * 3 * attention)
    longer = replace(MODEL, seq=65536)
    assert _both(_layer(longer, plan, on=on, using=software(cp_overlap=1.0)).cp)[1] == 0


def test_experts_dispatch_and_combine_in_two_all_to_alls_a_pass() -> None:
    # 2 passes x 2 all-to-alls; 7/8 of twice the tokens over NVLink, of which messages to all reach less than rings
    total, exposed = _both(_layer(MOE, Plan(dp=8, ep=8, global_batch=8)).ep)
    sent_s = 2 * 2 * 7 / 8 * 2 * STREAM_BYTES / (SCATTERED_FRACTION * HB_BYTES_PER_S)
    assert total == exposed == pytest.approx(sent_s)


def test_across_nodes_experts_wait_for_the_nics() -> None:
    # 16 ranks on 2 nodes: 8/16 of the bytes leave over 10 GB/s
    model = replace(MOE, experts=16)
    total, _ = _both(_layer(model, Plan(dp=16, ep=16, global_batch=16)).ep)
    assert total == pytest.approx(2 * 2 * 8 / 16 * 2 * STREAM_BYTES / NIC_BYTES_PER_S)


def test_uneven_experts_and_padded_capacity_lengthen_the_all_to_all() -> None:
    plan = Plan(dp=8, ep=8, global_batch=8)
    even, uneven, padded = (
        _both(_layer(replace(MOE, **fields), plan).ep)[0]  # type: ignore[arg-type]
        for fields in ({}, {"expert_imbalance": 1.5}, {"capacity_factor": 1.25})
    )
    assert uneven == pytest.approx(1.5 * even)
    assert padded == pytest.approx(1.25 * even)


def test_dense_layers_of_a_mixture_dispatch_nothing() -> None:
    plan = Plan(dp=8, ep=8, global_batch=8)
    all_sparse, half = (_both(_layer(replace(MOE, dense_layers=layers), plan).ep)[0] for layers in (0, 2))
    assert half == pytest.approx(all_sparse / 2)


def test_experts_hide_beside_the_sparse_layer() -> None:
    plan, on = Plan(dp=8, ep=8, global_batch=8), machine()
    window = 0.05 * _s(_times(MOE, plan, on).sparse.total)
    total, exposed = _both(_layer(MOE, plan, on=on, using=software(ep_overlap=0.05)).ep)
    assert exposed == pytest.approx(total - window)


def test_an_axis_of_one_says_nothing() -> None:
    layer = _layer(MOE, Plan(global_batch=1))
    for traffic in (layer.tp, layer.cp, layer.ep):
        assert _both(traffic) == (0, 0)
    shares, _ = shares_and_stages(MODEL, Plan(global_batch=1))
    assert _both(pipeline(build_shape(MODEL), shares, machine(), software())) == (0, 0)
    assert _data(Plan(global_batch=1)) == (0, 0)


@pytest.mark.parametrize(
    ("axes", "messages"),
    [({}, 2), ({"vpp": 2}, 4), ({"schedule": Schedule.ZERO_BUBBLE_V, "vpp": 2}, 4), ({"schedule": Schedule.GPIPE}, 2)],
)
def test_stages_send_an_activation_on_and_a_gradient_back_for_each_chunk(
    axes: dict[str, object], messages: int
) -> None:
    plan = Plan(**{"tp": 2, "pp": 2, "global_batch": 8, **axes})  # type: ignore[arg-type]
    shares, _ = shares_and_stages(MODEL, plan)
    traffic = pipeline(build_shape(MODEL), shares, machine(), software(pp_overlap=0.25))
    # each of the two ranks of tp sends its half over NVLink; a quarter is hidden
    expected = messages * STREAM_BYTES / 2 / HB_BYTES_PER_S
    assert _both(traffic) == (pytest.approx(expected), pytest.approx(0.75 * expected))


def test_stages_on_other_nodes_use_nics() -> None:
    shares, _ = shares_and_stages(MODEL, Plan(tp=8, pp=2, global_batch=8))
    total, _ = _both(pipeline(build_shape(MODEL), shares, machine(), software()))
    assert total == pytest.approx(2 * STREAM_BYTES / 8 / NIC_BYTES_PER_S)


@pytest.mark.parametrize(
    ("sharding", "bytes_each"),
    [(Sharding.NONE, 2 * 4), (Sharding.ZERO1, 4 + 2), (Sharding.ZERO2, 4 + 2)],
)
def test_gradients_cross_once_a_step_whatever_the_micro_batches(sharding: Sharding, bytes_each: int) -> None:
    # bf16 weights with fp32 gradients, 7/8 of each over NVLink
    for batch in (8, 64):
        plan = Plan(dp=8, global_batch=batch, sharding=sharding)
        expected = 7 / 8 * bytes_each * _held(plan) / HB_BYTES_PER_S
        assert _data(plan) == (pytest.approx(expected), pytest.approx(expected))


def test_zero_3_gathers_twice_and_scatters_once_for_each_micro_batch() -> None:
    # 16-bit weights and gradients: 3 x 2 bytes, four times
    expected = 4 * 7 / 8 * 6 * _held(SHARDED) / HB_BYTES_PER_S
    assert _data(SHARDED) == (pytest.approx(expected), pytest.approx(expected))


def test_deepspeed_calls_for_each_tensor_where_fsdp_calls_for_each_layer() -> None:
    # 3 collectives x 4 layers x 4 micro-batches of 7 hops; DeepSpeed 12 times as many
    on = machine(hb_hop_s=1e-6)
    for family, tensors in ((Software.PYTORCH, 1), (Software.DEEPSPEED, LAYER_TENSORS)):
        plan = replace(SHARDED, software=family)
        assert _data(plan, on=on)[0] - _data(plan)[0] == pytest.approx(3 * 4 * 4 * 7e-6 * tensors)


def test_what_is_sharded_within_a_node_is_reduced_between_nodes_once() -> None:
    # HSDP on 16 GPUs: full sharding inside 8; then an all-reduce of an eighth of the 16-bit gradients between 2 nodes,
    # 2 x 1/2 of it over the NIC of each GPU
    hybrid = replace(SHARDED, dp=16, global_batch=64, shard_gpus=8)
    inside = _data(SHARDED)[0]
    between = 2 * 1 / 2 * 2 * _held(hybrid) / 8 / NIC_BYTES_PER_S
    assert _data(hybrid)[0] == pytest.approx(inside + between)
    # full sharding over both nodes brings all weights through the NICs for each micro-batch
    assert _data(replace(hybrid, shard_gpus=0))[0] > 1.1 * _data(hybrid)[0]


def test_an_optimizer_sharded_within_a_node_reduces_everywhere_and_gathers_inside() -> None:
    plan = Plan(dp=32, global_batch=32, sharding=Sharding.ZERO1, shard_gpus=8)
    held = _held(plan)
    # rings of 32 on 4 nodes leave each by 8 NICs: 31/32 x 4 bytes, twice, over 80 GB/s
    reduced = 2 * 31 / 32 * 4 * held / (8 * NIC_BYTES_PER_S)
    gathered = 7 / 8 * 2 * held / HB_BYTES_PER_S
    assert _data(plan)[0] == pytest.approx(reduced + gathered)


def test_frozen_parameters_are_not_reduced() -> None:
    plan = Plan(dp=8, global_batch=8)
    assert _data(replace(plan, frozen_fraction=0.75))[0] == pytest.approx(_data(plan)[0] / 4)
    adapters = replace(plan, lora_rank=8)
    added = float(parts(MODEL, adapters)[2].adapters[0, 0])
    assert _data(adapters)[0] == pytest.approx(7 / 8 * 8 * added / HB_BYTES_PER_S)


def test_zero_3_gathers_frozen_parameters_too() -> None:
    adapters = replace(SHARDED, lora_rank=8)
    added = float(parts(MODEL, adapters)[2].adapters[0, 0])
    expected = 4 * 7 / 8 * (4 * _held(adapters) + 2 * added) / HB_BYTES_PER_S
    assert _data(adapters)[0] == pytest.approx(expected)


def test_weights_in_host_memory_come_up_before_they_are_gathered() -> None:
    # each rank's eighth of 16-bit weights, forward and backward, for 4 micro-batches
    resident, fetched = (
        _data(replace(SHARDED, offload=place))[0] for place in (Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS)
    )
    assert resident == pytest.approx(_data(SHARDED)[0])
    copied = 4 * 2 * 2 * _held(SHARDED) / 8 / (PCIE_FRACTION * PCIE_BYTES_PER_S)
    assert fetched - resident == pytest.approx(copied)


def test_a_reduction_hides_beside_the_backward_and_with_a_sharded_optimizer_beside_the_step_too() -> None:
    plan, using = Plan(dp=8, global_batch=8), software(dp_overlap=0.5)
    total, exposed = _data(plan, using=using, compute_s=3e-4, backward_s=2e-4)
    assert exposed == pytest.approx(total - 1e-4)
    sharded = replace(plan, sharding=Sharding.ZERO1)
    total, exposed = _data(sharded, using=using, compute_s=3e-4, backward_s=2e-4)
    assert exposed == pytest.approx(total - 1.5e-4)
    assert _data(plan, using=using, compute_s=9.0, backward_s=6.0)[1] == 0


def test_full_sharding_hides_beside_every_micro_batch() -> None:
    total, exposed = _data(SHARDED, using=software(fsdp_overlap=0.5), compute_s=3e-4, backward_s=2e-4)
    assert exposed == pytest.approx(total - 4 * 1.5e-4)


def test_experts_are_reduced_among_their_own_replicas() -> None:
    # 8 ranks hold the dense part, 2 each expert; fp32 gradients, there and back
    plan = Plan(dp=8, ep=4, global_batch=8)
    count = parts(MOE, plan)[2]
    dense, experts = float(count.dense[0, 0]), float(count.experts[0, 0])
    expected = (7 / 8 * 8 * dense + 1 / 2 * 8 * experts) / HB_BYTES_PER_S
    assert _data(plan, MOE)[0] == pytest.approx(expected)


def test_gradients_of_16_bits_halve_the_wire() -> None:
    fp32 = Plan(dp=8, global_batch=8)
    assert _data(replace(fp32, precision=Precision.FP16))[0] == pytest.approx(_data(fp32)[0] / 2)


def test_pipeline_stages_of_pytorch_gather_and_scatter_once_a_step() -> None:
    # bf16 gradients and weights of the first of two stages, once round the ring of 4 ranks that lie 1 apart
    plan = replace(SHARDED, pp=2, dp=4)
    total, _ = _data(plan)
    assert total == pytest.approx(_held(plan) * (2 + 2) * 3 / 4 / HB_BYTES_PER_S)


def test_a_tied_embedding_crosses_the_whole_pipeline_once() -> None:
    # 1,024 rows of fp32 gradients to a rank 8 x 3 further on
    shares, _ = shares_and_stages(MODEL, Plan(tp=8, pp=4, global_batch=8))
    assert _s(tied_embedding(build_shape(MODEL), shares, machine()).total) == pytest.approx(
        1024 * 1024 / 8 * 4 / NIC_BYTES_PER_S
    )
    alone, _ = shares_and_stages(MODEL, Plan(tp=8, global_batch=8))
    assert _s(tied_embedding(build_shape(MODEL), alone, machine()).total) == 0
