"""With two rails on each leaf, a lost HCA leaves no rail without: it is named by its device and leaf all the same."""

from __future__ import annotations

import random

import pytest

from opsk.fabric.checks.repair import repair_fault
from opsk.fabric.fabric import Fault
from opsk.fabric.rails import find_rails
from tests.fakes.faulty_fabrics import DGX_DEVICES, Site, Workshop

STYLES = {
    "gaps": DGX_DEVICES,
    "counted": tuple(f"mlx5_{index}" for index in range(8)),
    "pci": tuple(f"ibp{bus}s0" for bus in (24, 64, 79, 94, 154, 192, 206, 220)),
}


def paired(style: str = "gaps") -> Workshop:
    """Two units of 12 nodes; HCAs 0 and 1 of a node share a leaf, 2 and 3, and so on."""
    found = Workshop(Site(nodes=24, unit_nodes=12, spines=4, cables_per_pair=6, devices=STYLES[style]))
    for node in range(24):
        unit = node // 12
        for position in range(1, 8, 2):
            found.move(found.hca(found.node(node), position), found.leaf(unit, position - 1))
    for unit in range(2):
        for rail in range(1, 8, 2):
            found.remove(found.leaf(unit, rail))
    return found


def only(found: Workshop) -> Fault:
    faults = find_rails(found.fabric()).faults
    assert [fault.kind for fault in faults] == ["fewer_hcas"]
    return faults[0]


def test_the_paired_fabric_is_sound() -> None:
    rails = find_rails(paired().fabric())
    assert (rails.faults, rails.rail_count, len(rails.units)) == ((), 4, 2)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("lost", range(8))
def test_the_device_and_the_leaf_of_a_lost_hca_are_named(lost: int, style: str) -> None:
    found = paired(style)
    found.remove(found.hca(found.node(5), lost))
    fault = only(found)
    leaf = found.leaf(0, lost - lost % 2)
    assert (fault.where, fault.switches) == (found.node(5), (leaf,))
    assert f"{found.site.devices[lost]} is missing, 11 other nodes of the unit have it on {found.name(leaf)}" in (
        fault.evidence
    )
    mended = repair_fault(found.fabric(), fault)
    assert mended is not None
    assert find_rails(mended).faults == ()


@pytest.mark.parametrize("lost", range(7))
def test_of_devices_that_were_counted_anew_the_leaf_is_named(lost: int) -> None:
    """The driver numbers the HCAs that it finds: names tell that ``mlx5_7`` is gone, the leaves that it is another."""
    found = paired("counted")
    node = found.node(5)
    found.remove(found.hca(node, lost))
    left = [name for index, name in enumerate(found.site.devices) if index != lost]
    found.name_devices(node, dict(zip(left, found.site.devices, strict=False)))
    fault = only(found)
    leaf = found.leaf(0, lost - lost % 2)
    assert (fault.where, fault.switches) == (node, (leaf,))
    assert ("do not tell which" in fault.evidence) == (lost < 6)


def test_the_only_node_of_a_style_tells_the_leaf() -> None:
    found = paired()
    found.rename_devices([found.node(5)], STYLES["pci"])
    guid = next(guid for guid, hca in found.hcas.items() if (hca.node, hca.device) == (found.node(5), "ibp154s0"))
    found.remove(guid)
    fault = only(found)
    assert fault.switches == (found.leaf(0, 4),)
    assert "do not tell which" in fault.evidence


def test_names_without_a_pattern_change_nothing() -> None:
    """Hosts that are each a family of their own are compared with each other."""
    rng = random.Random(3)
    found = paired()
    for index in range(24):
        found.duplicate(found.node(index), "".join(rng.choices("bcdfghjk3579", k=7)))
    guid = next(guid for guid, hca in found.hcas.items() if hca.device == "mlx5_6")
    node = found.hcas[guid].node
    found.remove(guid)
    fault = only(found)
    assert fault.where == node
    assert "mlx5_6 is missing" in fault.evidence
