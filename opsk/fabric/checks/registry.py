"""Runs all checks of the cabling; each finding states the place, the evidence and the cost for a job there."""

from __future__ import annotations

from collections.abc import Mapping

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.hosts import check_hosts, check_islands, find_islands
from opsk.fabric.checks.links import check_links
from opsk.fabric.checks.oversubscription import check_oversubscription
from opsk.fabric.checks.rails import check_rails, name_lost_hcas
from opsk.fabric.checks.uplinks import check_uplinks
from opsk.fabric.fabric import Fault
from opsk.fabric.leaves.leaf import Leaf
from opsk.fabric.numbering import Numbering


def check_cabling(cabling: Cabling, numbering: Numbering, leaves: Mapping[str, Leaf]) -> tuple[Fault, ...]:
    """Return all findings: rails first, then hosts, leaves, links."""
    islands = find_islands(cabling)
    cut_off = {guid for island in islands for guid in island.switches}
    bare = sum(len(island.switches) == 1 and not island.hcas for island in islands)
    short = tuple(check_uplinks(cabling, leaves, cut_off, bare))
    rails = tuple(name_lost_hcas(cabling, check_rails(cabling, numbering)))
    explained = {guid for fault in short for guid in fault.switches} | cut_off
    strays = {guid for fault in rails if fault.kind == "misplaced_hca" for guid in fault.devices}
    return (
        *rails,
        *check_hosts(cabling),
        *short,
        *check_oversubscription(cabling, leaves, explained, strays),
        *check_links(cabling),
        *check_islands(cabling, islands),
    )
