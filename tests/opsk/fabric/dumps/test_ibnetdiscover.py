"""Reading dumps: every dialect of the format, and what damage does and does not do."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from opsk.fabric.dumps.render import render_ibnetdiscover, render_ibsim_net
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.rails import find_rails

SMALL = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)

SHAPES = st.builds(
    rail_optimized_fabric,
    nodes=st.integers(1, 9),
    hcas=st.sampled_from([2, 4]),
    leaves=st.sampled_from([1, 2, 4, 8]),
    spines=st.integers(0, 3),
    cables_per_pair=st.integers(1, 2),
    speed=st.sampled_from(["SDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR"]),
)


def read(text: str) -> Fabric:
    return read_ibnetdiscover(text, source="dump")


def cables(fabric: Fabric) -> set[Cable]:
    return {dataclasses.replace(cable, line=0) for cable in fabric.cables}


def connections(fabric: Fabric) -> set[tuple[str, int, str, int]]:
    return {(cable.a_guid, cable.a_port, cable.b_guid, cable.b_port) for cable in fabric.cables}


def kinds(fabric: Fabric) -> list[str]:
    return [fault.kind for fault in fabric.faults]


@given(SHAPES)
def test_what_is_written_is_read_back(fabric: Fabric) -> None:
    got = read(render_ibnetdiscover(fabric))
    assert cables(got) == cables(fabric)
    assert {hca.description for hca in got.hcas.values()} == {hca.description for hca in fabric.hcas.values()}
    assert {guid: switch.ports for guid, switch in got.switches.items()} == {
        guid: switch.ports for guid, switch in fabric.switches.items()
    }
    assert got.faults == ()


@given(SHAPES)
def test_an_ibsim_net_describes_the_same_fabric_up_to_the_fastest_rate_it_knows(fabric: Fabric) -> None:
    got = read_fabric(render_ibsim_net(fabric), source="net")
    assert connections(got) == connections(fabric)
    if fabric.cables[0].speed not in ("FDR10", "NDR", "XDR"):
        assert cables(got) == cables(fabric)


@given(st.randoms(use_true_random=False), SHAPES)
def test_the_order_of_blocks_does_not_matter(order: random.Random, fabric: Fabric) -> None:
    blocks = render_ibnetdiscover(fabric).strip().split("\n\n")
    order.shuffle(blocks)
    got = read("\n\n".join(blocks))
    assert cables(got) == cables(fabric)
    assert summarise_fabric(got) == summarise_fabric(fabric)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.floats(0.01, 0.6))
def test_lost_lines_never_invent_a_cable_and_never_raise(order: random.Random, share: float) -> None:
    lines = render_ibnetdiscover(SMALL).split("\n")
    kept = [line for line in lines if not line or order.random() > share]
    try:
        got = read("\n".join(kept))
    except InputError:
        return
    assert connections(got) <= connections(SMALL)
    find_rails(got)


@given(st.integers(0, 5000))
def test_a_dump_that_was_cut_keeps_what_came_before_the_cut(length: int) -> None:
    text = render_ibnetdiscover(SMALL)[:length]
    try:
        got = read(text)
    except InputError:
        return
    assert connections(got) <= connections(SMALL)


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        find_rails(read_fabric('Switch\t4 "S-0001"\t# "s" base port 0 lid 1 lmc 0\n' + text, source="dump"))
    except InputError:
        pytest.fail("a text with a switch in it must be read")


@given(st.text(alphabet='[]()"#-SHR 0123456789abcdefx\n\tlidmcEDR', max_size=300))
def test_text_made_of_the_signs_of_the_format_is_read_or_refused(text: str) -> None:
    try:
        find_rails(read(render_ibnetdiscover(SMALL) + text))
    except InputError:
        pytest.fail("a text with a switch in it must be read")


def test_rubbish_is_counted_not_listed() -> None:
    got = read(render_ibnetdiscover(SMALL) + "\x00\x01\n" * 10_000)
    assert kinds(got).count("damaged_line") == 21
    assert "9980 more lines" in got.faults[-1].evidence


def test_a_damaged_line_is_named_and_its_neighbours_are_kept() -> None:
    lines = render_ibnetdiscover(SMALL).split("\n")
    at = next(number for number, line in enumerate(lines) if "mlx5_0" in line)
    lines[at] = lines[at][:8]
    got = read("\n".join(lines))
    assert (got.faults[0].kind, got.faults[0].where) == ("damaged_line", f"dump:{at + 1}")
    assert connections(got) == connections(SMALL)  # the far end still names the cable


BLOCK = """vendid=0x2c9
switchguid=0xa1(a1)
Switch	36 "S-00000000000000a1"		# "edge" {mode} port 0 lid {lid} lmc 0
{ports}

switchguid=0xa2(a2)
Switch	36 "S-00000000000000A2"		# "core" base port 0 lid 2 lmc 0
[5]	"S-00000000000000a1"[7]		# "edge" lid 1 4xHDR
"""
UP = '[7]\t"S-00000000000000A2"[5]\t\t# "core" lid 2 4xHDR'


def block(*ports: str, lid: str = "1", mode: str = "enhanced") -> str:
    return BLOCK.format(ports="\n".join((UP, *ports)), lid=lid, mode=mode)


@pytest.mark.parametrize(
    "port",
    [
        '[1]\t"H-00000000000000b1"[1](b2) \t\t# "n1 HCA-1" lid 9 4xEDR',
        '[1](1) "H-00000000000000b1"[1](b1)      # "n1 HCA-1" lid 9 4xEDR',
        '[1][ext 5]\t"H-00000000000000b1"[1](b2)\t\t# "n1 HCA-1" lid 9 4xEDR',
        '[1]\t"H-00000000000000b1"[1](b2)\t\t# "n1 HCA-1" lid  4xEDR',
        '[1]\t"H-00000000000000b1"[1](b2)\t\t# "n1 HCA-1" lid -1 4xEDR s=4 w=2 v=4 e=4',
        '[1]   "H-00000000000000B1"[1]  # "n1 HCA-1" lid 9 4xEDR',
    ],
)
def test_every_form_of_a_port_line_is_understood(port: str) -> None:
    got = read(block(port))
    assert connections(got) == {
        ("00000000000000a1", 1, "00000000000000b1", 1),
        ("00000000000000a1", 7, "00000000000000a2", 5),
    }
    assert got.hcas["00000000000000b1"].node == "n1"
    assert {cable.speed for cable in got.cables} == {"EDR", "HDR"}


def test_an_empty_lid_keeps_the_switch_and_is_reported() -> None:
    got = read(block(lid=""))
    assert got.switches["00000000000000a1"].lid is None
    assert kinds(got) == ["empty_lid"]
    assert "dump:3" in got.faults[0].where


@pytest.mark.parametrize("lid", ["-", "-1", "49152", "9" * 60])
def test_a_lid_that_no_port_can_have_keeps_switch_and_cable_and_is_reported(lid: str) -> None:
    got = read(block(f'[1]\t"H-00000000000000b1"[1](b2)\t\t# "n1 HCA-1" lid {lid} 4xEDR', lid=lid))
    assert got.switches["00000000000000a1"].lid is None
    assert kinds(got).count("bad_lid") == 2  # that of the switch, and that of the adapter
    assert len(connections(got)) == 2


def test_a_header_that_is_broken_still_owns_its_ports() -> None:
    text = block('[1]\t"H-00000000000000b1"[1](b2)\t# "n1 HCA-1" lid 9 4xEDR').replace(
        'Switch\t36 "S-00000000000000a1"', "Swi"
    )
    got = read(text)
    assert got.switches["00000000000000a1"].description == "edge"  # named so by its neighbour
    assert summarise_fabric(got).hcas == 1


def test_a_switch_known_only_as_far_end_counts_and_is_reported() -> None:
    got = read(block().split("\n\n")[0])
    assert summarise_fabric(got).switches == 2
    assert kinds(got) == ["switch_only_named"]


def test_an_aggregation_node_is_no_hca_and_makes_no_leaf() -> None:
    got = read(block('[37]\t"H-00000000000000c1"[1](c1)\t# "Mellanox Technologies Aggregation Node" lid 3 4xHDR'))
    assert (summarise_fabric(got).hcas, summarise_fabric(got).sharp_nodes, summarise_fabric(got).leaves) == (0, 1, 0)


def test_a_router_is_neither_switch_nor_hca_but_part_of_the_fabric() -> None:
    got = read(block('[9]\t"R-00000000000000d1"[1](d1)\t# "router" lid 3 4xHDR'))
    assert (summarise_fabric(got).switches, summarise_fabric(got).hcas, summarise_fabric(got).routers) == (2, 0, 1)
    assert summarise_fabric(got).components == (3,)


def test_a_loop_is_one_cable() -> None:
    loop = ['[{}]\t"S-00000000000000a1"[{}]\t# "edge" lid 1 4xHDR'.format(*ends) for ends in ((20, 21), (21, 20))]
    got = read(block(*loop))
    assert (summarise_fabric(got).isl_cables, summarise_fabric(got).self_loops) == (2, 1)
    assert "loop_cable" in [fault.kind for fault in find_rails(got).faults]


@pytest.mark.parametrize(
    ("description", "node", "device"),
    [
        ("n1 HCA-1", "n1", "HCA-1"),
        ("n1.example.net mlx5_0", "n1.example.net", "mlx5_0"),
        ("n1 ibp12s0f0", "n1", "ibp12s0f0"),
        ("Hca0", "Hca0", None),
        ("localhost mlx5_1", "localhost", "mlx5_1"),
        ("HCA-1", None, "HCA-1"),
        ("MT4129 ConnectX7   Mellanox Technologies", None, None),
        ("MT23108 InfiniHost Mellanox Technologies", None, None),
        ("ConnectX-6 VPI NVIDIA Technologies", None, None),
        ("", None, None),
    ],
)
def test_descriptions_name_host_and_device_or_nothing(description: str, node: str | None, device: str | None) -> None:
    got = read(block(f'[1]\t"H-00000000000000b1"[1](b2)\t# "{description}" lid 9 4xEDR'))
    hca = got.hcas["00000000000000b1"]
    assert (hca.node, hca.device) == (node, device)


def test_a_description_may_hold_quotes() -> None:
    got = read(block('[1]\t"H-00000000000000b1"[1](b2)\t# "n"1" x" HCA-1" lid 9 4xEDR'))
    assert got.hcas["00000000000000b1"].description == 'n"1" x" HCA-1'


def test_ends_that_disagree_on_the_rate_are_reported_and_the_faster_counts() -> None:
    got = read(block().replace('"edge" lid 1 4xHDR', '"edge" lid 1 1xHDR'))
    assert got.cables[0].width == 4
    assert kinds(got) == ["ends_disagree_on_speed"]


def test_a_link_that_one_end_does_not_know_is_reported() -> None:
    got = read(block().replace(UP, ""))
    assert summarise_fabric(got).isl_cables == 1
    assert kinds(got) == ["one_sided_link"]


def test_a_statement_that_the_far_end_contradicts_is_no_cable() -> None:
    text = block('[8]\t"S-00000000000000A2"[5]\t# "core" lid 2 4xHDR')
    got = read(text)
    assert connections(got) == {("00000000000000a1", 7, "00000000000000a2", 5)}
    assert kinds(got) == ["ends_contradict"]


def test_one_guid_with_two_descriptions_is_reported() -> None:
    again = '\nswitchguid=0xa1(a1)\nSwitch\t36 "S-00000000000000a1"\t# "other" base port 0 lid 4 lmc 0\n'
    assert kinds(read(block() + again)) == ["duplicate_guid"]


def test_a_switch_and_an_adapter_of_one_guid_stay_two_things() -> None:
    got = read(block('[1]\t"H-00000000000000a1"[1](b2)\t# "n1 HCA-1" lid 9 4xEDR'))
    assert (summarise_fabric(got).switches, summarise_fabric(got).hcas, summarise_fabric(got).components) == (
        2,
        1,
        (3,),
    )


@pytest.mark.parametrize("rubbish", ["[1]" + " " * 900, '[1]\t"S-1"[1] # "' + '" lid ' * 200, "[1] " + "(" * 900])
def test_lines_made_to_be_slow_are_not(rubbish: str) -> None:
    got = read(render_ibnetdiscover(SMALL) + "\n".join(['Switch\t4 "S-1"\t# "s"', *[rubbish] * 2000]))
    assert "damaged_line" in kinds(got)
    assert connections(got) >= connections(SMALL)


def test_one_endless_line_is_one_damaged_line() -> None:
    assert kinds(read(render_ibnetdiscover(SMALL) + "x" * 10_000_000)) == ["damaged_line"]
