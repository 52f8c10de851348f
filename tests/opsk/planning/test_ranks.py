"""Rank numbers by coordinate, as Megatron-LM's RankGenerator gives them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import PlanInfeasibleError
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.workload.plan import Plan

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
