"""Trees that opsk writes for Slurm, and the topology files of others that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.slurm.topology_conf import fold, read_topology_conf, write_tree
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.dialects import read_fabric
from opsk.topology.rails import find_rails


@pytest.mark.shared
def test_every_open_topology_conf_is_read_right(shared: Path) -> None:
    """Answers: EXPECTED.json, kind slurm_topology."""
    expected = json.loads((shared / "data/real/EXPECTED.json").read_text())["slurm_topology"]
    for name, answer in expected.items():
        conf = read_topology_conf((shared / "data/real/slurm_topology" / name).read_text())
        got = {
            "block_count": len(conf.blocks),
            "block_sizes": conf.block_sizes,
            "blocks": {block: len(nodes) for block, nodes in conf.blocks.items()},
            "leaf_switches": len(conf.leaf_switches),
            "levels": conf.levels,
            "nodes": len(conf.nodes),
            "nodes_listed_twice": list(conf.nodes_listed_twice),
            "roots": list(conf.roots),
            "switches": len(conf.switches),
            "switches_named_but_not_defined": list(conf.undefined),
        }
        assert (name, got) == (name, answer)
        assert conf.problems == ()


def test_a_unit_is_one_leaf_switch_whatever_the_number_of_rails() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)
    conf = read_topology_conf(write_tree(find_rails(fabric)))
    assert conf.switches["unit0"].nodes == tuple(f"n{index}" for index in range(8))
    assert conf.switches["unit1"].nodes == tuple(f"n{index}" for index in range(8, 16))
    assert conf.roots == ("spine1-0",)
    assert conf.nodes_listed_twice == ()


def test_three_tiers_become_three_levels() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=2, leaves=8, spines=2, pods=2, cores_per_spine=2)
    conf = read_topology_conf(write_tree(find_rails(fabric)))
    assert conf.levels == 3
    assert len(conf.leaf_switches) == 4
    assert len(conf.roots) == 1
    assert len(conf.nodes) == 16


def test_one_unit_needs_no_switch_above() -> None:
    assert write_tree(find_rails(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=1))).count("SwitchName") == 1


def test_the_tree_does_not_change_when_it_is_written_again() -> None:
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=2)
    assert write_tree(find_rails(fabric)) == write_tree(find_rails(fabric))


def test_only_nodes_that_slurm_knows_are_written_under_the_names_it_has_for_them() -> None:
    names = ["n0.example.net", "n1.example.net", "n2"]
    fabric = rail_optimized_fabric(nodes=3, hcas=2, leaves=2, spines=1, names=names)
    conf = read_topology_conf(write_tree(find_rails(fabric), node_names={"n0", "n2", "other"}))
    assert set(conf.nodes) == {"n0", "n2"}


def test_a_fabric_without_a_node_that_slurm_knows_is_refused() -> None:
    with pytest.raises(InputError, match="no compute node that Slurm knows"):
        write_tree(find_rails(rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0)), node_names={"x"})


def test_a_host_name_cannot_add_a_line() -> None:
    names = ["n0", "n1;\nSwitchName=evil"]
    fabric = rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0, names=names)
    assert "evil" not in write_tree(find_rails(fabric))


def test_loops_continued_lines_and_rubbish_are_read_without_harm() -> None:
    text = "SwitchName=a Switches=b\nSwitchName=b \\\n Switches=a\nrubbish\nSwitchName=c Nodes=n[3-\n"
    conf = read_topology_conf(text)
    assert conf.levels == 2
    assert [problem.split(":")[1] for problem in conf.problems] == ["4", "5"]


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(InputError, match="no switch and no block"):
        read_topology_conf("# nothing\n")


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True), min_size=1))
def test_folding_and_expanding_gives_the_names_back(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(set(names))


@pytest.mark.shared
def test_no_node_of_an_open_fabric_is_under_two_switches(shared: Path) -> None:
    for path in sorted((shared / "data/real/ib_fabric").glob("*.ibnetdiscover")):
        try:
            rails = find_rails(read_fabric(path.read_text(errors="replace"), source=path.name))
        except InputError:
            continue
        if rails.units:
            conf = read_topology_conf(write_tree(rails))
            assert set(conf.nodes) == set(rails.attachments), path.name
            assert (conf.nodes_listed_twice, conf.undefined, conf.problems) == ((), (), ()), path.name
