from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from opsk.costmodel.rules import find_violations
from opsk.errors import InputError
from opsk.frameworks.limits import Limits, SequenceParallel
from opsk.hardware import catalog
from opsk.planning.search.layouts import divisors, stage_splits
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.space import Space, build_space, has_plans
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Schedule, Sharding
from tests.fakes.training_runs import gpt
from tests.opsk.planning.search.plain_enumeration import legal_plans
from tests.opsk.planning.search.random_requests import tiny_requests

H100 = catalog.cluster("superpod-h100")
FOUR_LAYERS = gpt(layers=4, hidden=64, heads=2, seq=8)


def _request(model: ModelShape = FOUR_LAYERS, **asked: Any) -> PlanRequest:
    standard = {"template": Plan(global_batch=1), "cluster": H100, "gpus": 2, "global_batch": 2}
    return PlanRequest(model=model, **{**standard, **asked})


def _plans(space: Space) -> list[Plan]:
    return [table.row(row) for table in space.list_tables(rows=100) for row in range(len(table))]


@settings(max_examples=15, deadline=None)
@given(tiny_requests())
def test_the_space_is_what_nested_loops_over_everything_find(request: PlanRequest):
    space, plain = build_space(request), set(legal_plans(request))
    plans = _plans(space)
    assert set(plans) == plain
    assert len(plans) == len(plain) == space.size
    assert has_plans(request) == bool(plain)


def test_the_plans_of_two_gpus_counted_by_hand():
    # tp 2: norms split or not, micro-batch 1 or 2; recomputing nothing, attention, or all 4 layers or 1 to 3: 2 x 2 x 6
    # cp 2: none or ZeRO 1 to 3 over both, micro-batch 1 or 2, 6 recomputations: 4 x 2 x 6
    # dp 2: the same with one sequence each: 4 x 6
    # pp 2: of a stage's 2 layers, all or one are recomputed, which makes 4. Two micro-batches: 1F1B and GPipe with one
    # or two chunks, ZB-H1, ZB-H2, and ZB-V with two (DualPipe wants four micro-batches); a single one: 1F1B not with
    # two chunks, for which it is no multiple of pp. (7 + 6) x 4
    counts = {"tp": 24, "cp": 48, "dp": 24, "pp": 52}
    for axis, count in counts.items():
        others = {other: (1,) for other in counts if other != axis}
        assert build_space(_request(fixed=others)).size == count, axis
    assert build_space(_request()).size == sum(counts.values()) == 148


def test_experts_are_spread_over_all_ranks_of_a_stage_and_may_stay_whole():
    # tp 2, dp 1: ep 1 or 2 of 4 experts. With ep 1 the framework's own choice splits each over tp, and etp 1 does not;
    # with ep 2, which does not divide dp, the framework's own choice is etp 1
    model = replace(FOUR_LAYERS, experts=4, top_k=1, expert_ffn=64)
    plans = _plans(build_space(_request(model, fixed={"tp": (2,)})))
    assert {(plan.ep, plan.etp) for plan in plans} == {(1, 0), (1, 1), (2, 0)}


@pytest.mark.parametrize(
    ("layers", "pp", "splits"),
    [
        (96, 8, [(0, 0)]),
        (126, 16, [(0, 6), (7, 7)]),  # Llama 3.1 405B: 15 x 8 and 6; 7, 14 x 8, 7
        (61, 2, [(0, 29), (0, 30)]),  # 32, of 8 chunks, and 29; 31 and 30
        (61, 16, [(0, 1), (3, 2)]),  # DeepSeek-V3: 15 x 4 and 1; 3, 14 x 4, 2
        (15, 4, [(0, 3)]),  # 4, 4, 4, 3: with 4 layers on the first stage by hand it is the same
        (5, 2, [(0, 2)]),
        (5, 4, []),  # 2, 2, 2 would leave nothing for the last
        (3, 4, []),
    ],
)
def test_layers_that_do_not_divide_leave_the_ends_lighter(layers: int, pp: int, splits: list[tuple[int, int]]):
    assert stage_splits(_request(replace(FOUR_LAYERS, layers=layers)), pp) == splits


@pytest.mark.parametrize(
    ("fixed", "splits"),
    [
        ({"first_stage_layers": (0,)}, [(0, 6)]),
        ({"first_stage_layers": (7,)}, [(7, 7)]),
        ({"last_stage_layers": (6,)}, [(0, 6)]),
        ({"first_stage_layers": (0,), "last_stage_layers": (0,)}, []),
        ({"first_stage_layers": (0, 7), "last_stage_layers": (7, 6)}, [(0, 6), (7, 7)]),
        ({"first_stage_layers": (6,), "last_stage_layers": (8,)}, [(6, 8)]),
    ],
)
def test_stages_are_split_as_fixed(fixed: dict[str, tuple[int, ...]], splits: list[tuple[int, int]]):
    assert stage_splits(_request(replace(FOUR_LAYERS, layers=126), fixed=fixed), 16) == splits


def test_what_is_fixed_is_kept_to_what_the_framework_has():
    model = replace(FOUR_LAYERS, layers=6)
    limits = Limits(
        uneven_stages=False,
        recompute_layers=False,
        partial_sharding=False,
        sequence_parallel=SequenceParallel.NEVER,
    )
    for fixed in (
        {"last_stage_layers": (2,)},
        {"recompute_layers": (1,)},
        {"shard_gpus": (2,), "dp": (8,)},
        {"sequence_parallel": (True,)},
    ):
        assert has_plans(_request(model, gpus=8, global_batch=8, fixed=fixed))
        assert not has_plans(_request(model, gpus=8, global_batch=8, fixed=fixed, limits=limits))


def test_a_last_stage_by_hand_is_cut_into_chunks_like_the_others():
    # 14 layers: 6, 6 and 2, in two chunks 3, 3 and 1 each; in three 2, 2 and 1, the last of which has the loss alone
    request = _request(replace(FOUR_LAYERS, layers=14), gpus=3, global_batch=3, fixed={"last_stage_layers": (2,)})
    assert {plan.vpp for plan in _plans(build_space(request))} == {1, 2, 3}


def test_fp8_wants_eight_tokens_of_a_product():
    # sequences of 4 tokens: two at a time, or four where two GPUs share them
    model = replace(FOUR_LAYERS, seq=4)
    request = _request(model, template=Plan(precision=Precision.FP8, global_batch=1), gpus=2, global_batch=8)
    found = {(plan.cp, plan.sequence_parallel, plan.micro_batch) for plan in _plans(build_space(request))}
    assert {size for cp, split, size in found if cp == 1 and not split} == {2, 4, 8}
    assert {size for cp, split, size in found if cp == 1 and split} == {4, 8}
    assert {size for cp, _, size in found if cp == 2} == {4, 8}


def test_host_memory_holds_weights_only_where_they_are_sharded():
    template = Plan(offload=Offload.OPTIMIZER_AND_WEIGHTS, global_batch=1)
    plans = _plans(build_space(_request(template=template)))
    assert plans
    assert {plan.sharding for plan in plans} == {Sharding.ZERO3}


def test_a_large_space_is_counted_without_being_written_out():
    model = gpt(layers=96, hidden=12288, heads=96)
    request = _request(model, gpus=1024, global_batch=1536)
    space = build_space(request)
    assert space.size > 10**6
    assert len(space) < space.size / 100
    first = next(space.list_tables(rows=1000))
    assert all(find_violations(model, first.row(row)) == () for row in range(0, len(first), 97))


def test_every_plan_of_a_large_space_uses_all_gpus_and_the_whole_batch():
    space = build_space(_request(gpus=16, global_batch=48))
    for plans in space.list_tables(rows=5000):
        assert (plans.tp * plans.pp * plans.cp * plans.dp == 16).all()
        assert (48 % (plans.dp * plans.micro_batch) == 0).all()


def test_plans_are_written_out_in_pieces_of_about_the_size_asked_for():
    space = build_space(_request(gpus=8, global_batch=8))
    tables = list(space.list_tables(rows=500))
    assert sum(map(len, tables)) == space.size
    assert max(map(len, tables)) <= max(500, int(space.sizes.max()))


def test_schedules_without_a_pipeline_are_one_unless_asked_for():
    plans = _plans(build_space(_request(gpus=1)))
    assert {plan.schedule for plan in plans} == {Schedule.ONE_F_ONE_B}
    asked = _plans(build_space(_request(gpus=1, fixed={"schedule": (Schedule.GPIPE,)})))
    assert {plan.schedule for plan in asked} == {Schedule.GPIPE}


def test_recomputing_all_layers_is_listed_once():
    plans = _plans(build_space(_request(gpus=1, global_batch=1)))
    some = [plan.recompute_layers for plan in plans if plan.recompute is Recompute.FULL]
    assert some == [0, 1, 2, 3]


def test_impossible_requests_have_no_plan():
    assert build_space(_request(gpus=7)).size == 0  # neither heads nor layers nor batch have a seven
    assert not has_plans(_request(template=Plan(lora_rank=1000, global_batch=1)))


def test_what_cannot_be_asked_is_named_all_at_once():
    with pytest.raises(InputError, match=r"gpus is 0.*most is 0.*colour is not an axis"):
        _request(gpus=0, most=0, fixed={"colour": (1,)})


def test_divisors_ascend():
    for number in range(1, 200):
        assert divisors(number) == tuple(size for size in range(1, number + 1) if number % size == 0)


def test_nodes_of_a_part_have_their_plans():
    space = build_space(_request(gpus=8, global_batch=8))
    chosen = np.arange(0, len(space), 3)
    assert space.only(chosen).size == int(space.sizes[chosen].sum())
