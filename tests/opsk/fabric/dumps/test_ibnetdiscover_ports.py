"""Reading the report of ``ibnetdiscover -p``: linked and open ports, unknown rates, adapters with two ports."""

from __future__ import annotations

from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import summarise_fabric

LEAF = "0x00000000000000a1"
REPORT = f"""CA     5  1 0x00000000000000b1 4x HDR - SW     2  9 {LEAF} ( 'n1 mlx4_0' - 'leaf1' )
CA     6  2 0x00000000000000b2 4x HDR - SW     2 10 {LEAF} ( 'n1 mlx4_0' - 'leaf1' )
SW     2  9 {LEAF} 4x HDR - CA     5  1 0x00000000000000b1 ( 'leaf1' - 'n1 mlx4_0' )
SW     2 10 {LEAF} 4x HDR - CA     6  2 0x00000000000000b2 ( 'leaf1' - 'n1 mlx4_0' )
SW     2 11 {LEAF} 4x SDR                                    'leaf1'
SW     2 12 {LEAF} ?? ???                                    'leaf1'
"""


def read(text: str) -> Fabric:
    return read_fabric(text, source="dump")


def test_two_ports_of_one_adapter_are_told_by_their_guids() -> None:
    got = read(REPORT)
    assert got.faults == ()
    assert (summarise_fabric(got).hcas, summarise_fabric(got).nodes, summarise_fabric(got).switches) == (1, 1, 1)
    assert got.switches["00000000000000a1"].ports == 12
    assert got.port_lids == {("00000000000000b1", 1): 5, ("00000000000000b1", 2): 6}
    assert [(cable.b_guid, cable.b_port) for cable in got.cables] == [("00000000000000b1", 1), ("00000000000000b1", 2)]


def test_adapters_of_one_name_with_guids_apart_stay_two() -> None:
    assert summarise_fabric(read(REPORT.replace("00b2", "00f2"))).hcas == 2


def test_a_speed_that_the_program_did_not_know_is_reported_once() -> None:
    got = read(REPORT.replace("HDR", "???"))
    assert [fault.kind for fault in got.faults] == ["unknown_speed"]
    assert [cable.bytes_per_s for cable in got.cables] == [0.0, 0.0]


def test_names_may_hold_quotes_and_parentheses() -> None:
    got = read(REPORT.replace("n1 mlx4_0", "n'1 (old) - 'x' mlx4_0"))
    assert summarise_fabric(got).hcas == 1


def test_lines_that_cannot_be_read_are_named() -> None:
    got = read(REPORT + "SW     2 13 0x00\nibwarn: [7] something\n")
    assert [fault.where for fault in got.faults] == ["dump:7", "dump:8"]
