"""``opsk fabric --write`` from the outside: forms by release, comparison with a live file, and what programs get."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.slurm.topology.yaml_file import read_topology
from tests.fakes.node_dumps import FakeNode, smi_query
from tests.fakes.warm_opsk import warm

NO_SLURM = "/nonexistent"


def opsk(*arguments: str | Path, path: str = NO_SLURM) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "LC_ALL": "C.UTF-8"}
    return warm().run(["fabric", *map(str, arguments)], environment=environment, stdin="", timeout_s=60.0)


def answer(*arguments: str | Path, status: int = 0, path: str = NO_SLURM) -> dict[str, Any]:
    done = opsk("--json", *arguments, path=path)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two units of four nodes, two rails."""
    path = tmp_path / "fabric.topo"
    path.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=8, hcas=2, leaves=4, spines=2)))
    return path


@pytest.fixture
def slurm(tmp_path: Path) -> str:
    """A PATH with stand-ins for Slurm's commands: release 24.11, its files in this folder."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    said = {"squeue": "slurm 24.11.5", "scontrol": f"SLURM_CONF              = {tmp_path}/slurm.conf"}
    for name, text in said.items():
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize("form", ["tree", "block", "yaml"])
def test_every_form_is_read_back_with_every_node_once(dump: Path, form: str) -> None:
    file = read_topology(opsk(dump, "--write", form).stdout, source=form)
    assert file.problems == ()
    for each in file.topologies:
        assert sorted(each.conf.nodes) == [f"n{index}" for index in range(8)]
        assert each.conf.nodes_listed_twice == ()
        assert {frozenset(nodes) for nodes in each.conf.groups.values()} == {
            frozenset(f"n{index}" for index in range(4)), frozenset(f"n{index}" for index in range(4, 8)),
        }  # fmt: skip


def test_the_installed_release_decides_what_can_be_written(dump: Path, slurm: str) -> None:
    block = answer(dump, "--write", "block", path=slurm)
    assert (block["release"], block["release_is"]) == ("24.11", "installed")
    refused = opsk(dump, "--write", "yaml", path=slurm)
    assert refused.returncode == 2
    assert "came with 25.05" in refused.stderr
    assert opsk(dump, "--write", "yaml", "--slurm-release", "25.11", path=slurm).returncode == 0


def test_without_slurm_the_newest_release_is_assumed_and_said(dump: Path) -> None:
    assert answer(dump, "--write", "block")["release_is"] == "assumed"
    assert "no Slurm answers here" in opsk(dump, "--write", "block").stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--write", "block", "--slurm-release", "22.05"), "came with 24.05"),
        (("--write", "block", "--slurm-release", "new"), "no release of Slurm"),
        (("--write", "tree", "--partition", "a=tree"), "--write yaml"),
        (("--write", "yaml", "--partition", "a=ring"), "NAME=tree"),
        (("--diff", "x"), "need --write"),
        (("--write", "tree", "--diff", "absent.conf"), "absent.conf"),
        (("--write", "block", "--spares-per-block", "4"), "leave none"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_with_one_line(dump: Path, arguments: tuple[str, ...], why: str) -> None:
    done = opsk(dump, *arguments)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_programs_get_groups_sizes_and_the_recommended_segment(dump: Path) -> None:
    document = answer(dump, "--write", "block", "--spares-per-block", "1")
    (topology,) = document["topologies"]
    assert (topology["block_sizes"], topology["segment"]) == ([4], 3)
    assert topology["groups"][0] == {"name": "unit0", "nodes": ["n0", "n1", "n2", "n3"]}
    assert document["text"].endswith("BlockSizes=4\n")


def test_partitions_say_which_topology_of_a_yaml_they_use(dump: Path) -> None:
    document = answer(dump, "--write", "yaml", "--partition", "train=block", "--partition", "cpu=tree")
    assert document["partitions"] == {"train": "block", "cpu": "tree"}
    assert "PartitionName=train ... Topology=block" in document["text"]
    assert [each["name"] for each in document["topologies"]] == ["tree", "block"]
    assert [each["name"] for each in answer(dump, "--write", "yaml")["topologies"]] == ["tree"]


def test_the_same_file_differs_in_nothing(dump: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.conf"
    live.write_text(opsk(dump, "--write", "tree").stdout)
    done = opsk(dump, "--write", "tree", "--diff", live)
    assert (done.returncode, done.stdout) == (0, "The file is identical.\n")


def test_other_names_for_the_same_are_no_difference_and_still_shown(dump: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.conf"
    live.write_text("SwitchName=b Nodes=n[4-7]\nSwitchName=a Nodes=n[0-3]\nSwitchName=top Switches=a,b\n")
    done = opsk(dump, "--write", "tree", "--diff", live)
    assert done.returncode == 0
    assert "Nothing changes for any node" in done.stdout
    assert "-SwitchName=b Nodes=n[4-7]" in done.stdout


def test_nodes_that_change_place_are_named_and_end_with_1(dump: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.conf"
    live.write_text("SwitchName=a Nodes=n[0-2]\nSwitchName=b Nodes=n[3-6],old\nSwitchName=top Switches=a,b\n")
    done = opsk(dump, "--write", "tree", "--diff", live)
    assert done.returncode == 1
    assert "n3 moves from b to unit0" in done.stdout
    (change,) = answer(dump, "--write", "tree", "--diff", live, status=1)["difference"]["topologies"]
    assert change["moves"] == [{"node": "n3", "before": "b", "after": "unit0"}]
    assert (change["appear"], change["vanish"]) == (["n7"], ["old"])


def test_the_live_file_is_the_one_beside_slurm_conf(dump: Path, tmp_path: Path, slurm: str) -> None:
    assert opsk(dump, "--write", "tree", "--diff", path=slurm).returncode == 2
    (tmp_path / "topology.conf").write_text("SwitchName=all Nodes=n[0-7]\n")
    document = answer(dump, "--write", "tree", "--diff", status=1, path=slurm)
    assert document["difference"]["file"] == str(tmp_path / "topology.conf")
    (tmp_path / "topology.yaml").write_text(opsk(dump, "--write", "yaml", "--partition", "a=block").stdout)
    options = ("--write", "yaml", "--slurm-release", "25.11", "--partition", "a=block", "--diff")
    assert answer(dump, *options, path=slurm)["difference"]["is_same"] is True


def test_a_tree_in_place_of_blocks_is_a_difference(dump: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.conf"
    live.write_text(opsk(dump, "--write", "block").stdout)
    done = opsk(dump, "--write", "tree", "--diff", live)
    assert done.returncode == 1
    assert "replaces block" in done.stdout


def test_hostile_text_of_the_live_file_cannot_control_the_terminal(dump: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.conf"
    live.write_text("SwitchName=a Nodes=n[0-7]\n# \x1b[2J\u202e\n\x1b]0;x\x07rubbish\n")
    done = opsk(dump, "--write", "tree", "--diff", live)
    assert done.returncode == 1
    assert not any(sign in done.stdout for sign in "\x1b\x07\u202e")


def test_what_nodes_say_of_their_nvlink_makes_the_blocks(dump: Path, tmp_path: Path) -> None:
    """Four cliques of two nodes, two of them in each unit of four."""
    files = []
    for index in range(8):
        node = FakeNode(domain=("aaaaaaaa-1111-2222-3333-444444444444", str(1 + index // 2)))
        files.append(tmp_path / f"n{index}.smi")
        files[-1].write_text(smi_query(node))
    document = answer(dump, *files, "--write", "yaml")
    block, tree = document["topologies"]
    assert [group["nodes"] for group in block["groups"]] == [[f"n{k}", f"n{k + 1}"] for k in (0, 2, 4, 6)]
    assert (block["block_sizes"], tree["kind"]) == ([2, 4], "tree")
    assert "aaaaaaaa-1111-2222-3333-444444444444.1" in document["text"]
