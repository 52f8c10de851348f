"""What is wrong with topologies that others wrote: what slurmctld would end at, and what would mislead it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.slurm.topology.check import check_topology
from opsk.slurm.topology.conf import read_topology_conf
from opsk.slurm.topology.tree import render_tree


def kinds(text: str) -> list[str]:
    return [fault.kind for fault in check_topology(read_topology_conf(text))]


def test_what_opsk_writes_has_nothing_wrong() -> None:
    assert kinds(render_tree(find_rails(rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=2)))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SwitchName=a Nodes=n[0-1]\nSwitchName=top Switches=a,b\n", ["undefined_switch"]),
        ("SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[1-2]\nSwitchName=t Switches=a,b\n", ["node_listed_twice"]),
        ("SwitchName=a Nodes=n0\nSwitchName=b Nodes=n1\n", ["separate_trees"]),
        ("SwitchName=a Nodes=n0\nSwitchName=b Nodes=n1\nSwitchName=t[0-1] Switches=a,b\n", []),
        ("BlockName=a Nodes=n[0-3]\nBlockSizes=4,12\n", ["invalid_block_sizes"]),
        ("BlockName=a Nodes=n[0-3]\nBlockSizes=4,six\n", ["invalid_block_sizes"]),
        ("BlockName=a Nodes=n[0-3]\nBlockName=b Nodes=n[4-6]\nBlockSizes=4,8\n", ["short_blocks"]),
        ("SwitchName=a Nodes=c-n[1-32],n[33-34]\n", ["odd_node_name"]),
        ("SwitchName=a Nodes=c-n[1-16],login1\n", []),
    ],
)
def test_each_fault_is_found_and_removing_it_removes_the_finding(text: str, found: list[str]) -> None:
    assert kinds(text) == found


@pytest.mark.shared
def test_the_open_files_have_what_their_notes_say(shared: Path) -> None:
    """MANIFEST.csv: leaves without a root; overlapping ranges (n051), a name without its prefix (n019, n020)."""
    folder = shared / "data/real/slurm_topology"
    assert kinds((folder / "sdcc.conf").read_text()) == ["separate_trees"]
    faults = check_topology(read_topology_conf((folder / "superpod_circe.conf").read_text()))
    found = {fault.kind: fault.nodes for fault in faults}
    assert found == {"node_listed_twice": ("circe-n051",), "odd_node_name": ("n019", "n020"), "separate_trees": ()}
    assert kinds((folder / "topograph_block.conf").read_text()) == []
