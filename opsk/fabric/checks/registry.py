"""What is wrong with the cabling? Each finding says where, on what evidence, and what it costs a job there."""

from __future__ import annotations

from collections.abc import Mapping

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.hosts import host_faults
from opsk.fabric.checks.islands import find_islands, island_faults
from opsk.fabric.checks.links import link_faults
from opsk.fabric.checks.lost_hcas import with_lost_hcas
from opsk.fabric.checks.oversubscription import crowding_faults
from opsk.fabric.checks.rails import rail_faults
from opsk.fabric.checks.uplinks import uplink_faults
from opsk.fabric.fabric import Fault
from opsk.fabric.leaves.leaf import Leaf
from opsk.fabric.numbering import Numbering


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
