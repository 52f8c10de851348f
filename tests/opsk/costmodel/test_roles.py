"""What several models take on one set of GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.memory.interval import Interval
from opsk.costmodel.roles import Phase, RoleMemory, compute_chance, predict_roles
from opsk.hardware.catalog import cluster
from opsk.units import GIB
from opsk.workload.plan import Loss, Plan, Precision, Recompute, Sharding, Software, States
from opsk.workload.public_models.lookup import public_model
from opsk.workload.roles import HeldModel, Role, RoleSet, RolloutEngine, WeightPlace

H100 = cluster("superpod-h100")
QWEN = replace(public_model("Qwen2-7B"), seq=1024)  # type: ignore[type-var]
PLAN = Plan(
    tp=1,
    pp=1,
    dp=8,
    micro_batch=4,
    global_batch=64,
    sharding=Sharding.ZERO3,
    recompute=Recompute.FULL,
    precision=Precision.BF16,
    states=States.AUTOCAST,
    software=Software.PYTORCH,
)
ENGINE = RolloutEngine(
    name="vllm", place=WeightPlace.GPU, memory_share=0.6, tp=1, sleeps=True, is_eager=True, length=1024
)
ROLES = RoleSet(
    method="grpo", model=QWEN, plan=PLAN, engine=ENGINE, loss=Loss.KERNEL, is_padding_free=True, log_probs=4096
)
CAPACITY = H100.node.gpu.capacity_bytes


def phases(roles: RoleSet) -> dict[Phase, Interval]:
    """Return what each phase takes."""
    return {moment.phase: moment.total for moment in predict_roles(roles, H100, DEFAULT).moments}


def part(memory: RoleMemory, phase: Phase, role: Role) -> float:
    """Return what one role is expected to take in one phase [GiB]."""
    moment = next(moment for moment in memory.moments if moment.phase is phase)
    return moment.roles[role].expected / GIB if role in moment.roles else 0.0


def test_an_engine_takes_its_share_while_it_generates_and_little_while_it_sleeps() -> None:
    memory = predict_roles(ROLES, H100, DEFAULT)
    assert part(memory, Phase.GENERATE, Role.ROLLOUT) == pytest.approx(0.6 * CAPACITY / GIB)
    assert part(memory, Phase.UPDATE, Role.ROLLOUT) == 1.5


def test_an_engine_that_does_not_sleep_keeps_its_share_in_all_phases() -> None:
    awake = predict_roles(replace(ROLES, engine=replace(ENGINE, sleeps=False)), H100, DEFAULT)
    assert part(awake, Phase.UPDATE, Role.ROLLOUT) == part(awake, Phase.GENERATE, Role.ROLLOUT)


def test_at_rest_the_actor_has_weights_and_optimizer_unless_they_are_in_host_memory() -> None:
    # 7.6 billion parameters, 12 bytes each in fp32, over eight GPUs: 10.6 GiB, and 1 GiB of a process and NCCL or two
    assert 11.5 < part(predict_roles(ROLES, H100, DEFAULT), Phase.GENERATE, Role.ACTOR) < 13.5
    resting = replace(ROLES, rests=frozenset({"weights", "optimizer"}))
    assert part(predict_roles(resting, H100, DEFAULT), Phase.GENERATE, Role.ACTOR) < 2.5


@pytest.mark.parametrize(
    ("place", "low", "high"),
    [(WeightPlace.GPU, 1.7, 4.0), (WeightPlace.HOST, 0.0, 1.2), (WeightPlace.OTHER_GPUS, 0.0, 0.0)],
)
def test_a_reference_takes_its_sharded_weights_where_it_is_on_the_gpu(
    place: WeightPlace, low: float, high: float
) -> None:
    held = HeldModel(role=Role.REFERENCE, model=QWEN, place=place)  # 15.2 GB in 16 bits over eight GPUs: 1.8 GiB
    size = part(predict_roles(replace(ROLES, held=(held,)), H100, DEFAULT), Phase.UPDATE, Role.REFERENCE)
    assert low <= size <= high


MEGATRON = replace(
    PLAN, tp=2, pp=2, dp=2, sharding=Sharding.ZERO1, states=States.MIXED, software=Software.MEGATRON_CORE
)


def test_megatrons_gradients_stay_in_their_buffer_and_go_with_the_weights() -> None:
    # 7.6 billion parameters over tp 2 x pp 2: 2 + 4 bytes of weights and gradients, 12 / dp 2 of the optimizer
    parameters = 7.6e9 / 4
    at_rest, moved, all_moved = (
        part(predict_roles(replace(ROLES, plan=MEGATRON, rests=rests), H100, DEFAULT), Phase.GENERATE, Role.ACTOR)
        for rests in (frozenset[str](), frozenset({"weights"}), frozenset({"weights", "optimizer"}))
    )
    assert at_rest - moved == pytest.approx(parameters * (2 + 4) / GIB, rel=0.1)
    assert at_rest - all_moved == pytest.approx(parameters * (2 + 4 + 12 / 2) / GIB, rel=0.1)


def test_a_reference_of_experts_is_split_over_expert_parallel_ranks_too() -> None:
    # Qwen3-30B-A3B: 29.0 of 30.5 billion parameters are experts' (48 layers x 128 x 3 x 2048 x 768)
    model = replace(public_model("Qwen3-30B-A3B"), seq=1024)  # type: ignore[type-var]
    reference = HeldModel(role=Role.REFERENCE, model=model, place=WeightPlace.GPU, bits=16)
    plan = replace(MEGATRON, tp=4, pp=2, ep=4, dp=4)
    memory = predict_roles(replace(ROLES, model=model, plan=plan, held=(reference,)), H100, DEFAULT)
    expected = 2 * (1.5e9 / (4 * 2) + 29.0e9 / (4 * 4 * 2)) / GIB
    assert part(memory, Phase.GENERATE, Role.REFERENCE) == pytest.approx(expected, rel=0.05)


def test_a_reference_that_may_be_on_the_gpu_widens_the_range_upwards_only() -> None:
    none, perhaps = ROLES, replace(ROLES, held=(HeldModel(role=Role.REFERENCE, model=QWEN, place=WeightPlace.PERHAPS),))
    assert phases(perhaps)[Phase.UPDATE].low == phases(none)[Phase.UPDATE].low
    assert phases(perhaps)[Phase.UPDATE].high > phases(none)[Phase.UPDATE].high + 1.7 * GIB


def test_a_critic_is_trained_too_and_the_actor_waits_beside_it() -> None:
    held = HeldModel(role=Role.CRITIC, model=QWEN, place=WeightPlace.GPU, micro_batch=4)
    memory = predict_roles(replace(ROLES, held=(held,)), H100, DEFAULT)
    assert part(memory, Phase.CRITIC, Role.ACTOR) == part(memory, Phase.GENERATE, Role.ACTOR)
    assert part(memory, Phase.CRITIC, Role.CRITIC) > part(memory, Phase.UPDATE, Role.CRITIC)


def test_an_engine_whose_weights_exceed_its_share_cannot_start() -> None:
    small = replace(ROLES, engine=replace(ENGINE, memory_share=0.15))  # 11.9 of 79.1 GiB for 14.2 GiB of weights
    memory = predict_roles(small, H100, DEFAULT)
    assert (memory.binding.phase, memory.binding.chance < 0.1) == (Phase.START, True)
    halved = predict_roles(replace(ROLES, engine=replace(ENGINE, memory_share=0.15, tp=2)), H100, DEFAULT)
    assert halved.binding.chance > 0.1


def test_shares_that_exceed_the_gpu_together_run_out() -> None:
    greedy = replace(ROLES, engine=replace(ENGINE, memory_share=0.95))
    memory = predict_roles(greedy, H100, DEFAULT)
    assert (memory.binding.phase, memory.binding.chance < 0.1) == (Phase.GENERATE, True)


@pytest.mark.parametrize(("capacity", "fits"), [(60.0, False), (79.0, True)])
def test_nine_of_ten_lie_within_an_interval(capacity: float, fits: bool) -> None:
    chance = compute_chance(Interval(low=61.0, expected=70.0, high=78.0), capacity)
    assert (chance >= 0.95) if fits else (chance <= 0.05)
