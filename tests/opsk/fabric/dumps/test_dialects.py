"""One fabric in every dialect is one fabric; cut, mixed up and scribbled over, it is read as far as it is sound."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import merge_fabrics, read_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover, render_ibsim_net
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.rails import find_rails
from tests.fakes.dump_writers import as_iblinkinfo, as_lst, as_ports_report
from tests.fakes.forwarding import with_lids

Writer = Callable[[Fabric], str]

WRITERS: dict[str, Writer] = {
    "ibnetdiscover": render_ibnetdiscover,
    "ports report": as_ports_report,
    "iblinkinfo": partial(as_iblinkinfo, lines=False),
    "iblinkinfo -l": partial(as_iblinkinfo, lines=True),
    "ibdiagnet2.lst": as_lst,
    "ibsim": render_ibsim_net,
}
SHAPES = st.builds(
    rail_optimized_fabric,
    nodes=st.integers(2, 8),
    hcas=st.sampled_from([2, 4]),
    leaves=st.sampled_from([2, 4]),
    spines=st.integers(1, 3),
    cables_per_pair=st.integers(1, 2),
    speed=st.sampled_from(["SDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR"]),
).map(with_lids)
SMALL = with_lids(rail_optimized_fabric(nodes=3, hcas=2, leaves=2, spines=2, speed="HDR"))


def cables(fabric: Fabric) -> set[Cable]:
    return {dataclasses.replace(cable, line=0) for cable in fabric.cables}


def ends(fabric: Fabric) -> set[tuple[str, int, str, int]]:
    return {(cable.a_guid, cable.a_port, cable.b_guid, cable.b_port) for cable in fabric.cables}


@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "ibsim"])
@given(fabric=SHAPES)
def test_what_a_program_prints_is_the_fabric(writer: str, fabric: Fabric) -> None:
    got = read_fabric(WRITERS[writer](fabric), source="dump")
    assert cables(got) == cables(fabric)
    assert got.faults == ()
    assert got.port_lids == fabric.port_lids
    assert {guid: hca.description for guid, hca in got.hcas.items()} == {
        guid: hca.description for guid, hca in fabric.hcas.items()
    }
    assert {switch.description for switch in got.switches.values()} == {s.description for s in fabric.switches.values()}
    assert summarise_fabric(got) == summarise_fabric(fabric)


@pytest.mark.parametrize("writer", list(WRITERS))
@given(length=st.integers(0, 6000))
def test_a_dump_that_was_cut_invents_nothing(writer: str, length: int) -> None:
    text = WRITERS[writer](SMALL)
    assume(length < len(text))
    try:
        got = read_fabric(text[:length], source="dump")
    except InputError:
        return
    if writer == "iblinkinfo":  # a far end that was cut off is known by its LID only
        assert len(got.cables) <= len(SMALL.cables)
    else:  # the last line may have lost the end of a number: at most one cable is not what it was
        assert len(ends(got) - ends(SMALL)) <= 1
    find_rails(got)


@settings(suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize("writer", list(WRITERS))
@given(seed=st.integers(0, 2**32), strokes=st.integers(1, 60))
def test_a_dump_that_was_scribbled_over_is_read_or_refused(writer: str, seed: int, strokes: int) -> None:
    dice = random.Random(seed)
    text = list(WRITERS[writer](SMALL))
    for _ in range(strokes):
        at = dice.randrange(len(text))
        match dice.randrange(4):
            case 0:
                text[at] = chr(dice.choice([0, 9, 10, 34, 39, 45, 48, 57, 91, 93, 123, 125, 255, 0x202E, 0xFFFD]))
            case 1:
                del text[at : at + dice.randrange(1, 40)]
            case 2:
                text[at:at] = text[at : at + dice.randrange(1, 200)]
            case _:
                text[at:at] = dice.choices("0123456789abcdefx[](){}\"'#:= \n", k=dice.randrange(1, 20))
        if not text:
            return
    try:
        got = read_fabric("".join(text), source="dump")
    except InputError as error:
        assert error.message.startswith("dump")  # noqa: PT017
        return
    known = {*got.switches, *got.hcas, *got.routers}
    assert {guid for cable in got.cables for guid in (cable.a_guid, cable.b_guid)} <= known
    assert sum(summarise_fabric(got).components) == len(known)
    assert find_rails(got).leaves.keys() <= got.switches.keys()


@given(order=st.randoms(use_true_random=False), fabric=SHAPES)
def test_the_order_of_lines_does_not_matter_where_each_line_stands_alone(order: random.Random, fabric: Fabric) -> None:
    for writer in ("ports report", "iblinkinfo -l", "ibdiagnet2.lst"):
        lines = WRITERS[writer](fabric).splitlines()
        order.shuffle(lines)
        assert cables(read_fabric("\n".join(lines), source="dump")) == cables(fabric)


@given(fabric=SHAPES)
def test_halves_of_a_dump_make_the_whole(fabric: Fabric) -> None:
    blocks = render_ibnetdiscover(fabric).strip().split("\n\n")
    half = len(blocks) // 2
    parts = [read_fabric("\n\n".join(part), source="half") for part in (blocks[:half], blocks[half:])]
    whole = merge_fabrics(parts)
    assert cables(whole) == cables(fabric)
    assert whole.port_lids == fabric.port_lids


@pytest.mark.parametrize("speed", ["NDR", "XDR", "???"])
def test_ids_in_any_case_and_indented_lines_are_one_fabric(speed: str) -> None:
    text = render_ibnetdiscover(SMALL).replace("HDR", speed)
    upper = "\n".join(f"  {line}" for line in text.split("\n"))
    for number in range(3):
        guid = list(SMALL.hcas)[number]
        upper = upper.replace(f'"H-{guid}"', f'"H-{guid.upper()}"', 1)
    got = read_fabric(upper, source="dump")
    assert ends(got) == ends(SMALL)
    assert [fault.kind for fault in got.faults] == (["unknown_speed"] if speed == "???" else [])
