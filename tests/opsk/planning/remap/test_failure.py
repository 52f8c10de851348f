"""Words become what failed; wrong ones are refused with names near them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.node.node_topology import Gpu, Nic, NodeTopology
from opsk.planning.remap.failure import KnownParts, parse_failures
from opsk.workload.plan import Plan
from tests.fakes.remap_jobs import machine_of, names, situation_of


@pytest.fixture(scope="module")
def machine() -> KnownParts:
    """Eight nodes of four HCAs, two units; the GPUs and NICs of n1 are told by its own file."""
    situation, fabric = situation_of(Plan(tp=4, dp=4, global_batch=4), names(0, 3), free=names(4, 7))
    found = machine_of(situation, fabric, {"rack": ["n0", "n1"]})
    guid = situation.rails.attachments["n1"][2].guid
    own = NodeTopology(
        gpus=tuple(Gpu(index=index, uuid=f"GPU-0000000{index}-abcd") for index in range(3)),
        nics=(Nic(name="0000:86:00.0", device="ibp134s0", guid=guid), Nic(name="mlx5_9", guid="00000000000000ff")),
    )
    return replace(found, topologies={"n1": own})


def test_a_gpu_by_node_and_index(machine: KnownParts) -> None:
    found = parse_failures(["gpu:n2/3"], machine)
    assert (found.gpus, found.nodes, found.drain) == ({("n2", 3)}, frozenset(), {"n2"})


def test_a_gpu_by_its_uuid(machine: KnownParts) -> None:
    found = parse_failures(["gpu:gpu-00000002-ABCD"], machine)
    assert (found.gpus, found.reported) == ({("n1", 2)}, ("gpu:n1/2",))


def test_a_nic_by_the_fabrics_name_and_by_the_nodes(machine: KnownParts) -> None:
    by_fabric, by_node = (parse_failures([word], machine) for word in ("nic:n1/mlx5_2", "nic:n1/ibp134s0"))
    (lost,) = by_fabric.hcas
    assert lost == (machine.rails.attachments["n1"][2].guid, machine.rails.attachments["n1"][2].leaf)
    assert by_node.hcas == by_fabric.hcas
    assert by_fabric.links == (("n1 mlx5_2", "leaf2"),)


def test_a_nic_that_is_not_on_the_compute_fabric_loses_nothing(machine: KnownParts) -> None:
    found = parse_failures(["nic:n1/mlx5_9"], machine)
    assert not found.hcas
    assert "not on the compute fabric" in found.remarks[0]


def test_both_ends_of_a_cable_are_the_same_cable(machine: KnownParts) -> None:
    entry = machine.rails.attachments["n3"][0]
    cable = next(cable for cable in machine.fabric.cables if entry.guid in {cable.a_guid, cable.b_guid})
    one = parse_failures([f"cable:0x{cable.a_guid}/{cable.a_port}"], machine)
    other = parse_failures([f"cable:{cable.b_guid.lstrip('0')}/{cable.b_port}"], machine)
    assert one.hcas == other.hcas == {(entry.guid, entry.leaf)}


def test_a_cable_between_switches_is_gone_around(machine: KnownParts) -> None:
    switches = machine.fabric.switches
    cable = next(cable for cable in machine.fabric.cables if cable.a_guid in switches and cable.b_guid in switches)
    found = parse_failures([f"cable:{cable.a_guid}/{cable.a_port}"], machine)
    assert not found.hcas
    assert "other cables take its traffic" in found.remarks[0]


def test_a_leaf_by_name_and_guid_takes_all_its_hcas(machine: KnownParts) -> None:
    guid = next(guid for guid, switch in machine.fabric.switches.items() if switch.description == "leaf1")
    found = parse_failures(["leaf:leaf1"], machine)
    assert found.hcas == parse_failures([f"leaf:{guid}"], machine).hcas
    assert len(found.hcas) == 4
    assert not found.drain


def test_a_spine_takes_no_hca(machine: KnownParts) -> None:
    assert "goes around it" in parse_failures(["leaf:spine0"], machine).remarks[0]


def test_a_node_by_its_first_label(machine: KnownParts) -> None:
    assert parse_failures(["node:N2.cluster.example"], machine).nodes == {"n2"}


def test_an_hb_domain_is_all_its_gpus(machine: KnownParts) -> None:
    found = parse_failures(["hb:rack"], machine)
    assert found.gpus == {("n0", gpu) for gpu in range(4)} | {("n1", gpu) for gpu in range(3)}
    assert (found.domains, found.drain) == ({"rack"}, {"n0", "n1"})


def test_several_failures_are_one(machine: KnownParts) -> None:
    found = parse_failures(["gpu:n2/3", "node:n3", "gpu:n2/3"], machine)
    assert found.reported == ("gpu:n2/3", "node:n3")
    assert found.drain == {"n2", "n3"}


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("disk:n2/3", "no known form", "gpu:NODE/INDEX"),
        ("gpu", "no known form", "gpu:NODE/INDEX"),
        ("gpu:n2", "gpu:NODE/INDEX or gpu:UUID", "gpu:n3/5"),
        ("gpu:n2/4", "n2 has GPUs 0 to 3", "counted from 0"),
        ("gpu:n1/3", "n1 has GPUs 0 to 2", "counted from 0"),
        ("gpu:n2/²", "gpu:NODE/INDEX or gpu:UUID", "gpu:n3/5"),
        ("gpu:GPU-00000009-abcd", "no such GPU", "did you mean gpu-0000000"),
        ("nic:n2/mlx5_7", "no such NIC of n2", "did you mean mlx5_"),
        ("node:n22", "no such node", "did you mean n2"),
        ("leaf:leav1", "no such switch", "did you mean leaf1"),
        ("cable:zz/1", "cable:GUID/PORT", "guids"),
        ("cable:ffffff/1", "no such guid", ""),
        ("hb:n1", "n1 is a node of HB domain rack", "name hb:rack"),
        ("hb:rock", "no such HB domain", "did you mean rack"),
    ],
)
def test_wrong_words_are_refused_with_what_is_near(machine: KnownParts, word: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        parse_failures([word], machine)
    assert message in error.value.message
    assert hint in error.value.hint


@given(word=st.text(max_size=40) | st.from_regex(r"(gpu|nic|cable|leaf|node|hb):[^\n]{0,20}", fullmatch=True))
def test_no_text_is_more_than_refused(word: str) -> None:
    situation, fabric = _CACHED
    try:
        found = parse_failures([word], machine_of(situation, fabric))
    except InputError:
        return
    assert found.reported


_CACHED = situation_of(Plan(tp=4, dp=2, global_batch=2), names(0, 1))


def test_an_unknown_port_names_those_that_are_cabled(machine: KnownParts) -> None:
    guid = machine.rails.attachments["n0"][0].guid
    with pytest.raises(InputError, match="cabled are 1"):
        parse_failures([f"cable:{guid}/9"], machine)
