"""What is wrong with the cabling? Each finding says where, on what evidence, and what it costs a job there."""

from __future__ import annotations

from collections.abc import Mapping

from opsk.topology.cabling import Cabling
from opsk.topology.crowding import crowding_faults
from opsk.topology.fabric import Fault
from opsk.topology.host_faults import host_faults
from opsk.topology.islands import find_islands, island_faults
from opsk.topology.leaf import Leaf
from opsk.topology.link_faults import link_faults
from opsk.topology.lost_hcas import with_lost_hcas
from opsk.topology.numbering import Numbering
from opsk.topology.rail_faults import rail_faults
from opsk.topology.uplink_faults import uplink_faults


def cabling_faults(cabling: Cabling, numbering: Numbering, leaves: Mapping[str, Leaf]) -> tuple[Fault, ...]:
    """Return all findings: rails first, then hosts, leaves, links."""
    islands = find_islands(cabling)
    cut_off = {guid for island in islands for guid in island.switches}
    bare = sum(len(island.switches) == 1 and not island.hcas for island in islands)
    short = tuple(uplink_faults(cabling, leaves, cut_off, bare))
    rails = tuple(with_lost_hcas(cabling, rail_faults(cabling, numbering)))
    explained = {guid for fault in short for guid in fault.switches} | cut_off
    strays = {guid for fault in rails if fault.kind == "misplaced_hca" for guid in fault.devices}
    return (
        *rails,
        *host_faults(cabling),
        *short,
        *crowding_faults(cabling, leaves, explained, strays),
        *link_faults(cabling),
        *island_faults(cabling, islands),
    )
