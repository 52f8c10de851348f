from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.groups import GroupPlace, groups_of
from opsk.workload.plan import Plan
from tests.opsk.planning.search.small_requests import CLUSTER


def on(domain: int) -> ClusterSpec:
    return replace(CLUSTER, node=replace(CLUSTER.node, hb_domain_gpus=domain))


def place(axis: str, plan: Plan, domain: int = 8) -> GroupPlace:
    return next(one for one in groups_of(plan, on(domain)) if one.axis == axis)


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
    for one in groups_of(plan, on(domain)):
        groups = members(plan, one.axis)
        assert {len(group) for group in groups} == {one.ranks}
        assert {group[1] - group[0] for group in groups} == {one.stride}
        first = [rank // domain for rank in groups[0]]
        assert one.domains == len(set(first))
        assert one.ranks_per_domain == first.count(0)


def test_an_axis_of_one_rank_has_no_groups():
    assert groups_of(Plan(global_batch=1), CLUSTER) == ()
    assert {one.axis for one in groups_of(Plan(tp=2, dp=4, global_batch=4), CLUSTER)} == {"tp", "dp"}


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
