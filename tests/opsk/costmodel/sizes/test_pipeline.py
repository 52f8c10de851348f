from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.sizes.pipeline import Stages, bubble_s, messages_per_micro_batch
from opsk.costmodel.sizes.shape import build_shapes
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import SCHEDULES
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Schedule
from tests.fakes import pipeline_simulator as simulator
from tests.fakes.pipeline_simulator import Order, Played, Times
from tests.fakes.training_runs import gpt, parts, shares_and_stages

MANY = 128


def _plan(pp: int, vpp: int = 1, micro_batches: int = MANY, schedule: Schedule = Schedule.ONE_F_ONE_B) -> Plan:
    return Plan(pp=pp, vpp=vpp, global_batch=micro_batches, schedule=schedule)


def _small(layers: int) -> ModelShape:
    return gpt(layers=layers, hidden=256, heads=4)


def _moe(layers: int, dense: int, *, between: bool = False) -> ModelShape:
    return replace(_small(layers), experts=8, top_k=2, expert_ffn=64, dense_layers=dense, dense_interleaved=between)


def _of(model: ModelShape, *plans: Plan) -> tuple[Shares, Stages]:
    return shares_and_stages(model, *plans)


# --- layers of a stage


@given(layers=st.integers(4, 130), pp=st.integers(3, 64))
def test_every_layer_is_on_one_stage(layers: int, pp: int):
    _, stages, _ = parts(_small(layers), _plan(pp))
    first, second, last = stages.layers[:, 0]
    middle = layers - first - last
    # the second stage is the fullest of the middle ones, none is more than one layer above another
    assert 0 <= middle <= second * (pp - 2)
    assert second - 1 <= last <= first <= second
    assert layers / pp <= second < layers / pp + 1


def test_embedding_and_head_may_count_as_layers_of_the_split():
    # BLOOM: 70 layers on 12 stages, 72 pieces of 6; the ends have 5 layers
    _, stages = _of(gpt(layers=70, hidden=14336, heads=112), _plan(12))
    assert stages.layers[:, 0].tolist() == [5, 6, 5]


@pytest.mark.parametrize(
    ("pp", "vpp", "expected"),
    [(4, 1, [16, 16, 13]), (8, 1, [8, 8, 5]), (4, 2, [16, 16, 13]), (16, 1, [4, 4, 1]), (8, 2, [8, 8, 5])],
)
def test_the_last_stage_makes_up_for_dense_layers_and_multi_token_prediction(pp: int, vpp: int, expected: list[int]):
    # Megatron Bridge's layouts of DeepSeek-V3 and Kimi K2 (61 layers, MTP and loss on the last stage)
    _, stages = _of(replace(_moe(61, 3), mtp_layers=1), _plan(pp, vpp))
    assert stages.layers[:, 0].tolist() == expected


def test_dense_layers_do_not_change_a_split_that_comes_out_even_with_embedding_and_head():
    # Megatron Bridge's layouts of GLM-4.5 Air: 46 layers, the first one dense
    _, stages = _of(_moe(46, 1), _plan(4), _plan(8), _plan(16))
    assert stages.layers.T.tolist() == [[11, 12, 11], [5, 6, 5], [2, 3, 2]]


def test_a_last_stage_by_hand_leaves_the_rest_even():
    _, stages = _of(_small(61), replace(_plan(16), last_stage_layers=1))
    assert stages.layers[:, 0].tolist() == [4, 4, 1]


@given(
    pp=st.integers(3, 32),
    first=st.integers(0, 9),
    last=st.integers(0, 9),
    between=st.integers(32, 128),
)
def test_stages_by_hand_have_what_was_asked_for_and_the_others_the_rest(pp: int, first: int, last: int, between: int):
    layers = first + last + between
    _, stages = _of(_small(layers), replace(_plan(pp), first_stage_layers=first, last_stage_layers=last))
    held_first, second, held_last = stages.layers[:, 0]
    by_hand = (first > 0) + (last > 0)
    assert held_first == first if first else second - 1 <= held_first <= second
    assert held_last == last if last else second - 1 <= held_last <= second
    assert between / (pp - by_hand) <= second < between / (pp - by_hand) + 1


@pytest.mark.parametrize(
    ("encoder", "plan", "of_decoder"),
    [
        # 2 + 6 layers on 8 stages: one each, a quarter of it the decoder's
        (6, Plan(pp=8, global_batch=MANY), [0.25, 0.25, 0.25]),
        # 2 + 10 on three stages, 5 and 3 of them by hand: 5, 4 and 3 of 12, a sixth of each the decoder's
        (
            10,
            Plan(pp=3, first_stage_layers=5, last_stage_layers=3, global_batch=MANY),
            [5 / 6, 4 / 6, 3 / 6],
        ),
    ],
)
def test_the_layers_of_an_encoder_are_split_with_those_of_the_decoder(
    encoder: int, plan: Plan, of_decoder: list[float]
):
    model = replace(_small(2), encoder_layers=encoder, encoder_seq=512)
    _, stages = _of(model, plan)
    assert stages.layers[:, 0].tolist() == pytest.approx(of_decoder)


def test_one_stage_has_all_layers_whatever_is_asked_for():
    _, stages = _of(_small(24), replace(_plan(1), first_stage_layers=3))
    assert stages.layers[:, 0].tolist() == [24, 24, 24]


def test_the_dense_layers_of_deepseek_v3_are_on_the_first_stage():
    # config.json: first_k_dense_replace 3 of 61 layers
    _, stages = _of(_moe(61, 3), replace(_plan(16), last_stage_layers=1), _plan(1))
    assert stages.plain_layers[:, 0].tolist() == [3, 0, 0]
    assert stages.moe_layers[:, 0].tolist() == [1, 4, 1]
    assert stages.moe_layers[:, 1].tolist() == [58, 58, 58]


def test_interleaved_stages_share_the_first_dense_layers():
    # 2 stages x 4 chunks of one layer: layers 0, 2, 4, 6 on the first stage; dense are 0, 1 and 2
    _, stages = _of(_moe(8, 3), _plan(2, 4))
    assert stages.plain_layers[:, 0].tolist() == [2, 1, 1]


@given(pp=st.integers(1, 6), vpp=st.integers(1, 4), per_chunk=st.integers(1, 4), dense=st.integers(0, 96))
def test_dense_layers_are_those_of_the_chunks_that_come_first(pp: int, vpp: int, per_chunk: int, dense: int):
    layers = pp * vpp * per_chunk
    dense = min(dense, layers - 1)
    _, stages = _of(_moe(layers, dense), _plan(pp, vpp))
    for row, stage in enumerate((0, min(1, pp - 1), pp - 1)):
        held = [layer for layer in range(layers) if layer // per_chunk % pp == stage]
        assert stages.plain_layers[row, 0] == pytest.approx(sum(layer < dense for layer in held))
        assert stages.moe_layers[row, 0] == pytest.approx(sum(layer >= dense for layer in held))


def test_dense_layers_between_the_others_are_spread_evenly():
    # Llama 4 Maverick: every other one of 48 layers has experts
    _, stages = _of(_moe(48, 24, between=True), _plan(4))
    assert stages.moe_layers[:, 0].tolist() == [6, 6, 6]


def test_a_dense_model_has_no_layer_with_experts():
    _, stages = _of(_small(24), _plan(4))
    assert not stages.moe_layers.any()
    np.testing.assert_array_equal(stages.plain_layers, stages.layers)


def test_models_of_their_own_get_the_stages_of_their_own():
    models, plans = [_small(24), _moe(61, 3)], [_plan(4), _plan(16)]
    together = shares_and_stages(build_shapes(models), *plans)[1]
    for column, (model, plan) in enumerate(zip(models, plans, strict=True)):
        alone = _of(model, plan)[1]
        for name in ("layers", "moe_layers", "plain_layers", "in_flight"):
            np.testing.assert_array_equal(getattr(together, name)[:, column], getattr(alone, name)[:, 0])


# --- schedules: the formulas against the schedules played through


def _played(schedule: Schedule, pp: int, count: int, vpp: int, times: Times) -> Played:
    """Play a schedule; ``times`` are those of a whole stage."""
    chunk = Times(
        forward=times.forward / vpp,
        backward_input=times.backward_input / vpp,
        backward_weight=times.backward_weight / vpp,
        together=times.forward + times.backward_input + times.backward_weight,
    )
    return simulator.play(_orders(schedule, pp, count, vpp), chunk, chunks=pp * vpp)


def _orders(schedule: Schedule, pp: int, count: int, vpp: int) -> list[Order]:
    if schedule is Schedule.ONE_F_ONE_B:
        return simulator.interleaved(pp, count, vpp)
    kinds = {
        Schedule.GPIPE: simulator.gpipe,
        Schedule.ZERO_BUBBLE: simulator.zero_bubble_h1,
        Schedule.ZERO_BUBBLE_2: simulator.zero_bubble_h2,
        Schedule.ZERO_BUBBLE_V: simulator.zero_bubble_v,
        Schedule.DUALPIPE: simulator.dual_pipe,
    }
    return kinds[schedule](pp, count)


def _bubble(plan: Plan, times: Times, *, optimizer_waits: bool = True) -> float:
    shares, _ = _of(_small(plan.pp * plan.vpp), plan)
    parts_s = [np.asarray(value) for value in (times.forward, times.backward_input, times.backward_weight)]
    return float(bubble_s(shares, *parts_s, optimizer_waits=optimizer_waits)[0])


def _kept(plan: Plan) -> list[float]:
    """Return the micro-batches in flight on the first, second and last stage."""
    _, stages = _of(_small(plan.pp * plan.vpp), plan)
    return [float(value) for value in stages.in_flight[:, 0]]


def _candidates(columns: tuple[int, ...]) -> list[int]:
    return [columns[0], columns[min(1, len(columns) - 1)], columns[-1]]


PP = st.integers(2, 9)
COUNT = st.integers(1, 40)
TIMES = st.builds(
    Times,
    forward=st.just(1.0),
    backward_input=st.floats(1.0, 3.0),
    backward_weight=st.floats(0.25, 1.0),
)
"""Gradients of inputs take the forward's time or more (attention, recomputation), those of weights that or less."""


@given(pp=PP, count=COUNT, times=TIMES, schedule=st.sampled_from([Schedule.ONE_F_ONE_B, Schedule.GPIPE]))
def test_bubble_and_memory_of_whole_backwards(pp: int, count: int, times: Times, schedule: Schedule):
    played, plan = _played(schedule, pp, count, 1, times), _plan(pp, 1, count, schedule)
    assert _bubble(plan, times) == pytest.approx(played.idle_s)
    assert _kept(plan) == _candidates(played.kept)


@given(pp=PP, rounds=st.integers(1, 4), vpp=st.integers(2, 4), times=TIMES, more=st.integers(0, 8))
def test_bubble_and_memory_of_interleaved_stages(pp: int, rounds: int, vpp: int, times: Times, more: int):
    # groups of p, or one larger group
    count = pp + more % pp if rounds == 1 else rounds * pp
    played, plan = _played(Schedule.ONE_F_ONE_B, pp, count, vpp, times), _plan(pp, vpp, count)
    assert _bubble(plan, times) == pytest.approx(played.idle_s)
    assert _kept(plan) == pytest.approx([kept / vpp for kept in _candidates(played.kept)])


@given(pp=PP, count=st.integers(1, 8), vpp=st.integers(2, 4), times=TIMES)
def test_interleaving_waits_longer_with_fewer_micro_batches_than_stages(pp: int, count: int, vpp: int, times: Times):
    count = min(count, pp)
    played = _played(Schedule.ONE_F_ONE_B, pp, count, vpp, times)
    assert _bubble(_plan(pp, vpp, count), times) == pytest.approx(played.idle_s)


@given(pp=PP, count=COUNT, times=TIMES, schedule=st.sampled_from([Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE_2]))
def test_bubble_and_memory_of_deferred_weight_gradients(pp: int, count: int, times: Times, schedule: Schedule):
    played, plan = _played(schedule, pp, count, 1, times), _plan(pp, 1, count, schedule)
    assert _bubble(plan, times, optimizer_waits=False) == pytest.approx(played.own_idle_s)
    assert _kept(plan) == _candidates(played.kept)


@given(pp=PP, more=st.integers(0, 20), times=TIMES)
def test_bubble_and_memory_of_the_v(pp: int, more: int, times: Times):
    plan = _plan(pp, 2, 2 * pp - 1 + more, Schedule.ZERO_BUBBLE_V)
    played = _played(Schedule.ZERO_BUBBLE_V, pp, plan.micro_batches, 2, times)
    assert _bubble(plan, times, optimizer_waits=False) == pytest.approx(played.own_idle_s)
    assert _bubble(plan, times) == pytest.approx(played.idle_s)
    assert _kept(plan) == [kept / 2 for kept in _candidates(played.kept)]


@given(pp=PP, more=st.integers(0, 20), times=TIMES, schedule=st.sampled_from(list(Schedule)[2:4]))
def test_an_optimizer_that_waits_for_all_stages_ends_when_the_last_one_does(
    pp: int, more: int, times: Times, schedule: Schedule
):
    plan = _plan(pp, 1, 2 * pp - 1 + more, schedule)
    assert _bubble(plan, times) == pytest.approx(_played(schedule, pp, plan.micro_batches, 1, times).idle_s)


@given(pp=st.integers(1, 6), more=st.integers(0, 12), times=TIMES)
def test_bubble_and_memory_of_both_ends(pp: int, more: int, times: Times):
    # the published formula is for F = B = W; a slower B is hidden, by one forward at most
    stages = 2 * pp
    plan = _plan(stages, 1, 2 * stages + 2 * more, Schedule.DUALPIPE)
    played = _played(Schedule.DUALPIPE, stages, plan.micro_batches, 1, times)
    hidden = min(times.forward, (pp - 1) * (times.backward_input - times.forward))
    assert _bubble(plan, times) - hidden == pytest.approx(played.idle_s)
    assert _kept(plan) == _candidates(played.kept)


@pytest.mark.parametrize(
    ("schedule", "vpp", "share"),
    [
        (Schedule.ONE_F_ONE_B, 1, 1.0),
        (Schedule.GPIPE, 1, 1.0),
        (Schedule.ZERO_BUBBLE, 1, 1 / 3),
        (Schedule.ZERO_BUBBLE_2, 1, 0.0),
        (Schedule.ZERO_BUBBLE_V, 2, 0.0),
    ],
)
def test_bubbles_are_the_published_shares_of_1f1b(schedule: Schedule, vpp: int, share: float):
    # table in the README of sail-sg/zero-bubble-pipeline-parallelism: (p-1)/m, (p-1)/3m, 0, 0 with F = B = W
    times = Times(forward=1.0, backward_input=1.0, backward_weight=1.0)
    assert _bubble(_plan(8, vpp, 64, schedule), times, optimizer_waits=False) == pytest.approx(share * 7 * 3)


def test_the_bubble_of_dualpipe_is_the_published_one():
    # DeepSeek-V3 report, table 2: (PP / 2 - 1)(F&B + B - 3 W), B whole; here 16 stages, F = 2, B = 3 + 2, F&B = 7
    times = Times(forward=2.0, backward_input=3.0, backward_weight=2.0)
    assert _bubble(_plan(16, 1, 64, Schedule.DUALPIPE), times) == pytest.approx((8 - 1) * (7 + 5 - 3 * 2))


def test_the_bubble_in_micro_batches_is_stages_less_one_over_chunks():
    # Narayanan et al. 2021, sections 2.2.1 and 2.2.2
    shares, _ = _of(_small(48), _plan(8), _plan(8, 2), _plan(1))
    third = np.array(1 / 3)
    np.testing.assert_allclose(bubble_s(shares, third, third, third), [7, 3.5, 0])


@pytest.mark.parametrize("schedule", list(Schedule))
def test_one_stage_never_waits_and_keeps_one_micro_batch(schedule: Schedule):
    plan = _plan(1, 1, 16, schedule)
    assert _bubble(plan, Times(forward=1.0, backward_input=1.5, backward_weight=1.0)) == 0
    assert _kept(plan) == [1, 1, 1]


@pytest.mark.parametrize(("pp", "vpp"), [(8, 3), (35, 3), (4, 2), (64, 1)])
def test_the_first_stage_keeps_p_micro_batches_times_the_interleaving_factor(pp: int, vpp: int):
    # Korthikanti et al. 2022, section 4.2.3
    assert _kept(_plan(pp, vpp, 8 * pp))[0] == pytest.approx(pp * (1 + (pp - 1) / (pp * vpp)) if vpp > 1 else pp)


def test_no_more_micro_batches_are_in_flight_than_there_are():
    _, stages = _of(_small(16), _plan(8, 1, 3), _plan(8, 2, 2))
    np.testing.assert_array_equal(stages.in_flight[0], [3, 2])


def test_later_stages_keep_what_waits_for_weight_gradients():
    # ZB-H1: 4 on every stage of 4, of which the last has passed 3 backwards already; ZB-H2: 7, of which 6
    _, stages = _of(_small(16), _plan(4, schedule=Schedule.ZERO_BUBBLE), _plan(4, schedule=Schedule.ZERO_BUBBLE_2))
    np.testing.assert_array_equal(stages.deferred, [[0, 0], [1, 2], [3, 6]])


def test_only_dualpipe_holds_weights_twice():
    _, stages = _of(_small(16), *(_plan(4, 2 if "v" in kind else 1, schedule=kind) for kind in Schedule))
    assert stages.weight_copies.tolist() == [2 if kind is Schedule.DUALPIPE else 1 for kind in Schedule]


def test_the_head_is_at_the_end_of_the_v():
    _, stages = _of(_small(16), _plan(4, 2, schedule=Schedule.ZERO_BUBBLE_V), _plan(4, 2))
    np.testing.assert_array_equal(stages.is_last, [[1, 0], [0, 0], [0, 1]])


def test_every_chunk_sends_an_activation_on_and_a_gradient_back():
    shares, _ = _of(_small(24), _plan(1), _plan(4), _plan(4, 3), _plan(4, 2, schedule=Schedule.ZERO_BUBBLE_V))
    # 2x the volume of 1F1B for ZB-V: same README as above
    assert messages_per_micro_batch(shares).tolist() == [0, 2, 6, 4]


def test_the_usual_schedule_has_the_index_that_is_taken_for_it():
    # columns without any other schedule skip the formulas of the others
    assert SCHEDULES[0] is Schedule.ONE_F_ONE_B
