"""Every open fabric dump gives the numbers that two independent scripts computed (EXPECTED.json, kind ib_fabric)."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import InputError
from opsk.fabric.checks.repair import repair_fault
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_hca_links, summarise_fabric
from opsk.fabric.rails import Rails, find_rails

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
        got = summarise_fabric(fabric)
        leaf = {link.switch for link in find_hca_links(fabric)}
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


def test_leaves_have_the_hosts_links_and_uplinks_of_the_answers(shared: Path) -> None:
    """Uplinks only where no host on a spine makes the letter of the definition differ from what is cabled."""
    for name, answer in expected(shared).items():
        if "refuse" in answer:
            continue
        _, rails = found_in(shared, name)
        shifted = any(leaf.off_tier for leaf in rails.leaves.values())
        for entry in answer["leaf_detail"]:
            leaf = rails.leaves[entry["guid"][2:]]
            assert (name, leaf.description) == (name, entry["desc"])
            assert (leaf.hca_links, list(leaf.nodes)) == (entry["hca_links"], [node for node in entry["nodes"] if node])
            assert shifted or leaf.uplinks == entry["uplinks"]


def test_a_dump_without_any_switch_is_refused(shared: Path) -> None:
    refused = [name for name, answer in expected(shared).items() if "refuse" in answer]
    assert refused
    for name in refused:
        with pytest.raises(InputError, match="no switch at all"):
            read(shared, name)


def found_in(shared: Path, name: str) -> tuple[Fabric, Rails]:
    fabric = read(shared, name)
    return fabric, find_rails(fabric)


def test_the_rails_of_the_dgx_cluster_and_its_swapped_cables(shared: Path) -> None:
    """The note of ndr_dgx_rail_40sw: leaves are named IBLEAF-<rail>-<unit>, which the search never looks at."""
    _, rails = found_in(shared, "ndr_dgx_rail_40sw.ibnetdiscover")
    assert rails.rail_count == 4
    assert len(rails.units) == 8
    named = {leaf.description.split("IBLEAF-")[1][:5]: (leaf.rail, leaf.unit) for leaf in rails.leaves.values()}
    assert {rail for rail, _ in named.values()} == {0, 1, 2, 3}
    assert all(rail == int(name[:2]) - 1 for name, (rail, _) in named.items())
    units_by_group: dict[str, set[int | None]] = {}
    for name, (_, unit) in named.items():
        units_by_group.setdefault(name[3:], set()).add(unit)
    assert all(len(units) == 1 for units in units_by_group.values())
    swapped = [fault for fault in rails.faults if fault.kind == "swapped_hcas"]
    assert [fault.where for fault in swapped] == ["b08-p1-dgx-08-c01: HCA-5 and HCA-6"]
    assert "IBLEAF-03-08" in swapped[0].evidence
    assert "IBLEAF-04-08" in swapped[0].evidence
    assert "13 other nodes" in swapped[0].evidence
    by_kind = Counter(fault.kind for fault in rails.faults)
    assert by_kind["missing_rail"] == 10
    assert by_kind["missing_leaf"] == 1
    assert {fault.where for fault in rails.faults if fault.kind == "generic_host_name"} == {"localhost", "ubuntu"}
    unnamed = [fault.evidence for fault in rails.faults if fault.kind == "unnamed_hca"]
    assert sum(int(text.split(" on ")[1].split(" of ")[0]) for text in unnamed) == 69
    assert {port.device: port.rail for port in rails.attachments["b08-p1-dgx-08-c01"]} == {
        "HCA-1": 0, "HCA-2": 1, "HCA-5": 3, "HCA-6": 2,
    }  # fmt: skip


def test_a_host_on_the_director_shifts_no_tier(shared: Path) -> None:
    """The note of hdr_cs8500_gpu_192sw_host_on_chassis."""
    _, clean = found_in(shared, "hdr_cs8500_gpu_192sw.ibnetdiscover")
    _, rails = found_in(shared, "hdr_cs8500_gpu_192sw_host_on_chassis.ibnetdiscover")
    off = [fault for fault in rails.faults if fault.kind == "host_off_tier"]
    assert len(off) == 1
    assert "Test_Host" in off[0].where
    assert "MCS8500/L02/U2" in off[0].where
    assert {guid: leaf.uplinks for guid, leaf in clean.leaves.items()} == {
        guid: leaf.uplinks for guid, leaf in rails.leaves.items() if not leaf.off_tier
    }
    slow = [fault for fault in rails.faults if fault.kind == "slow_link"]
    assert [fault.where.split(",")[0] for fault in slow] == ["64 HCA links of hosts st#scr#"]
    assert [fault.evidence for fault in rails.faults if fault.kind == "thin_leaf" and "agpu1055" in fault.evidence]
    assert {leaf.role for leaf in rails.leaves.values() if any("scr" in node for node in leaf.nodes)} == {"storage"}


def test_a_spine_with_servers_explains_the_cables_between_leaves(shared: Path) -> None:
    """The note of qdr_fdr10_8sw_144nodes: 24 cables seem to join leaves, since one spine has 3 HCAs on it."""
    _, rails = found_in(shared, "qdr_fdr10_8sw_144nodes.ibnetdiscover")
    off = next(fault for fault in rails.faults if fault.kind == "host_off_tier")
    assert "HCA links: 3, on a switch with 24 cables to 6 leaves" in off.evidence
    assert [fault.where for fault in rails.faults if fault.kind == "two_cables_on_one_hca"] == ["tank1 mlx4_0"]


def test_an_empty_lid_is_reported_with_its_line(shared: Path) -> None:
    fabric, _ = found_in(shared, "hdr_cs8500_gpu_192sw_empty_lid.ibnetdiscover")
    assert next(fault for fault in fabric.faults if fault.kind == "empty_lid").where.endswith(":11)")


def test_every_other_file_of_the_kind_is_read_or_refused(shared: Path) -> None:
    answers = expected(shared)
    for path in sorted((shared / "data/real/ib_fabric").iterdir()):
        if path.name not in answers:
            try:
                find_rails(read_fabric(path.read_text(), source=path.name))
            except InputError as error:
                assert path.name in error.message  # noqa: PT017


@pytest.mark.parametrize("name", ["ndr_dgx_rail_40sw", "hdr_cs8500_gpu_192sw"])
def test_a_swap_planted_in_a_real_fabric_is_the_only_new_finding(shared: Path, name: str) -> None:
    """Every twentieth sound node, its first and last HCA: each is found, by node and devices, and put right again."""
    fabric, rails = found_in(shared, f"{name}.ibnetdiscover")
    before = {(fault.kind, fault.where) for fault in rails.faults}
    swapped = {node for fault in rails.faults for node in fault.nodes if fault.kind == "swapped_hcas"}
    sound = [node for node, ports in rails.attachments.items() if len(ports) == 4 and node not in swapped]
    for node in sound[::20]:
        ports = rails.attachments[node]
        if ports[0].leaf == ports[-1].leaf:
            continue
        broken = exchanged(fabric, ports[0].guid, ports[-1].guid)
        new = [fault for fault in find_rails(broken).faults if (fault.kind, fault.where) not in before]
        expected_where = f"{node}: {ports[0].device} and {ports[-1].device}"
        assert [(fault.kind, fault.where) for fault in new] == [("swapped_hcas", expected_where)]
        repaired_fabric = repair_fault(broken, new[0])
        assert repaired_fabric is not None
        assert {(fault.kind, fault.where) for fault in find_rails(repaired_fabric).faults} == before


def exchanged(fabric: Fabric, one: str, other: str) -> Fabric:
    """Let two HCAs exchange the switch ports that they are cabled to."""
    swap = {one: other, other: one}
    return dataclasses.replace(
        fabric,
        cables=tuple(
            dataclasses.replace(
                cable, a_guid=swap.get(cable.a_guid, cable.a_guid), b_guid=swap.get(cable.b_guid, cable.b_guid)
            )
            for cable in fabric.cables
        ),
    )
