"""The tree has every switch and every cable once, marks what is out of line, and folds what is too wide."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_isl_cables
from opsk.fabric.rails import find_rails
from opsk.fabric.views.tree import Tree, build_tree
from tests.fakes.miswired import clean, findings, miswired, some_loads


def drawn(fabric: Fabric, **options: int) -> Tree:
    return build_tree(fabric, replace(find_rails(fabric), faults=findings(fabric)), **options)


def names(tree: Tree, fabric: Fabric, box: int) -> list[str]:
    return [fabric.switches[guid].description for guid in tree.boxes[box].switches]


def test_tiers_stand_from_top_to_bottom_in_natural_order():
    tree = build_tree(clean(), find_rails(clean()))
    assert [(tier.name, tier.switches) for tier in tree.tiers] == [("spine", 4), ("leaf", 8)]
    leaves = [names(tree, clean(), box)[0] for box in tree.tiers[1].boxes]
    assert leaves == [f"leaf{index}" for index in range(8)]
    assert tree.usual == {(0, 1): 2}
    assert not any(line.odd for line in tree.lines)


def test_lines_that_lack_cables_say_how_many_there_should_be():
    fabric = miswired()
    tree = drawn(fabric)
    odd = {
        (*names(tree, fabric, line.low), *names(tree, fabric, line.high)): (line.cables, line.usual)
        for line in tree.lines
        if line.odd
    }
    assert odd == {("leaf6", "spine2"): (0, 2), ("leaf6", "spine3"): (1, 2)}
    slow = [line for line in tree.lines if line.faults]
    assert [(names(tree, fabric, line.low), names(tree, fabric, line.high)) for line in slow] == [
        (["leaf1"], ["spine0"])
    ]


def test_a_host_on_a_spine_does_not_pull_it_down():
    tree = drawn(miswired())
    assert [len(tier.boxes) for tier in tree.tiers] == [4, 8]
    assert [box.hosts for box in tree.boxes if box.off_tier] == [{"management": 1}]


def test_loads_are_those_of_each_direction():
    fabric = miswired()
    tree = build_tree(fabric, find_rails(fabric), some_loads(fabric))
    heaviest = max(tree.lines, key=lambda line: line.load or 0)
    assert (heaviest.up_load, heaviest.down_load, heaviest.load) == (1.37, None, 1.37)
    assert [box.host_load for box in tree.boxes if box.host_load is not None] == [0.3]


def test_a_wide_tier_is_folded_by_unit_and_then_by_pod():
    fabric = rail_optimized_fabric(nodes=64, hcas=4, leaves=32, spines=2, pods=4, cores_per_spine=2)
    by_unit = drawn_clean(fabric, max_leaves=8)
    assert [len(tier.boxes) for tier in by_unit.tiers] == [4, 8, 8]
    by_pod = drawn_clean(fabric, max_leaves=4, max_above=4)
    assert [len(tier.boxes) for tier in by_pod.tiers] == [4, 4, 4]
    assert {(line.cables, line.pairs) for line in by_pod.lines if by_pod.boxes[line.low].tier == 0} == {(16, 16)}


def drawn_clean(fabric: Fabric, **options: int) -> Tree:
    return build_tree(fabric, find_rails(fabric), **options)


@given(
    units=st.integers(1, 4),
    hcas=st.integers(1, 4),
    spines=st.integers(0, 3),
    pods=st.integers(1, 3),
    max_leaves=st.integers(1, 9),
    above=st.integers(1, 9),
)
def test_however_it_folds_no_switch_and_no_cable_is_lost(
    units: int, hcas: int, spines: int, pods: int, max_leaves: int, above: int
):
    fabric = rail_optimized_fabric(
        nodes=units * 3, hcas=hcas, leaves=units * hcas, spines=spines, pods=pods, cores_per_spine=2
    )
    tree = drawn_clean(fabric, max_leaves=max_leaves, max_above=above)
    shown = [guid for box in tree.boxes for guid in box.switches]
    assert sorted(shown) == sorted(fabric.switches)
    assert sorted(box for tier in tree.tiers for box in tier.boxes) == list(range(len(tree.boxes)))
    assert sum(line.cables for line in tree.lines) + sum(box.inside for box in tree.boxes) == len(
        find_isl_cables(fabric)
    )
