"""Reading iblinkinfo: every form that its source can print, and what it remarks on links."""

from __future__ import annotations

import pytest

from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import summarise_fabric

BLOCKS = """CA: n1 HCA-1:
      0x00000000000000b1      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2    1[  ] "leaf1" ( )
Switch: 0x00000000000000a1 leaf1:
           2    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "n1 HCA-1" ( )
           2    2[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       3    7[  ] "core" ( )
           2    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           2    4[  ] ==(                Down/Disabled)==>             [  ] "" ( )
Switch: 0x00000000000000a2 core:
           3    7[ 5] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2    2[ 7] "leaf1" ( )
"""
LINE = '0x00000000000000{} "{:>30}"      {}    {}[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>  {}\n'
LINES = "".join(
    LINE.format(*ends)
    for ends in (
        ("b1", "n1 HCA-1", 4, 1, '0x00000000000000a1      2    1[  ] "leaf1" ( )'),
        ("a1", "leaf1", 2, 1, '0x00000000000000b1      4    1[  ] "n1 HCA-1" ( )'),
        ("a1", "leaf1", 2, 2, '0x00000000000000a2      3    7[  ] "core" ( )'),
        ("a2", "core", 3, 7, '0x00000000000000a1      2    2[  ] "leaf1" ( )'),
    )
)
LINES += f'0x00000000000000a1 "{"leaf1":>30}"      2    3[  ] ==(    Down/ Polling)==>      [  ] "" ( )\n'
CABLES = {
    ("00000000000000a1", 1, "00000000000000b1", 1),
    ("00000000000000a1", 2, "00000000000000a2", 7),
}


def read(text: str) -> Fabric:
    return read_fabric(text, source="dump")


def connections(fabric: Fabric) -> set[tuple[str, int, str, int]]:
    return {(cable.a_guid, cable.a_port, cable.b_guid, cable.b_port) for cable in fabric.cables}


def kinds(fabric: Fabric) -> list[str]:
    return [fault.kind for fault in fabric.faults]


@pytest.mark.parametrize(
    "text",
    [
        BLOCKS,
        LINES,
        BLOCKS.replace("\n", "\r\n"),
        BLOCKS.replace("LinkUp)", "LinkUp) (HOQ:18 VL_Stall:7)"),  # -p
        BLOCKS.replace('" ( )', '" (  Could be 12X)'),  # what ibsim's ports claim
    ],
)
def test_blocks_lines_and_settings_are_one_fabric(text: str) -> None:
    got = read(text)
    assert connections(got) == CABLES
    assert got.faults == ()
    assert {cable.speed for cable in got.cables} == {"EDR"}
    assert {switch.description for switch in got.switches.values()} == {"leaf1", "core"}
    assert got.port_lids == {("00000000000000b1", 1): 4}
    assert [hca.node for hca in got.hcas.values()] == ["n1"]


@pytest.mark.parametrize(
    ("printed", "width", "speed"),
    [
        ("4X      10.0 Gbps (FDR10)", 4, "FDR10"),
        ("4X      10.0 Gbps", 4, "QDR"),
        ("4X      14.0625 Gbps", 4, "FDR"),
        ("2X      53.125 Gbps", 2, "HDR"),
        ("4X     106.25 Gbps", 4, "NDR"),
        ("4X     212.5 Gbps", 4, "XDR"),
        ("1X       2.5 Gbps", 1, "SDR"),
        ("4X     undefined (16)", 4, "???"),
        ("4X     Extended speed", 4, "???"),
        ("? (0)    2.5 Gbps", 0, "SDR"),
    ],
)
def test_every_rate_is_understood(printed: str, width: int, speed: str) -> None:
    got = read(BLOCKS.replace("4X      25.78125 Gbps", printed))
    assert connections(got) == CABLES
    assert {(cable.width, cable.speed) for cable in got.cables} == {(width, speed)}
    assert kinds(got) == (["unknown_speed"] if speed == "???" else [])


def test_switches_only_name_their_hosts_as_far_ends() -> None:
    got = read(BLOCKS.split("Switch:", 1)[1].join(("Switch:", "")))
    assert (summarise_fabric(got).switches, summarise_fabric(got).hcas, summarise_fabric(got).nodes) == (2, 1, 1)
    assert kinds(got) == ["hca_only_named"]


def test_a_far_end_on_a_high_port_is_a_switch() -> None:
    got = read(BLOCKS.split("Switch: 0x00000000000000a2")[0])
    assert summarise_fabric(got).switches == 2
    assert kinds(got) == ["switch_only_named"]


def test_ports_of_one_adapter_are_one_adapter() -> None:
    second = '      0x00000000000000b2      5    2[  ] ==( 4X  25.78125 Gbps Active/ LinkUp)==>  2  9[  ] "leaf1" ( )\n'
    got = read(BLOCKS.replace("Switch: 0x00000000000000a1", second + "Switch: 0x00000000000000a1"))
    assert len(got.hcas) == 1
    assert got.port_lids == {("00000000000000b1", 1): 4, ("00000000000000b1", 2): 5}


def test_ports_of_one_adapter_are_told_by_their_guids_where_each_line_stands_alone() -> None:
    second = LINE.format("b2", "n1 HCA-1", 5, 2, '0x00000000000000a1      2    9[  ] "leaf1" ( )')
    got = read(LINES + second)
    assert len(got.hcas) == 1
    assert len(got.cables) == 3
    assert len(read(LINES + second.replace("b2", "f2")).hcas) == 2


def test_a_subnet_without_lids_is_told_by_port_guids_and_by_names() -> None:
    for text in (LINES, BLOCKS):
        none = text.replace("      4    1[", "      0    1[").replace("      3    7[", "      0    7[")
        none = none.replace("      2    ", "      0    ").replace("     3    7[", "     0    7[")
        assert connections(read(none)) == CABLES


def test_a_router_is_a_router() -> None:
    got = read(BLOCKS.replace("CA: n1 HCA-1:", "Router: edge1:").replace('"n1 HCA-1"', '"edge1"'))
    assert (summarise_fabric(got).routers, summarise_fabric(got).hcas) == (1, 0)


def test_links_that_carry_nothing_yet_or_give_no_answer_are_findings() -> None:
    waiting = read(BLOCKS.replace("Active/  LinkUp)==>       3", "Initialize/  LinkUp)==>       3"))
    assert connections(waiting) == CABLES
    assert kinds(waiting) == ["link_not_active"]
    silent = BLOCKS.split("Switch: 0x00000000000000a2")[0].replace(
        '      3    7[  ] "core" ( )', '    "Port not available"'
    )
    assert kinds(read(silent)) == ["no_answer"]


def test_links_below_what_both_ends_can_do_are_told_once_for_each_rate() -> None:
    got = read(BLOCKS.replace('" ( )', '" ( Could be 4X Could be 53.125 Gbps)'))
    assert kinds(got) == ["below_capability"]
    assert got.faults[0].where.startswith("6 ports, first n1 HCA-1 port 1") or got.faults[0].where.startswith("4 ports")
    assert "4X and 53.125 Gbps" in got.faults[0].evidence


def test_a_cut_file_keeps_what_came_before() -> None:
    for length in range(len(BLOCKS)):
        try:
            got = read(BLOCKS[:length])
        except Exception as error:  # noqa: BLE001
            assert "no switch" in str(error)  # noqa: PT017
            continue
        assert len(got.cables) <= 2
