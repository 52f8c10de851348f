"""Every open fabric dump gives the numbers that two independent scripts computed (EXPECTED.json, kind ib_fabric)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import InputError
from opsk.topology.fabric import Fabric
from opsk.topology.graph import leaves as leaves_of
from opsk.topology.graph import summary, switch_neighbours, tiers
from opsk.topology.ibnetdiscover import read_ibnetdiscover

pytestmark = pytest.mark.shared


def expected(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "data/real/EXPECTED.json").read_text())["ib_fabric"]


def read(shared: Path, name: str) -> Fabric:
    text = (shared / "data/real/ib_fabric" / name).read_text(encoding="utf-8", errors="replace")
    return read_ibnetdiscover(text, source=name)


def test_every_answer_of_every_fabric_is_given(shared: Path) -> None:
    wrong = {}
    for name, answer in expected(shared).items():
        if "refuse" in answer:
            continue
        fabric = read(shared, name)
        got = summary(fabric)
        leaf = leaves_of(fabric)
        found = {
            "switches": got.switches,
            "hcas": got.hcas,
            "nodes": got.nodes,
            "leaves": got.leaves,
            "tiers": got.tiers,
            "isl_cables": got.isl_cables,
            "components": list(got.components),
            "switches_per_tier": {str(tier): count for tier, count in got.switches_per_tier.items()},
            "sharp_nodes": got.sharp_nodes,
            "self_loops": got.self_loops,
            "isl_between_same_tier": got.isl_between_same_tier,
            "switches_with_no_path_to_a_leaf": got.switches_without_tier,
            "hcas_without_a_host_name": got.hcas_without_host,
            "hca_link_speeds": dict(got.hca_link_speeds),
            "isl_speeds": dict(got.isl_speeds),
            "cas_total": len(fabric.hcas),
            "leaf_guids": sorted(leaf),
        }
        answer["leaf_guids"] = sorted(entry["guid"][2:] for entry in answer["leaf_detail"])
        if answer.get("generated"):
            found["generated"] = fabric.generated
        wrong |= {(name, key): (value, answer[key]) for key, value in found.items() if value != answer[key]}
    assert wrong == {}


def test_nodes_of_each_leaf_are_named(shared: Path) -> None:
    for name, answer in expected(shared).items():
        for entry in answer.get("leaf_detail") or []:
            fabric = read(shared, name)
            tier = tiers(switch_neighbours(fabric), leaves_of(fabric))
            assert tier[entry["guid"][2:]] == 0
            break


def test_a_dump_without_any_switch_is_refused(shared: Path) -> None:
    refused = [name for name, answer in expected(shared).items() if "refuse" in answer]
    assert refused
    for name in refused:
        with pytest.raises(InputError, match="no switch at all"):
            read(shared, name)
