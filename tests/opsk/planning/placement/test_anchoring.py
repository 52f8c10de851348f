"""Rank 0 stays where scripts that nobody changes look for their master."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.anchoring import anchor_rank_0
from opsk.planning.placement.initial_placements import Prepared, prepare
from opsk.planning.placement.placement import Placement, place
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

NODES = ("n0", "n1", "n2", "n3", "n4", "n5")
PLAN = Plan(tp=2, pp=2, dp=3, global_batch=6)


@pytest.fixture
def mixed() -> Rails:
    """Two units whose nodes take turns in Slurm's order, n0, n2, n4 and n1, n3, n5, with one cable up a leaf."""
    names = [*NODES[::2], *NODES[1::2]]
    fabric = rail_optimized_fabric(nodes=6, hcas=2, leaves=4, spines=1, cables_per_pair=1, names=names)
    return find_rails(fabric)


def placed(model: ModelShape, rails: Rails, slurm_nodes: Sequence[str]) -> Placement:
    return place(model, PLAN, rails, slurm_nodes, 2, slurm_nodes=slurm_nodes)


@pytest.mark.parametrize("first", NODES)
def test_an_order_begins_where_slurms_does(model: ModelShape, mixed: Rails, first: str) -> None:
    """Whichever node leads, its unit follows: two units of three stay whole, which Slurm's order tears apart."""
    slurm_nodes = (first, *(node for node in NODES if node != first))
    placement = placed(model, mixed, slurm_nodes)

    def prepared(nodes: Sequence[str]) -> Prepared:
        return prepare(model, PLAN, mixed, nodes, 2, slurm_nodes=nodes)

    found = anchor_rank_0(placement, first, mixed, prepared)
    assert found is not None
    assert found.ranks[0].node == first
    assert found.traffic.step_s < placement.default_traffic.step_s
    assert {int(node[1:]) % 2 for node in found.nodes[:3]} == {int(first[1:]) % 2}


def test_a_job_without_its_first_node_has_none(model: ModelShape, mixed: Rails) -> None:
    placement = placed(model, mixed, NODES)

    def prepared(nodes: Sequence[str]) -> Prepared:
        raise AssertionError("nothing is to be judged")

    assert anchor_rank_0(placement, "n9", mixed, prepared) is None
