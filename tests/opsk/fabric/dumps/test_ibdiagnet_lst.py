"""Reading ibdiagnet's list of links, whose numbers are hexadecimal."""

from __future__ import annotations

import pytest

from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import summarise_fabric

HCA = (
    "{{ CA Ports:02 SystemGUID:00000000000000b0 NodeGUID:00000000000000B0 PortGUID:00000000000000b1 VenID:000002c9 "
    "DevID:1003 Rev:00000000 {text} LID:0005 PN:01 }}"
)
LEAF = (
    "{{ SW Ports:24 SystemGUID:00000000000000a1 NodeGUID:00000000000000a1 PortGUID:00000000000000a1 VenID:000002c9 "
    "DevID:c738 Rev:000000a1 {{leaf1}} LID:0012 PN:{port} }}"
)
CORE = LEAF.replace("a1", "a2").replace("leaf1", "core")
TAIL = " PHY=4x LOG=ACT SPD=50\n"
LIST = (
    HCA.format(text="{n1 mlx5_0}") + " " + LEAF.format(port="14") + TAIL
    + LEAF.format(port="01") + " " + CORE.format(port="0A") + TAIL
)  # fmt: skip


def read(text: str) -> Fabric:
    return read_fabric(text, source="dump")


def test_numbers_are_hexadecimal_and_both_ends_count() -> None:
    got = read(LIST)
    assert got.faults == ()
    assert {(c.a_guid[-2:], c.a_port, c.b_guid[-2:], c.b_port) for c in got.cables} == {
        ("a1", 20, "b0", 1), ("a1", 1, "a2", 10),
    }  # fmt: skip
    leaf = got.switches["00000000000000a1"]
    assert (leaf.ports, leaf.lid, leaf.description) == (36, 18, "leaf1")
    assert got.port_lids == {("00000000000000b0", 1): 5}
    assert summarise_fabric(got).nodes == 1


def test_an_adapter_without_a_description_is_an_unnamed_one() -> None:
    got = read(HCA.format(text="") + " " + LEAF.format(port="14") + TAIL)
    assert (summarise_fabric(got).hcas, summarise_fabric(got).nodes) == (1, 0)


@pytest.mark.parametrize(
    ("printed", "speed"),
    [("2.5", "SDR"), ("5", "DDR"), ("10", "QDR"), ("14", "FDR"), ("25", "EDR"), ("50", "HDR"), ("100", "NDR"),
     ("200", "XDR"), ("FDR10", "FDR10"), ("?", "???")],
)  # fmt: skip
def test_every_speed_is_understood(printed: str, speed: str) -> None:
    assert {cable.speed for cable in read(LIST.replace("SPD=50", f"SPD={printed}")).cables} == {speed}


def test_a_link_that_is_not_active_and_lines_that_are_cut_are_findings() -> None:
    got = read(LIST.replace("LOG=ACT", "LOG=INI", 1) + LIST[:120])
    assert [fault.kind for fault in got.faults] == ["link_not_active", "damaged_line"]
    assert len(got.cables) == 2
