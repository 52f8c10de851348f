"""Rank numbers by coordinate, as Megatron-LM's RankGenerator gives them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec
from opsk.planning.ranks import GroupPlace, RankOrder, place_groups, rank_grid
from opsk.workload.plan import Plan
from tests.opsk.planning.search.small_requests import CLUSTER

SIZES = st.sampled_from([1, 2, 3, 4])


def test_tp_runs_fastest_and_pp_slowest() -> None:
    """tp 2, cp 2, dp 2, pp 2: rank 1 has tp 1, rank 2 cp 1, rank 4 dp 1, rank 8 pp 1."""
    at = rank_grid(Plan(tp=2, cp=2, dp=2, pp=2, global_batch=2)).coordinates()
    assert [at["tp"][1], at["cp"][2], at["dp"][4], at["pp"][8]] == [1, 1, 1, 1]
    assert at["tp"].sum() == 8


def test_the_other_order_runs_through_stages_before_replicas() -> None:
    """tp 2, pp 2, dp 2 with tp-cp-ep-pp-dp: rank 2 is the second stage, rank 4 the second replica."""
    at = rank_grid(Plan(tp=2, dp=2, pp=2, global_batch=2), RankOrder.TP_CP_EP_PP_DP).coordinates()
    assert (at["pp"][2], at["dp"][2], at["dp"][4]) == (1, 0, 1)


def test_expert_groups_are_runs_of_the_data_ranks() -> None:
    """tp 2, dp 4, ep 2: ranks 0, 2 (tp 0 of dp 0 and 1) share experts' layer, ranks 4 and 6 the next group."""
    grid = rank_grid(Plan(tp=2, dp=4, ep=2, global_batch=4))
    assert grid.experts[0].tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert grid.expert_data[0].tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]


def test_experts_that_do_not_fill_the_data_ranks_are_refused() -> None:
    with pytest.raises(PlanInfeasibleError, match="ep 3 does not divide dp 4 x cp 1"):
        rank_grid(Plan(dp=4, ep=3, global_batch=4))


@given(tp=SIZES, cp=SIZES, dp=SIZES, pp=SIZES, order=st.sampled_from(RankOrder))
def test_every_rank_has_one_place_and_is_in_one_group_of_each_axis(
    tp: int, cp: int, dp: int, pp: int, order: RankOrder
) -> None:
    plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, global_batch=dp)
    grid = rank_grid(plan, order)
    at = grid.coordinates()
    everyone = list(range(plan.gpus))
    assert len(set(zip(at["tp"], at["cp"], at["dp"], at["pp"], strict=True))) == plan.gpus
    for groups in (grid.ranks, grid.data, grid.experts, grid.expert_data):
        assert sorted(np.ravel(groups).tolist()) == everyone


def on(domain: int) -> ClusterSpec:
    return replace(CLUSTER, node=replace(CLUSTER.node, hb_domain_gpus=domain))


def place(axis: str, plan: Plan, domain: int = 8) -> GroupPlace:
    return next(one for one in place_groups(plan, on(domain)) if one.axis == axis)


def members(plan: Plan, axis: str) -> list[list[int]]:
    """Return the ranks of every group of an axis, as Megatron-LM's RankGenerator numbers them: tp-cp-dp-pp."""
    groups: dict[tuple[int, ...], list[int]] = {}
    order = ("pp", "dp", "cp", "tp")  # the last counts fastest
    for rank, place_ in enumerate(product(*(range(getattr(plan, name)) for name in order))):
        others = tuple(at for name, at in zip(order, place_, strict=True) if name != axis)
        groups.setdefault(others, []).append(rank)
    return list(groups.values())


@pytest.mark.parametrize("domain", [1, 4, 8, 72])
@pytest.mark.parametrize(
    "plan",
    [
        Plan(tp=8, pp=2, dp=4, global_batch=8),
        Plan(tp=2, cp=2, pp=2, dp=8, global_batch=8),
        Plan(tp=4, dp=16, global_batch=16),
        Plan(dp=64, global_batch=64),
        Plan(tp=16, pp=4, global_batch=4),
        Plan(cp=32, dp=2, global_batch=2),
    ],
)
def test_groups_lie_where_the_ranks_of_megatron_do(plan: Plan, domain: int):
    """The first group, written out rank by rank, spans so many HB domains, with so many ranks in the first."""
    if domain == 72:
        plan = replace(plan, dp=plan.dp * 9, global_batch=plan.global_batch * 9)  # so that domains are full
    for one in place_groups(plan, on(domain)):
        groups = members(plan, one.axis)
        assert {len(group) for group in groups} == {one.ranks}
        assert {group[1] - group[0] for group in groups} == {one.stride}
        first = [rank // domain for rank in groups[0]]
        assert one.domains == len(set(first))
        assert one.ranks_per_domain == first.count(0)


def test_an_axis_of_one_rank_has_no_groups():
    assert place_groups(Plan(global_batch=1), CLUSTER) == ()
    assert {one.axis for one in place_groups(Plan(tp=2, dp=4, global_batch=4), CLUSTER)} == {"tp", "dp"}


def test_replicas_of_whole_nodes_are_on_one_rail():
    """tp 8 fills a node: rank i of each node has NIC i, all on rail i."""
    found = place("dp", Plan(tp=8, dp=4, global_batch=4))
    assert (found.stride, found.ranks_per_domain, found.domains, found.is_rail_aligned) == (8, 1, 4, True)


def test_a_stride_that_does_not_fit_the_node_leaves_the_rail():
    """tp 3 on nodes of 8: replicas are at 0, 3, 6, 9 = node 1 GPU 1, another rail."""
    assert not place("dp", Plan(tp=3, dp=8, global_batch=8)).is_rail_aligned


def test_experts_spread_over_ranks_side_by_side():
    assert place("ep", Plan(dp=8, ep=8, global_batch=8)).stride == 1
    assert place("ep", Plan(tp=2, dp=8, ep=4, etp=2, global_batch=8)).stride == 2
    assert place("ep", Plan(tp=2, dp=8, ep=4, etp=1, global_batch=8)).stride == 1
