"""Reading tables of guids: who shares a leaf, and whose guid it is, without any subnet manager's dump."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.guid_tables import add_host_names, is_guid_tree, read_guid_names
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.rails import find_rails

TREE = """SwitchName=sw1 Nodes=0x155dfffd33ff01,0x155dfffd33ff11,0x155dfffd33ff21
SwitchName=sw2 Nodes=0x155dfffd33ff02,0x155dfffd33ff12,0x155dfffd33ff22
SwitchName=sw3 Switches=sw1,sw2
"""
NAMES = "".join(f"vm-{host}: 0x155dfffd33ff{host}{port}\n" for host in range(3) for port in (1, 2))


def test_the_tree_and_the_table_give_nodes_rails_and_a_unit() -> None:
    tree = read_fabric(TREE, source="tree")
    assert (
        summarise_fabric(tree).switches,
        summarise_fabric(tree).hcas,
        summarise_fabric(tree).nodes,
        summarise_fabric(tree).tiers,
    ) == (3, 6, 0, 2)
    names = read_guid_names(NAMES, source="table")
    assert names is not None
    fabric = add_host_names(tree, names)
    assert summarise_fabric(fabric).nodes == 3
    rails = find_rails(fabric)
    assert (rails.rail_count, rails.units) == (2, (("vm-0", "vm-1", "vm-2"),))
    assert [fault.kind for fault in fabric.faults] == ["rates_not_told"]


def test_ports_without_a_device_name_are_in_the_order_of_their_guids() -> None:
    # 0x33 < 0x3a, though "3a" comes before "33" when digits are read as decimal numbers.
    tree = "".join(f"SwitchName=s{port} Nodes=0x1{port:x},0x2{port:x},0x3{port:x}\n" for port in range(3, 11))
    names = read_guid_names("".join(f"vm{h}: 0x{h}{p:x}\n" for h in (1, 2, 3) for p in range(3, 11)), source="table")
    assert names is not None
    rails = find_rails(add_host_names(read_fabric(tree, source="tree"), names))
    for ports in rails.attachments.values():
        assert [port.rail for port in ports] == list(range(8))
        assert [port.guid for port in ports] == sorted(port.guid for port in ports)


def test_leaves_of_many_guids_have_as_many_ports() -> None:
    got = read_fabric("SwitchName=sw1 Nodes=" + ",".join(f"0x{guid:x}" for guid in range(1, 400)), source="tree")
    assert len(got.cables) == 399


def test_a_guid_on_no_switch_and_one_of_two_hosts_are_findings() -> None:
    names = read_guid_names(NAMES + "vm-9: 0x155dfffd33ff99\nvm-8: 0x155dfffd33ff01\n", source="table")
    assert names is not None
    fabric = add_host_names(read_fabric(TREE, source="tree"), names)
    assert [fault.kind for fault in fabric.faults][1:] == ["duplicate_guid", "guid_not_in_fabric"]
    assert fabric.faults[-1].nodes == ("vm-9",)


def test_names_of_the_dump_itself_are_kept() -> None:
    dump = (
        'Switch\t4 "S-00000000000000a1"\t# "leaf" base port 0 lid 1 lmc 0\n'
        '[1]\t"H-0000000000000001"[1](1)\t# "n0 mlx5_0" lid 2 4xHDR\n'
        '[2]\t"H-0000000000000002"[1](2)\t# "" lid 3 4xHDR\n'
    )
    names = read_guid_names("vm-0: 0x1\nvm-1: 0x2\n", source="table")
    assert names is not None
    hcas = add_host_names(read_fabric(dump, source="dump"), names).hcas
    assert [hca.node for hca in hcas.values()] == ["n0", "vm-1"]


@pytest.mark.parametrize("line", ["vm-1 0x1", "vm-1,0x1", "vm-1\t0x0001", "vm-1: 0x1,0x2", "vm.a.net : 0x1"])
def test_tables_come_with_any_separator(line: str) -> None:
    names = read_guid_names(line + "\n", source="table")
    assert names is not None
    assert names.hosts["0000000000000001"] in ("vm-1", "vm.a.net")


@pytest.mark.parametrize("text", ["", "hello\n", TREE, "0x0002 007 : (Switch portguid 0x1: 'x')\n" * 3])
def test_what_is_no_table_is_none(text: str) -> None:
    assert read_guid_names(text, source="x") is None


def test_a_topology_conf_of_hosts_is_no_tree_of_guids() -> None:
    assert not is_guid_tree("SwitchName=s1 Nodes=n[0-3]\nSwitchName=s2 Switches=s1\n")
    with pytest.raises(InputError):
        read_fabric("SwitchName=s1 Nodes=n[0-3]\n", source="topology.conf")


@given(st.integers(0, len(TREE)), st.text(alphabet="SwitchName=0xfd, \n", max_size=60))
def test_damage_gives_what_is_sound(length: int, rubbish: str) -> None:
    try:
        got = read_fabric(TREE[:length] + rubbish, source="tree")
    except InputError:
        return
    assert got.switches
