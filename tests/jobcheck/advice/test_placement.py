"""Which nodes suit a job best before Slurm has chosen any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import PlanInfeasibleError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk_jobcheck.advice.placement import PlacementRequest, advise_placement, group_nodes_by_unit, select_compact_nodes

MODEL = ModelShape(layers=8, hidden=1024, ffn=4096, heads=16, kv_heads=16, head_dim=64, vocab=1024, seq=128)


@pytest.fixture(scope="module")
def rails() -> Rails:
    """Sixteen nodes of 8 HCAs, two scalable units of eight."""
    return find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4))


def placement_request(plan: Plan) -> PlacementRequest:
    return PlacementRequest(model=MODEL, plan=plan, gpus_per_node=8)


def test_units_are_those_of_the_cabling(rails: Rails) -> None:
    units = group_nodes_by_unit(rails)
    assert sorted(len(nodes) for nodes in units.values()) == [8, 8]
    assert {frozenset(nodes) for nodes in units.values()} == {frozenset(nodes) for nodes in rails.units}


def test_a_job_that_fits_into_one_unit_asks_for_one_switch(rails: Rails) -> None:
    placed = advise_placement(placement_request(Plan(tp=8, dp=8, global_batch=8)), rails)
    assert placed.placement is not None
    assert len(placed.placement.nodes) == 8
    assert (placed.leaf_groups, placed.rails, placed.slurm_flags) == (1, 8, ("--switches=1",))


def test_a_larger_job_takes_more_units(rails: Rails) -> None:
    placed = advise_placement(placement_request(Plan(tp=8, dp=12, global_batch=12)), rails)
    assert (placed.leaf_groups, placed.slurm_flags) == (2, ())


def test_a_job_on_one_node_asks_for_nothing(rails: Rails) -> None:
    placed = advise_placement(placement_request(Plan(tp=4, global_batch=1)), rails)
    assert placed.placement is not None
    assert (len(placed.placement.nodes), placed.slurm_flags) == (1, ())


def test_too_few_nodes_is_said_with_numbers(rails: Rails) -> None:
    with pytest.raises(PlanInfeasibleError, match="needs 17 nodes, the fabric has 16"):
        advise_placement(placement_request(Plan(tp=8, dp=17, global_batch=17)), rails)


def test_nodes_must_be_filled_evenly(rails: Rails) -> None:
    with pytest.raises(PlanInfeasibleError, match="12 GPUs do not fill nodes of 8"):
        advise_placement(placement_request(Plan(tp=4, dp=3, global_batch=3)), rails)


def test_the_smallest_unit_that_holds_the_job_is_taken() -> None:
    units = {0: ("a", "b", "c", "d"), 1: ("e", "f"), 2: ("g", "h", "i")}
    assert select_compact_nodes(units, 2) == ("e", "f")
    assert select_compact_nodes(units, 3) == ("g", "h", "i")
    assert select_compact_nodes(units, 5) == ("a", "b", "c", "d", "g")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_chosen_nodes_are_different_and_in_as_few_units_as_possible(sizes: list[int], data: st.DataObject) -> None:
    units = {index: tuple(f"n{index}-{node}" for node in range(size)) for index, size in enumerate(sizes)}
    count = data.draw(st.integers(1, sum(sizes)))
    chosen = select_compact_nodes(units, count)
    assert len(set(chosen)) == len(chosen) == count
    used = sum(1 for nodes in units.values() if set(nodes) & set(chosen))
    largest = sorted(sizes, reverse=True)
    assert used == next(number for number in range(1, len(sizes) + 1) if sum(largest[:number]) >= count)
