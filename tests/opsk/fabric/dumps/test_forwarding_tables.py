"""Reading forwarding tables: three dialects of one thing, damage, several switches, multicast left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.forwarding_tables import is_forwarding_dump, merge_tables, read_forwarding_tables
from opsk.fabric.forwarding import ForwardingTables
from tests.fakes.forwarding import Tables, as_dump_fts, as_fdbs, shortest_paths, with_lids

FABRIC = with_lids(rail_optimized_fabric(nodes=4, hcas=2, leaves=4, spines=2))
TABLES = shortest_paths(FABRIC)
DUMP = as_dump_fts(FABRIC, TABLES)


def read(text: str) -> ForwardingTables:
    return read_forwarding_tables(text, source="dump")


def entries(tables: ForwardingTables) -> Tables:
    lids = range(tables.out_ports.shape[1])
    return {
        guid: {lid: port for lid in lids if (port := tables.out_port(guid, lid)) is not None} for guid in tables.rows
    }


@pytest.mark.parametrize(
    "text",
    [
        DUMP,
        as_dump_fts(FABRIC, TABLES, owners=False),
        DUMP.replace("\n", "\r\n"),
        "ibwarn: [7] sim_connect: attached as client 0\n" + DUMP,
        DUMP.replace(" : (Channel", " # (Channel").replace("of switch Lid", "of switch DR path slid 0; dlid 0; 0,1"),
        as_fdbs(TABLES, max(FABRIC.port_lids.values())),
        as_fdbs(TABLES, max(FABRIC.port_lids.values())).replace("LID    :", "PLFT_NUM: 0\nLID    :"),
    ],
)
def test_every_dialect_gives_the_tables_that_were_written(text: str) -> None:
    got = read(text)
    assert entries(got) == TABLES
    assert got.faults == ()
    assert is_forwarding_dump(text)


def test_private_tables_of_adaptive_routing_do_not_count() -> None:
    text = (
        "dump_ucast_routes: Switch 0xa1\nPLFT_NUM: 0\n0x0001 : 003  : 00 : yes\nPLFT_NUM: 1\n0x0001 : 009 : 00 : yes\n"
    )
    assert entries(read(text)) == {"00000000000000a1": {1: 3}}


def test_owners_are_told_with_kind_and_port_guid() -> None:
    owner = read(DUMP).owners[min(FABRIC.port_lids.values())]
    assert (owner.kind, owner.port_guid, owner.description) == ("adapter", min(FABRIC.hcas), "n0 mlx5_0")


def test_a_port_of_255_is_no_path_and_a_lid_not_in_the_table_neither() -> None:
    got = read(
        "Unicast lids [0x0-0x9] of switch Lid 1 guid 0xa1 (s):\n0x0002 255 : (illegal port)\n0x0003 007 : (Sw)\n"
    )
    assert [got.out_port("00000000000000a1", lid) for lid in (2, 3, 4, 99_999, -1)] == [None, 7, None, None, None]
    assert got.out_port("unheard of", 3) is None


def test_a_dump_that_was_cut_says_what_is_missing() -> None:
    header = "Unicast lids [0x0-0x9] of switch Lid 1 guid 0xa1 (s):\n"
    got = read(header + "0x0002 001 : (x)\n0x0003 00\n0xzz\n7 valid lids dumped\n")
    assert entries(got) == {"00000000000000a1": {2: 1, 3: 0}}
    assert [fault.kind for fault in got.faults] == ["damaged_table", "damaged_table"]


def test_a_switch_that_is_dumped_twice_counts_as_the_last_time() -> None:
    got = read(DUMP + DUMP.split("Unicast lids")[1].join(("Unicast lids", "")))
    assert entries(got) == TABLES
    assert [fault.kind for fault in got.faults] == ["table_twice"]


def test_dumps_of_single_switches_make_one() -> None:
    parts = [read("Unicast lids" + part) for part in DUMP.split("Unicast lids")[1:]]
    assert len(parts) == 6
    assert entries(merge_tables(parts)) == TABLES


@pytest.mark.parametrize("text", ["", "hello\n", "Multicast mlids [0xc000-0xc3ff] of switch Lid 1:\n0xc000 x\n"])
def test_what_holds_no_table_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no forwarding table"):
        read(text)


@given(st.integers(0, len(DUMP)))
def test_any_cut_gives_a_part_of_the_tables(length: int) -> None:
    try:
        got = entries(read(DUMP[:length]))
    except InputError:
        return
    last = list(got)[-1]
    for guid, table in got.items():
        for lid, port in table.items():
            # The very last line may have lost digits of its port, "0x0007 01" of "0x0007 012".
            assert port == TABLES[guid][lid] or (guid == last and lid == max(table))


@given(st.text(alphabet="0x123456789abf :[]()'#\nUnicastldsofwhLg", max_size=200))
def test_text_made_of_the_signs_of_the_format_is_read(text: str) -> None:
    assert set(read(DUMP + text).rows) >= set(TABLES)
