"""The topology files of others that opsk reads: trees, blocks and rings, sound and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.slurm.topology.conf import read_topology_conf, summarise_topology


@pytest.mark.shared
def test_every_open_topology_conf_is_read_right(shared: Path) -> None:
    """Answers: EXPECTED.json, kind slurm_topology."""
    expected = json.loads((shared / "data/real/EXPECTED.json").read_text())["slurm_topology"]
    for name, answer in expected.items():
        conf = read_topology_conf((shared / "data/real/slurm_topology" / name).read_text())
        assert (name, summarise_topology(conf)) == (name, answer)
        assert conf.problems == ()


def test_loops_continued_lines_and_rubbish_are_read_without_harm() -> None:
    text = "SwitchName=a Switches=b\nSwitchName=b \\\n Switches=a\nrubbish\nSwitchName=c Nodes=n[3-\n"
    conf = read_topology_conf(text)
    assert conf.levels == 2
    assert [problem.split(":")[1] for problem in conf.problems] == ["4", "5"]
    assert conf.nodes_below("a") == frozenset()


def test_a_chain_of_switches_as_long_as_the_file_is_measured() -> None:
    text = (
        "".join(f"SwitchName=s{index} Switches=s{index + 1}\n" for index in range(5000)) + "SwitchName=s5000 Nodes=n0\n"
    )
    assert read_topology_conf(text).levels == 5001


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(InputError, match="no switch and no block"):
        read_topology_conf("# nothing\n")


def test_words_are_read_in_any_case_and_a_name_taken_twice_is_told() -> None:
    conf = read_topology_conf("blockname=a NODES=n[0-1]\nBLOCKNAME=a nodes=n2\nblocksizes=1,2\n")
    assert (conf.block_sizes, conf.blocks) == ("1,2", {"a": ("n2",)})
    assert "a is defined already" in conf.problems[0]


def test_rings_are_read() -> None:
    """The example of topology.conf(5) of 26.05."""
    conf = read_topology_conf("RingName=ring0 Nodes=node[01-08]\nRingName=ring1 Nodes=node[09-16]\n")
    assert {name: len(nodes) for name, nodes in conf.rings.items()} == {"ring0": 8, "ring1": 8}
    assert conf.problems == ()


def test_what_scontrol_shows_is_read_as_what_was_written() -> None:
    """The lines of 22.05 (tree) and 25.11 (block, ../shared/facts/slurm.md 7), where upper switches list all nodes."""
    tree = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1] \nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3] \n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=s[0-1] \n"
    )
    conf = read_topology_conf(tree)
    assert (conf.levels, conf.nodes_listed_twice, conf.problems) == (2, (), ())
    block = (
        "BlockName=rack0 BlockIndex=0 Nodes=n[0-17] BlockSize=18\nBlockName=rack1 BlockIndex=1 Nodes=n[18-35] "
        "BlockSize=18\nAggregatedBlock=rack[0-1] BlockIndex=2 Nodes=n[0-35] BlockSize=36\n"
    )
    conf = read_topology_conf(block)
    assert ({name: len(nodes) for name, nodes in conf.blocks.items()}, conf.problems) == (
        {"rack0": 18, "rack1": 18},
        (),
    )


def test_a_node_in_a_switch_and_in_a_block_is_not_listed_twice() -> None:
    conf = read_topology_conf("SwitchName=s Nodes=n0\nBlockName=b Nodes=n0\n")
    assert conf.nodes_listed_twice == ()
