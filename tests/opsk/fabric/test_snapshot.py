"""The canonical form of a fabric: whole, independent of order, and readable again."""

from __future__ import annotations

import dataclasses
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.snapshot import compute_content_hash, read_snapshot, serialise_snapshot

FABRICS = st.builds(
    rail_optimized_fabric,
    nodes=st.integers(1, 6),
    hcas=st.sampled_from([1, 2, 4]),
    leaves=st.sampled_from([4, 8]),
    spines=st.integers(0, 2),
    speed=st.sampled_from(["HDR", "NDR"]),
)
RACK = HbDomain(name="7ac1.0", nodes=("n0", "n1"), kind="multi_node", gpus=8)


def bare(fabric: Fabric) -> Fabric:
    """Leave out what a snapshot does not keep."""
    return dataclasses.replace(fabric, faults=(), source="", generated="", extra={}, port_lids={})


@given(FABRICS)
def test_what_is_kept_is_read_back(fabric: Fabric) -> None:
    content = serialise_snapshot(fabric, [RACK])
    got = read_snapshot(content, source="")
    expected = sorted(fabric.cables, key=lambda cable: (cable.a_guid, cable.a_port, cable.b_guid, cable.b_port))
    assert got.fabric == dataclasses.replace(bare(fabric), cables=tuple(expected))
    assert got.hb_domains == (RACK,)
    assert serialise_snapshot(got.fabric, got.hb_domains) == content


@given(FABRICS, st.randoms(use_true_random=False))
def test_the_order_of_blocks_lids_and_places_do_not_change_the_hash(fabric: Fabric, order: random.Random) -> None:
    blocks = render_ibnetdiscover(fabric).strip().split("\n\n")
    order.shuffle(blocks)
    text = "# Topology file: generated on some other day\n\n" + "\n\n".join(blocks).replace("lid 0", "lid 7")
    again = read_fabric(text, source="elsewhere")
    assert compute_content_hash(serialise_snapshot(again)) == compute_content_hash(serialise_snapshot(fabric))


def test_another_cable_speed_name_or_domain_is_another_hash() -> None:
    fabric = rail_optimized_fabric(nodes=2, hcas=2, leaves=2, spines=1)
    cable, *rest = fabric.cables
    guid, switch = next(iter(fabric.switches.items()))
    others = [
        serialise_snapshot(fabric),
        serialise_snapshot(dataclasses.replace(fabric, cables=tuple(rest))),
        serialise_snapshot(dataclasses.replace(fabric, cables=(dataclasses.replace(cable, speed="EDR"), *rest))),
        serialise_snapshot(
            dataclasses.replace(
                fabric, switches={**fabric.switches, guid: dataclasses.replace(switch, description="other")}
            )
        ),
        serialise_snapshot(fabric, [RACK]),
    ]
    hashes = {compute_content_hash(content) for content in others}
    assert len(hashes) == len(others)
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in hashes)


def test_a_domain_that_is_a_node_by_itself_is_not_kept() -> None:
    fabric = rail_optimized_fabric(nodes=2, hcas=2, leaves=2, spines=1)
    assert serialise_snapshot(fabric, [HbDomain(name="n0", nodes=("n0",))]) == serialise_snapshot(fabric)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"version": 1}',
        b'{"version": 99}',
        b'{"version": 1, "switches": [1]}',
        b"[" * 99_999,
    ],
)
def test_what_is_no_snapshot_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="snapshot"):
        read_snapshot(content, source="row 7")


@given(st.data())
def test_a_damaged_snapshot_is_refused_or_read(data: st.DataObject) -> None:
    document = json.loads(serialise_snapshot(rail_optimized_fabric(nodes=1, hcas=1, leaves=1, spines=1)))
    key = data.draw(st.sampled_from(sorted(document)))
    document[key] = data.draw(
        st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3))
    )
    try:
        read_snapshot(json.dumps(document).encode(), source="row 7")
    except InputError:
        return
