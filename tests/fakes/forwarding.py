"""Forwarding tables that a subnet manager might set: shortest paths, spread over the cables by LID."""

from __future__ import annotations

from dataclasses import replace

from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import far_end
from opsk.fabric.graph import build_switch_neighbours, compute_tiers

Tables = dict[str, dict[int, int]]


def with_lids(fabric: Fabric) -> Fabric:
    """Return a designed fabric with LIDs on every switch and HCA port."""
    lids = {guid: index for index, guid in enumerate(fabric.switches, 1)}
    ends = [(cable.a_guid, cable.a_port) for cable in fabric.cables]
    ends += [(cable.b_guid, cable.b_port) for cable in fabric.cables]
    adapters = sorted(end for end in ends if end[0] in fabric.hcas)
    return replace(
        fabric,
        switches={guid: replace(switch, lid=lids[guid]) for guid, switch in fabric.switches.items()},
        port_lids={end: index for index, end in enumerate(adapters, len(lids) + 1)},
    )


def shortest_paths(fabric: Fabric) -> Tables:
    """Return a table for each switch: LID to out port."""
    tables: Tables = {guid: {} for guid in fabric.switches}
    ports: dict[str, list[tuple[int, str]]] = {guid: [] for guid in fabric.switches}
    home: dict[tuple[str, int], tuple[str, int]] = {}
    for cable in fabric.cables:
        for own in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)):
            far = far_end(cable, own)
            if own[0] in fabric.switches and far[0] in fabric.switches:
                ports[own[0]].append((own[1], far[0]))
            elif own[0] in fabric.switches:
                home[far] = own
    neighbours = build_switch_neighbours(fabric)
    for end, lid in fabric.port_lids.items():
        leaf, leaf_port = home[end]
        distance = compute_tiers(neighbours, (leaf,))
        for guid in fabric.switches:
            if guid == leaf:
                tables[guid][lid] = leaf_port
            elif guid in distance:
                nearer = sorted(port for port, far in ports[guid] if distance.get(far) == distance[guid] - 1)
                tables[guid][lid] = nearer[lid % len(nearer)]
    return tables


def as_dump_fts(fabric: Fabric, tables: Tables, *, owners: bool = True) -> str:
    """Return tables as ``dump_fts`` prints them, with a multicast table of each switch between."""
    guid_of = {lid: end for end, lid in fabric.port_lids.items()}
    lines = []
    for guid, table in tables.items():
        switch = fabric.switches[guid]
        top = max(table, default=0)
        lines += [f"Unicast lids [0x0-0x{top:x}] of switch Lid {switch.lid} guid 0x{guid} ({switch.description}):"]
        lines += ["  Lid  Out   Destination", "       Port     Info "]
        for lid, port in sorted(table.items()):
            hca = fabric.hcas[guid_of[lid][0]]
            owner = f": (Channel Adapter portguid 0x{hca.guid}: '{hca.description}')" if owners else ""
            lines.append(f"0x{lid:04x} {port:03d} {owner}")
        lines += [f"{len(table)} valid lids dumped ", f"Multicast mlids [0xc000-0xc3ff] of switch Lid {switch.lid}:"]
        lines += ["            0       ", "     Ports: 0 1 2 ", " MLid", "0xc000      x   x ", "1 valid mlids dumped "]
    return "\n".join(lines) + "\n"


def as_fdbs(tables: Tables, top: int) -> str:
    """Return tables as opensm and ibdiagnet write them to ``*.fdbs``."""
    lines = []
    for guid, table in tables.items():
        lines += [f"osm_ucast_mgr_dump_ucast_routes: Switch 0x{guid}", "LID    : Port : Hops : Optimal"]
        for lid in range(1, top + 1):
            said = f"{table[lid]:03d}  : 00   : yes" if lid in table else "UNREACHABLE"
            lines.append(f"0x{lid:04X} : {said}")
        lines.append("")
    return "\n".join(lines)
