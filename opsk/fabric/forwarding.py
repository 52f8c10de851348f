"""Defines the linear forwarding tables of switches, and follows them from port to port.

A table has one byte per switch and LID: there are 49,151 unicast LIDs in a subnet, so 5,000 switches take at most
246 MB, and the tables of 1,024 nodes of 8 HCAs under 400 switches take 3.5 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from opsk.fabric.fabric import Cable, Fabric, Fault

NO_PATH = 255
"""The port of a LID without a path (IBA 14.2.5.6)."""


@dataclass(frozen=True, slots=True)
class LidOwner:
    """The port that a LID belongs to: ``kind`` is ``switch``, ``adapter`` or ``router``; guid as ``Fabric`` has it."""

    kind: str
    port_guid: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardingTables:
    """The tables of the switches that a dump holds.

    ``rows`` maps a switch's guid to its row in ``out_ports``, which has a column a LID and holds ``NO_PATH`` where the
    table leads nowhere or the dump is silent. ``owners`` holds the owners of LIDs that the dump names.
    """

    rows: Mapping[str, int]
    out_ports: npt.NDArray[np.uint8]
    owners: Mapping[int, LidOwner] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    source: str = ""

    def out_port(self, switch_guid: str, lid: int) -> int | None:
        """Return the port that a switch sends packets for ``lid`` out of; 0 is the switch itself, ``None`` no path."""
        row = self.rows.get(switch_guid)
        if row is None or not 0 <= lid < self.out_ports.shape[1]:
            return None
        port = int(self.out_ports[row, lid])
        return None if port == NO_PATH else port


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NextHops:
    """Forwarding tables with the cables of a fabric: ``cable_at`` by port, ``lids`` of each adapter by port."""

    tables: ForwardingTables
    cable_at: Mapping[tuple[str, int], Cable]
    lids: Mapping[tuple[str, int], int]
    switches: frozenset[str]

    def cable(self, switch_guid: str, hca_guid: str, port: int | None = None) -> Cable | None:
        """Return the cable on which a switch sends packets for an HCA; ``None`` when it has no way, or no cable."""
        lid = self.lid(hca_guid, port)
        out = self.tables.out_port(switch_guid, lid) if lid is not None else None
        return self.cable_at.get((switch_guid, out)) if out else None

    def lid(self, hca_guid: str, port: int | None = None) -> int | None:
        """Return the LID of an HCA's port, of its first with a LID when none is named."""
        if port is not None:
            return self.lids.get((hca_guid, port))
        return next((self.lids[hca_guid, number] for number in (1, 2) if (hca_guid, number) in self.lids), None)

    def path(self, source: tuple[str, int], destination: tuple[str, int]) -> tuple[Cable, ...] | None:
        """Return the cables from one HCA port to another; ``None`` when the tables do not lead there.

        Parameters
        ----------
        source, destination
            Guid and port of each.
        """
        lid = self.lids.get(destination)
        cable = self.cable_at.get(source)
        if lid is None or cable is None:
            return None
        cables = [cable]
        guid, _ = far_end(cable, source)
        while guid in self.switches:
            out = self.tables.out_port(guid, lid)
            cable = self.cable_at.get((guid, out)) if out else None
            if cable is None or out is None or len(cables) > len(self.switches):
                return None
            cables.append(cable)
            guid, port = far_end(cable, (guid, out))
            if (guid, port) == destination:
                return tuple(cables)
        return tuple(cables) if source == destination else None


def resolve_next_hops(tables: ForwardingTables, fabric: Fabric) -> NextHops:
    """Return which cable each switch takes to each HCA; LIDs as the fabric's dump has them, else as the tables do."""
    cable_at: dict[tuple[str, int], Cable] = {}
    for cable in fabric.cables:
        cable_at[cable.a_guid, cable.a_port] = cable
        cable_at[cable.b_guid, cable.b_port] = cable
    return NextHops(
        tables=tables,
        cable_at=cable_at,
        lids=fabric.port_lids or _find_lids(tables, fabric, cable_at),
        switches=frozenset(fabric.switches),
    )


def far_end(cable: Cable, near: tuple[str, int]) -> tuple[str, int]:
    """Return the other end of a cable."""
    if (cable.a_guid, cable.a_port) == near:
        return cable.b_guid, cable.b_port
    return cable.a_guid, cable.a_port


def _find_lids(
    tables: ForwardingTables, fabric: Fabric, cable_at: Mapping[tuple[str, int], Cable]
) -> dict[tuple[str, int], int]:
    """Return LIDs by the port guids of the tables.

    A port's guid is its adapter's, or the adapter's plus the port number, as adapters have it from the factory.
    """
    lids = {}
    for lid, owner in tables.owners.items():
        if owner.kind == "switch":
            continue
        guid = int(owner.port_guid, 16)
        candidates = [(owner.port_guid, port) for port in (1, 2)]
        candidates += [(f"{guid - port:016x}", port) for port in (1, 2) if guid > port]
        for end in candidates:
            if end in cable_at and end[0] in fabric.hcas and end not in lids:
                lids[end] = lid
                break
    return lids
