"""Compute nodes are told from servers by what most HCAs are part of and how they are cabled, whatever the names are.

Fabrics and faults are made by ``tests.fakes.faulty_fabrics``: what must be found is known from there.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.fabric.fabric import Fault
from opsk.fabric.rails import find_rails
from tests.fakes.faulty_fabrics import DGX_DEVICES, Planted, Site, Workshop

PCI_DEVICES = tuple(f"ibp{bus}s0" for bus in (24, 64, 79, 94, 154, 192, 206, 220))


def random_words(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("bcdfghjkpqrtxz" + string.digits, k=7)) for _ in range(count)]


def site(names: Sequence[str] | None = None, devices: Sequence[str] = DGX_DEVICES) -> Site:
    """Three units of 12 nodes; hosts without a pattern of names unless some are given."""
    hosts = random_words(1, 36) if names is None else names
    return Site(nodes=36, unit_nodes=12, spines=4, cables_per_pair=3, devices=devices, host=lambda i: hosts[i])


def pool_names() -> list[str]:
    return [f"inst-{word[:5]}-h100-pool" for word in random_words(2, 36)]


def rename(found: Workshop, node: str, name: str) -> None:
    found.duplicate(node, name)


def said(faults: Sequence[Fault]) -> list[tuple[str, str]]:
    return [(fault.kind, fault.where) for fault in faults]


@pytest.mark.parametrize("shared", ["localhost", "gpubox"])
@pytest.mark.parametrize("machines", [2, 3, 4])
def test_a_name_of_several_machines_sets_no_measure_for_the_others(shared: str, machines: int) -> None:
    """With 16 to 32 HCAs the name has more than any node; the others keep their role and their faults."""
    found = Workshop(site())
    planted = found.swap(found.node(5), 1, 4)
    for index in range(machines):
        rename(found, found.node(12 + index), shared)
    rails = find_rails(found.fabric())
    assert set(rails.host_roles.values()) == {"compute"}
    assert (rails.rail_count, len(rails.units)) == (8, 3)
    assert len(planted.found_in(rails.faults)) == 1
    other = "generic_host_name" if shared == "localhost" else "duplicate_host_name"
    assert sorted(said(rails.faults)) == sorted([(other, shared), ("swapped_hcas", planted_where(found, planted))])


def planted_where(found: Workshop, planted: Planted) -> str:
    return f"{planted.words[0]}: {planted.words[1]} and {planted.words[2]}"


@pytest.mark.parametrize("names", [random_words(1, 36), pool_names()], ids=["no pattern", "words in common"])
@pytest.mark.parametrize("kept", [3, 4])
def test_a_node_with_half_of_its_hcas_or_fewer_is_a_compute_node_that_lacks_rails(names: list[str], kept: int) -> None:
    found = Workshop(site(names))
    node = found.node(5)
    for position in range(8 - kept):
        found.remove(found.hca(node, position))
    rails = find_rails(found.fabric())
    assert rails.host_roles[node] == "compute"
    assert said(rails.faults) == [("missing_rail", node)]
    assert f"none on rail {', '.join(map(str, range(8 - kept)))}" in rails.faults[0].evidence


@pytest.mark.parametrize(
    ("names", "devices"),
    [(pool_names(), DGX_DEVICES), (random_words(1, 36), PCI_DEVICES)],
    ids=["name tells", "device tells"],
)
@pytest.mark.parametrize("position", [0, 4])
def test_a_node_with_one_hca_left_is_told_by_its_name_or_the_pci_slot(
    names: list[str], devices: Sequence[str], position: int
) -> None:
    found = Workshop(site(names, devices))
    node = found.node(5)
    for other in set(range(8)) - {position}:
        found.remove(found.hca(node, other))
    rails = find_rails(found.fabric())
    assert rails.host_roles[node] == "compute"
    assert said(rails.faults) == [("missing_rail", node)]


def test_two_hcas_that_are_not_the_first_are_the_rest_of_a_compute_node() -> None:
    found = Workshop(site())
    node = found.node(5)
    for other in set(range(8)) - {3, 6}:
        found.remove(found.hca(node, other))
    assert said(find_rails(found.fabric()).faults) == [("missing_rail", node)]


@pytest.mark.parametrize("rails_used", [[0], [3], [0, 1], [1, 0], [2, 6]])
@pytest.mark.parametrize("name", ["xkcd", "edge7"])
def test_a_host_with_one_or_two_hcas_on_spare_ports_stays_management(name: str, rails_used: list[int]) -> None:
    """``mlx5_0`` on the first rail's leaf is where a compute node has it too: no machine of its own is told by that."""
    found = Workshop(site())
    found.add_host(name, *(found.leaf(1, rail) for rail in rails_used))
    rails = find_rails(found.fabric())
    assert rails.host_roles[name] == "management"
    assert [fault for fault in rails.faults if name in fault.nodes] == []


@pytest.mark.parametrize("name", ["oss-gpu-07", "gpu-storage-01", "inst-io07-h100-pool", "nfs5x", "login-gpu1"])
@pytest.mark.parametrize("names", [random_words(1, 36), pool_names()], ids=["no pattern", "words in common"])
def test_a_node_named_like_a_server_and_cabled_like_its_neighbours_is_a_compute_node(
    names: list[str], name: str
) -> None:
    found = Workshop(site(names))
    rename(found, found.node(5), name)
    rails = find_rails(found.fabric())
    assert rails.host_roles[name] == "compute"
    assert rails.faults == ()


def test_storage_servers_on_the_leaves_of_rails_stay_storage() -> None:
    found = Workshop(site())
    for index in range(4):
        found.add_host(f"oss{index + 1}", found.leaf(2, 0), found.leaf(2, 1))
    rails = find_rails(found.fabric())
    assert {name: rails.host_roles[name] for name in ("oss1", "oss4")} == {"oss1": "storage", "oss4": "storage"}


@pytest.mark.parametrize("other", [6, 20], ids=["one unit", "two units"])
@pytest.mark.parametrize("patterned", [True, False])
def test_two_machines_of_one_name_whose_devices_differ_in_style_are_one_finding(other: int, patterned: bool) -> None:
    names = [f"h100-{index + 1:03d}" for index in range(36)] if patterned else None
    found = Workshop(site(names))
    found.rename_devices([found.node(other)], PCI_DEVICES)
    planted = found.duplicate(found.node(other), found.node(3))
    faults = find_rails(found.fabric()).faults
    assert said(faults) == [(planted.kind, found.node(3))]
    assert "16 HCAs" in faults[0].evidence
    assert "ibp#s#" in faults[0].evidence
    assert len(faults[0].devices) == 16


def test_a_kind_of_larger_nodes_is_no_duplicate() -> None:
    """Two nodes of another family have twice the HCAs, two on each leaf."""
    found = Workshop(site([f"h100-{index + 1:03d}" for index in range(36)]))
    for index in range(2):
        found.add_host(f"big-{index}", *(found.leaf(1, rail) for rail in range(8) for _ in range(2)))
    assert {fault.kind for fault in find_rails(found.fabric()).faults} & {"duplicate_host_name"} == set()


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
@given(st.integers(0, 2**32))
def test_names_without_any_pattern_change_no_finding(seed: int) -> None:
    """The same faults as under names with a pattern: a swap, a lost HCA, a name twice, an HCA without a name."""
    rng = random.Random(seed)
    nodes = rng.sample(range(36), 5)
    results = []
    for names in (random_words(seed, 36), [f"dgx-{index:03d}" for index in range(36)]):
        found = Workshop(site(names))
        found.swap(found.node(nodes[0]), 1, 4)
        for position in range(1 + seed % 4):
            found.lose_hca(found.node(nodes[1]), position)
        found.duplicate(found.node(nodes[2]), found.node(nodes[3]))
        found.unname(found.node(nodes[4]), 2)
        faults = find_rails(found.fabric()).faults
        place = {name: str(index) for index, name in enumerate(names)}
        results.append(sorted((fault.kind, [place[name] for name in fault.nodes], fault.devices) for fault in faults))
    assert results[0] == results[1]
