"""What changes for nodes between two topologies, whatever their switches are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk.slurm.topology.conf import TopologyConf, read_topology_conf
from opsk.slurm.topology.difference import compare_topologies, diff_texts

TREE = "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\nSwitchName=top Switches=s[0-1]\n"


def conf(text: str) -> TopologyConf:
    return read_topology_conf(text)


def test_other_names_and_another_order_mean_the_same() -> None:
    other = "SwitchName=b Nodes=n[4-7]\nSwitchName=root Switches=a,b\nSwitchName=a Nodes=n[0-1],n[2,3] LinkSpeed=9\n"
    assert compare_topologies(conf(TREE), conf(other)).is_same


def test_nodes_that_move_appear_and_vanish_are_named() -> None:
    after = "SwitchName=x Nodes=n[0-2]\nSwitchName=y Nodes=n[3-6,8]\nSwitchName=top Switches=x,y\n"
    found = compare_topologies(conf(TREE), conf(after))
    assert [(move.node, move.before, move.after) for move in found.moves] == [("n3", "s0", "y")]
    assert (found.appear, found.vanish, found.upper_levels) == (("n8",), ("n7",), False)


def test_a_tree_that_falls_apart_above_differs() -> None:
    found = compare_topologies(conf(TREE), conf("".join(line + "\n" for line in TREE.splitlines()[:2])))
    assert (found.upper_levels, found.moves, found.is_same) == (True, (), False)


def test_a_switch_above_one_leaf_joins_nothing() -> None:
    assert compare_topologies(conf(TREE), conf(TREE + "SwitchName=more Switches=s0\n")).is_same


def test_block_sizes_and_their_order_matter_only_where_larger_blocks_are_made() -> None:
    one = "BlockName=a Nodes=n[0-1]\nBlockName=b Nodes=n[2-3]\nBlockName=c Nodes=n[4-5]\nBlockSizes=2\n"
    other = "BlockName=a Nodes=n[0-1]\nBlockName=c Nodes=n[4-5]\nBlockName=b Nodes=n[2-3]\nBlockSizes=2\n"
    assert compare_topologies(conf(one), conf(other)).is_same
    larger = compare_topologies(conf(one.replace("=2\n", "=2,4\n")), conf(other.replace("=2\n", "=2,4\n")))
    assert (larger.upper_levels, larger.sizes) == (True, None)
    assert compare_topologies(conf(one), conf(one.replace("=2\n", "=2,4\n"))).sizes == ("2", "2,4")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.permutations(range(5)))
def test_renaming_changes_nothing_and_differing_from_itself_neither(groups: list[int], names: list[int]) -> None:
    def text(rename: list[int]) -> str:
        members = {group: [f"n{k}" for k, of in enumerate(groups) if of == group] for group in set(groups)}
        return "".join(f"SwitchName=s{rename[group]} Nodes={','.join(nodes)}\n" for group, nodes in members.items())

    assert compare_topologies(conf(text(list(range(5)))), conf(text(names))).is_same


def test_the_texts_are_compared_line_by_line() -> None:
    assert diff_texts(TREE, TREE, before_name="a", after_name="b") == ""
    changed = diff_texts(TREE, TREE.replace("n[4-7]", "n[4-8]"), before_name="a", after_name="b")
    assert "-SwitchName=s1 Nodes=n[4-7]" in changed
    assert "+SwitchName=s1 Nodes=n[4-8]" in changed
