"""How the parts of a step are put together: stages, schedules, recomputation, stragglers, offloading, identities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.efficiency import Efficiency, SoftwareColumns, Spread
from opsk.costmodel.machine import Machine
from opsk.costmodel.memory.activations import layer_bytes
from opsk.costmodel.sizes.pipeline import bubble_s
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable, TimeTable
from opsk.costmodel.time.layer_time import LayerTime, layer_time
from opsk.costmodel.time.optimizer_time import PCIE_FRACTION
from opsk.costmodel.time.step_time import SELECTED_OPERATIONS, step_seconds, step_time
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Optimizer, Plan, Recompute, Schedule, Sharding, Software, States
from tests.fakes.ideal_machine import PCIE_BYTES_PER_S, machine, software
from tests.fakes.training_runs import gpt, parts, shares_and_stages

MODEL = gpt(layers=8, hidden=1024, heads=16, vocab=1024, seq=1024, flash=True)
MOE = replace(MODEL, experts=8, top_k=2, expert_ffn=1024)
PLAN = Plan(global_batch=4)
WORK = ("compute", "recompute", "tp", "cp", "ep", "pp")
"""Parts that every micro-batch has alike."""
ONE_NODE = st.sampled_from(
    [
        Plan(tp=2, dp=4, global_batch=8),
        Plan(pp=4, dp=2, global_batch=16),
        Plan(pp=4, dp=2, vpp=2, global_batch=16, recompute=Recompute.FULL),
        Plan(tp=2, cp=2, dp=2, global_batch=8, sharding=Sharding.ZERO3),
        Plan(dp=8, ep=8, global_batch=32, micro_batch=2, sharding=Sharding.ZERO1),
        Plan(pp=2, dp=4, global_batch=64, schedule=Schedule.ZERO_BUBBLE, recompute=Recompute.SELECTIVE),
    ]
)


def _time(
    model: ModelShape,
    *plans: Plan,
    on: Machine | None = None,
    using: SoftwareColumns | None = None,
    spread: Spread | None = None,
) -> TimeTable:
    shares, stages, count = parts(model, *plans)
    return step_time(
        build_shape(model), PlanTable.of(plans), shares, stages, count, on or machine(), using or software(len(plans)),
        spread or Efficiency().spread,
    )  # fmt: skip


def _parts(model: ModelShape, plan: Plan, **how: Machine | SoftwareColumns) -> dict[str, float]:
    time = _time(model, plan, **how)  # type: ignore[arg-type]
    return {name: float(np.broadcast_to(column, (1,))[0]) for name, column in time.components.items()}


def _layer(model: ModelShape, plan: Plan, on: Machine | None = None) -> LayerTime:
    return layer_time(
        build_shape(model), PlanTable.of([plan]), shares_and_stages(model, plan)[0], on or machine(), software()
    )


def _s(column: np.ndarray) -> float:
    return float(np.asarray(column).reshape(-1)[0])


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"software": Software.PYTORCH}, 0.5),
        ({"software": Software.PYTORCH, "bare_loop": True}, 0.01),
        # FSDP's distributed tensors take the host longer
        (
            {"software": Software.PYTORCH, "bare_loop": True, "sharding": Sharding.ZERO3, "dp": 2},
            0.5,
        ),
        ({"software": Software.MEGATRON_CORE, "bare_loop": True}, 0.5),
    ],
)
def test_a_program_without_a_trainer_starts_its_next_step_at_once(plan: dict[str, Any], expected: float) -> None:
    found = _parts(MODEL, replace(PLAN, **plan), using=software(step_overhead_s=0.5))
    assert found["overhead"] == expected


def test_a_trainer_takes_a_share_of_the_computation() -> None:
    plan = replace(PLAN, recompute=Recompute.FULL)
    without, found = (_parts(MODEL, plan, using=software(trainer_fraction=share)) for share in (0.0, 0.1))
    assert found["overhead"] == pytest.approx(0.1 * (found["compute"] + found["recompute"]))
    assert {**found, "overhead": 0.0} == {**without, "overhead": 0.0}


def test_one_gpu_computes_its_layers_its_ends_and_its_optimizer() -> None:
    times = _layer(MODEL, PLAN)
    found = _parts(MODEL, PLAN, using=software(step_overhead_s=0.5))
    assert found["compute"] == pytest.approx(4 * (8 * _s(times.plain.total) + _s(times.head) + _s(times.embedding)))
    assert found["optimizer"] > 0
    assert found["overhead"] == 0.5
    assert [name for name, seconds in found.items() if seconds] == ["compute", "optimizer", "overhead"]


def test_the_seconds_that_a_fit_asks_for_are_those_of_the_table() -> None:
    plans = (PLAN, Plan(pp=4, vpp=2, tp=2, global_batch=8, recompute=Recompute.FULL))
    shares, stages, count = parts(MODEL, *plans)
    alone = step_seconds(build_shape(MODEL), PlanTable.of(plans), shares, stages, count, machine(), software(2))
    np.testing.assert_allclose(alone, _time(MODEL, *plans).step_s.expected)


def test_the_range_is_that_of_the_spread() -> None:
    step_s = _time(MODEL, PLAN, spread=Spread(time_log_sigma=0.1)).step_s
    assert _s(step_s.high / step_s.expected) == pytest.approx(np.exp(0.1645))
    assert _s(step_s.expected / step_s.low) == pytest.approx(np.exp(0.1645))


@pytest.mark.parametrize(
    ("recompute", "layers", "share"), [(Recompute.FULL, 0, 1.0), (Recompute.FULL, 2, 1 / 4), (Recompute.NONE, 0, 0.0)]
)
def test_full_recomputation_repeats_the_forward_of_all_or_some_layers(
    recompute: Recompute, layers: int, share: float
) -> None:
    plan = replace(PLAN, recompute=recompute, recompute_layers=layers)
    forward = _s(_layer(MODEL, PLAN).plain.forward)
    assert _parts(MODEL, plan)["recompute"] == pytest.approx(4 * 8 * share * forward)


def test_layers_to_recompute_are_those_of_each_stage() -> None:
    # one of the four layers of each of two stages
    plan = Plan(pp=2, global_batch=4, recompute=Recompute.FULL, recompute_layers=1)
    assert _parts(MODEL, plan)["recompute"] == pytest.approx(4 * 4 / 4 * _s(_layer(MODEL, PLAN).plain.forward))


def test_selective_recomputation_repeats_the_attention_and_in_pytorch_half_of_the_rest() -> None:
    times = _layer(MODEL, PLAN)
    attention, forward = _s(times.attention), _s(times.plain.forward)
    for family, each in (
        (Software.MEGATRON_CORE, attention),
        (Software.DEEPSPEED, attention),
        (Software.PYTORCH, SELECTED_OPERATIONS * (forward - attention)),
    ):
        plan = replace(PLAN, recompute=Recompute.SELECTIVE, software=family)
        assert _parts(MODEL, plan)["recompute"] == pytest.approx(4 * 8 * each)


@pytest.mark.parametrize(
    "schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE_2]
)
def test_the_bubble_is_the_schedules_of_the_average_stage(schedule: Schedule) -> None:
    plan = Plan(pp=4, global_batch=16, schedule=schedule)
    times, (shares, _) = _layer(MODEL, plan), shares_and_stages(MODEL, plan)
    ends = (times.head + times.embedding) / 4 / 3
    message = _parts(MODEL, plan)["pp"] / 16 / 2
    expected = bubble_s(
        shares,
        2 * times.plain.forward + ends + message,
        2 * times.plain.by_input + ends + message,
        2 * times.plain.by_weight + ends,
    )
    assert _parts(MODEL, plan)["bubble"] == pytest.approx(_s(expected))


def test_schedules_are_ordered_as_their_papers_say() -> None:
    plan = Plan(pp=4, global_batch=32)
    plain, gpipe, h1, h2, interleaved, folded = (
        _parts(MODEL, replace(plan, **how))["bubble"]  # type: ignore[arg-type]
        for how in (
            {},
            {"schedule": Schedule.GPIPE},
            {"schedule": Schedule.ZERO_BUBBLE},
            {"schedule": Schedule.ZERO_BUBBLE_2},
            {"vpp": 2},
            {"schedule": Schedule.ZERO_BUBBLE_V, "vpp": 2},
        )
    )
    assert gpipe == plain
    assert folded <= h2 <= h1 < plain
    # half the bubble with two chunks, but for twice the messages
    assert interleaved == pytest.approx(plain / 2, rel=0.05)


def test_one_stage_has_no_bubble() -> None:
    assert _parts(MODEL, PLAN)["bubble"] == 0


@pytest.mark.parametrize(("first", "last"), [(0, 5), (5, 0), (1, 1)])
def test_uneven_stages_are_slower_than_even_ones(first: int, last: int) -> None:
    plan = Plan(pp=4, global_batch=16)
    uneven = replace(plan, first_stage_layers=first, last_stage_layers=last)
    even_s, uneven_s = _time(MODEL, plan, uneven).step_s.expected
    assert uneven_s > even_s


def test_the_slowest_stage_sets_the_pace() -> None:
    # 5 of 8 layers on the last stage of 4, with the head
    plan = Plan(pp=4, global_batch=16, last_stage_layers=5)
    times = _layer(MODEL, plan)
    assert _parts(MODEL, plan)["compute"] == pytest.approx(16 * (5 * _s(times.plain.total) + _s(times.head)))


def test_a_lighter_last_stage_makes_up_for_a_heavy_head() -> None:
    model = replace(MODEL, vocab=256000, layers=12)
    plan = Plan(pp=4, global_batch=64)
    even_s, lighter_s = _time(model, plan, replace(plan, last_stage_layers=1)).step_s.expected
    assert lighter_s < even_s


@pytest.mark.parametrize("nodes", [1, 2, 16, 512])
def test_every_doubling_of_the_nodes_adds_the_same_share(nodes: int) -> None:
    plan = Plan(dp=8 * nodes, global_batch=8 * nodes)
    found = _parts(MODEL, plan, using=software(straggler_fraction=0.01))
    rest = sum(found.values()) - found["straggler"]
    assert found["straggler"] == pytest.approx(0.01 * np.log2(nodes) * rest)


@given(plan=ONE_NODE, factor=st.integers(2, 8))
def test_more_micro_batches_add_the_same_time_each(plan: Plan, factor: int) -> None:
    once, more = (_parts(MOE, one) for one in (plan, replace(plan, global_batch=factor * plan.global_batch)))
    for name in WORK:
        assert more[name] == pytest.approx(factor * once[name])
    assert more["optimizer"] == once["optimizer"]
    assert more["overhead"] == once["overhead"]
    if plan.schedule is Schedule.ONE_F_ONE_B and plan.vpp == 1:
        assert more["bubble"] == pytest.approx(once["bubble"])
    calls = factor if plan.sharding is Sharding.ZERO3 else 1
    assert more["dp"] == pytest.approx(calls * once["dp"])


@given(plan=ONE_NODE)
def test_more_replicas_of_the_same_work_leave_the_work_as_it_is(plan: Plan) -> None:
    # twice the ranks and twice the batch: as many micro-batches each
    once, twice = (
        _parts(MODEL, one) for one in (plan, replace(plan, dp=2 * plan.dp, global_batch=2 * plan.global_batch))
    )
    for name in ("compute", "recompute", "tp"):
        assert twice[name] == pytest.approx(once[name])


@given(plan=ONE_NODE)
def test_a_machine_twice_as_fast_in_everything_takes_half_the_time(plan: Plan) -> None:
    names = (
        *("peak_flop_per_s", "matmul_flop_per_s", "attention_flop_per_s", "plain_flop_per_s", "hbm_bytes_per_s"),
        *("hb_bytes_per_s", "nic_bytes_per_s", "pcie_bytes_per_s"),
    )
    slow = machine()
    fast = machine(**{name: 2.0 * float(getattr(slow, name)) for name in names})
    # with a capacity: nothing waits for the host, which is no part of the machine
    model = replace(MOE, capacity_factor=1.0)
    slow_s, fast_s = (_s(_time(model, plan, on=on).step_s.expected) for on in (slow, fast))
    assert fast_s == pytest.approx(slow_s / 2)


@given(plan=ONE_NODE)
def test_without_overlap_all_communication_shows(plan: Plan) -> None:
    time = _time(MOE, plan)
    for axis, total in time.communication.items():
        assert _s(time.components[axis]) == pytest.approx(_s(total)), axis


@given(plan=ONE_NODE, share=st.floats(0.0, 1.0))
def test_overlap_hides_some_and_never_adds(plan: Plan, share: float) -> None:
    names = ("dp_overlap", "fsdp_overlap", "tp_overlap", "ep_overlap", "cp_overlap", "pp_overlap")
    shown, hidden = (_time(MOE, plan, using=software(**dict.fromkeys(names, value))) for value in (0.0, share))
    for axis, total in hidden.communication.items():
        assert _s(total) == pytest.approx(_s(shown.communication[axis]))
        assert _s(hidden.components[axis]) <= _s(shown.components[axis]) * (1 + 1e-12)
    assert _s(hidden.step_s.expected) <= _s(shown.step_s.expected) * (1 + 1e-12)


def test_adapters_are_cheaper_to_train_than_the_model() -> None:
    plan = Plan(dp=8, global_batch=32)
    whole, half, adapters = (
        _parts(MODEL, one) for one in (plan, replace(plan, frozen_fraction=0.5), replace(plan, lora_rank=16))
    )
    for name in ("compute", "dp", "optimizer"):
        assert adapters[name] < half[name] < whole[name], name
    # forward and the gradients of inputs stay
    assert adapters["compute"] > 0.6 * whole["compute"]
    assert adapters["dp"] < 0.1 * whole["dp"]


def test_optimizers_with_smaller_states_step_faster() -> None:
    plan = Plan(dp=8, global_batch=8)
    adam, lion, small = (
        _parts(MODEL, replace(plan, optimizer=name))["optimizer"]
        for name in (Optimizer.ADAM, Optimizer.LION, Optimizer.ADAM_8BIT)
    )
    assert small < lion < adam
    pure = _parts(MODEL, replace(plan, states=States.PURE_16BIT))["optimizer"]
    assert pure == pytest.approx(20 / 42 * adam)


def test_an_offloaded_optimizer_is_slower_the_fewer_gpus_share_the_states() -> None:
    plan = Plan(dp=8, global_batch=8, sharding=Sharding.ZERO2, software=Software.DEEPSPEED)
    resident, offloaded = (_parts(MODEL, replace(plan, offload=place)) for place in (Offload.NONE, Offload.OPTIMIZER))
    assert offloaded["optimizer"] > 10 * resident["optimizer"]
    assert {name: offloaded[name] for name in WORK} == {name: resident[name] for name in WORK}


def test_offloaded_activations_wait_for_pcie_as_far_as_computing_does_not_hide_them() -> None:
    plan = replace(PLAN, offload=Offload.ACTIVATIONS)
    shares, _ = shares_and_stages(MODEL, plan)
    kept = _s(layer_bytes(build_shape(MODEL), PlanTable.of([plan]), shares).plain)
    times = _layer(MODEL, PLAN)
    forward, backward = _s(times.plain.forward), _s(times.plain.by_input + times.plain.by_weight)
    copied = kept / (PCIE_FRACTION * PCIE_BYTES_PER_S)
    assert copied > backward > forward
    assert _parts(MODEL, plan)["recompute"] == pytest.approx(4 * 8 * (2 * copied - forward - backward))
    # nothing hides where overlap is switched off, and nothing shows beside a fast link
    assert _parts(MODEL, replace(plan, overlap=False))["recompute"] == pytest.approx(4 * 8 * 2 * copied)
    assert _parts(MODEL, plan, on=machine(pcie_bytes_per_s=1e13))["recompute"] == 0


def test_only_the_inputs_of_recomputed_layers_are_offloaded() -> None:
    # 1024 tokens of 1024 elements of 2 bytes, out and back, beside the forward that is repeated
    plan = replace(
        PLAN, offload=Offload.ACTIVATIONS, recompute=Recompute.FULL, software=Software.PYTORCH, overlap=False
    )
    forward = _s(_layer(MODEL, plan).plain.forward)
    copied = 2 * 1024 * 1024 * 2 / (PCIE_FRACTION * PCIE_BYTES_PER_S)
    assert _parts(MODEL, plan)["recompute"] == pytest.approx(4 * 8 * (forward + copied))


def test_rates_follow_from_the_step() -> None:
    time = _time(MODEL, Plan(dp=8, global_batch=32))
    step_s = _s(time.step_s.expected)
    assert _s(time.tokens_per_s_per_gpu.expected) == pytest.approx(32 * 1024 / 8 / step_s)
    assert _s(time.mfu.expected) == pytest.approx(_s(time.model_flop) / 8 / 1e14 / step_s)
    assert _s(time.hfu.expected) == pytest.approx(_s(time.mfu.expected))
    again = _time(MODEL, Plan(dp=8, global_batch=32, recompute=Recompute.FULL))
    assert _s(again.hfu.expected) > _s(again.mfu.expected)


def test_multi_token_prediction_works_on_the_last_stage() -> None:
    plan = Plan(pp=2, global_batch=16)
    model = replace(MODEL, mtp_layers=1)
    added = _parts(model, plan)["compute"] - _parts(MODEL, plan)["compute"]
    assert added == pytest.approx(16 * _s(_layer(model, plan).mtp))
