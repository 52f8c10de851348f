"""``opsk fabric topology.conf``: what Slurm was told, with the keys of a fabric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import ExitStatus, InputError

YAML = "- topology: a\n  tree:\n    switches:\n      - switch: s\n        nodes: n[0-1]\n- topology: b\n  flat: true\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(opsk, ["fabric", *map(str, arguments)], standalone_mode=False)


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = run("--json", *arguments)
    assert done.exception is None, done.output
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_a_topology_has_the_keys_of_a_fabric(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(YAML)
    document = answer(path)
    assert document.keys() >= {"summary", "rails", "leaves", "hb_domains", "oversubscription", "faults"}
    assert (document["summary"]["switches"], document["summary"]["nodes"], document["summary"]["tiers"]) == (1, 2, 1)
    assert [(each["name"], each["kind"]) for each in document["topologies"]] == [("a", "tree"), ("b", "flat")]
    assert document["faults"] == []


def test_people_see_groups_and_findings(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[3-7]\nSwitchName=top Switches=s[0-1]\n")
    shown = run(path).stdout
    assert "s0: 4 nodes, n[0-3]" in shown
    assert "node_listed_twice: n3: in s0 and in s1" in shown
    assert run(path, "--strict").return_value == ExitStatus.BAD_NEWS


def test_several_files_and_broken_ones_are_refused_with_a_reason(tmp_path: Path) -> None:
    one, other = tmp_path / "a.conf", tmp_path / "b.conf"
    for path in (one, other):
        path.write_text("SwitchName=s Nodes=n0\n")
    assert "2 topology files" in str(run(one, other).exception)
    bad = tmp_path / "bad.yaml"
    bad.write_text("- topology: x\n  tree: &a [*a]\n")
    assert isinstance(run(bad).exception, InputError)


@pytest.mark.shared
def test_every_open_topology_gives_its_numbers_on_the_command_line(shared: Path) -> None:
    """Answers: EXPECTED.json, kind slurm_topology."""
    expected = json.loads((shared / "data/real/EXPECTED.json").read_text())["slurm_topology"]
    for name, right in expected.items():
        summary = answer(shared / "data/real/slurm_topology" / name)["summary"]
        assert {key: summary[key] for key in right} == right, name
