"""Trees that opsk writes for Slurm: one leaf a node, the same for the same cabling, and nothing that can break out."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.slurm.topology.conf import read_topology_conf
from opsk.slurm.topology.tree import build_topology_tree, render_tree


def test_a_unit_is_one_leaf_switch_whatever_the_number_of_rails() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)
    conf = read_topology_conf(render_tree(find_rails(fabric)))
    assert conf.switches["unit0"].nodes == tuple(f"n{index}" for index in range(8))
    assert conf.switches["unit1"].nodes == tuple(f"n{index}" for index in range(8, 16))
    assert conf.roots == ("spine1-0",)
    assert conf.nodes_listed_twice == ()


def test_three_tiers_become_three_levels() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=2, leaves=8, spines=2, pods=2, cores_per_spine=2)
    conf = read_topology_conf(render_tree(find_rails(fabric)))
    assert conf.levels == 3
    assert len(conf.leaf_switches) == 4
    assert len(conf.roots) == 1
    assert len(conf.nodes) == 16


def test_one_unit_needs_no_switch_above() -> None:
    assert render_tree(find_rails(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=1))).count("SwitchName") == 1


def test_the_tree_does_not_change_when_it_is_written_again() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=2)
    assert render_tree(find_rails(fabric)) == render_tree(find_rails(fabric))


def test_only_nodes_that_slurm_knows_are_written_under_the_names_it_has_for_them() -> None:
    names = ["n0.example.net", "n1.example.net", "n2"]
    fabric = rail_optimized_fabric(nodes=3, hcas=2, leaves=2, spines=1, names=names)
    conf = read_topology_conf(render_tree(find_rails(fabric), node_names={"n0", "n2", "other"}))
    assert set(conf.nodes) == {"n0", "n2"}


def test_a_fabric_without_a_node_that_slurm_knows_is_refused() -> None:
    with pytest.raises(InputError, match="no compute node that Slurm knows"):
        render_tree(find_rails(rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0)), node_names={"x"})


def test_a_host_name_cannot_add_a_line() -> None:
    names = ["n0", "n1;\nSwitchName=evil"]
    fabric = rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0, names=names)
    assert "evil" not in render_tree(find_rails(fabric))


@pytest.mark.shared
def test_no_node_of_an_open_fabric_is_under_two_switches(shared: Path) -> None:
    for path in sorted((shared / "data/real/ib_fabric").glob("*.ibnetdiscover")):
        try:
            rails = find_rails(read_fabric(path.read_text(errors="replace"), source=path.name))
        except InputError:
            continue
        if rails.units:
            conf = read_topology_conf(render_tree(rails))
            assert set(conf.nodes) == set(rails.attachments), path.name
            assert (conf.nodes_listed_twice, conf.undefined, conf.problems) == ((), (), ()), path.name


def shuffled(fabric: Fabric, seed: int) -> Fabric:
    """Return the same fabric as another dump would list it."""
    order = random.Random(seed)

    def mixed(things: dict) -> dict:
        return dict(order.sample(list(things.items()), len(things)))

    return replace(
        fabric,
        switches=mixed(fabric.switches),
        hcas=mixed(fabric.hcas),
        cables=tuple(order.sample(fabric.cables, len(fabric.cables))),
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30))
def test_the_order_of_the_dump_does_not_show(seed: int) -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=16, spines=2, pods=2, cores_per_spine=2)
    assert render_tree(find_rails(shuffled(fabric, seed))) == render_tree(find_rails(fabric))


@pytest.mark.shared
def test_the_order_of_an_open_dump_does_not_show(shared: Path) -> None:
    path = shared / "data/real/ib_fabric/ndr_dgx_rail_40sw.ibnetdiscover"
    fabric = read_fabric(path.read_text(errors="replace"), source=path.name)
    for seed in range(3):
        assert render_tree(find_rails(shuffled(fabric, seed))) == render_tree(find_rails(fabric))


def test_nodes_that_slurm_knows_and_the_fabric_does_not_show_are_named() -> None:
    written = build_topology_tree(
        find_rails(rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0)), node_names=["n0", "n9"]
    )
    assert written.conf.nodes == ("n0",)
    assert "1 nodes (n9)" in written.notes[0]


def test_what_is_written_means_what_was_found() -> None:
    written = build_topology_tree(find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)))
    assert (
        read_topology_conf(render_tree(find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)))).groups
        == written.conf.groups
    )
