"""Finds rails: which HCAs share one and which leaves carry it, from the cabling by majority, never from an index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from opsk.fabric.allocation import pause_garbage_collector
from opsk.fabric.cabling import Cabling, read_cabling
from opsk.fabric.checks.registry import check_cabling
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.graph import LeafDistances
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.leaves.leaf import Attachment, Leaf
from opsk.fabric.numbering import Numbering, number_rails

__all__ = ["Attachment", "Leaf", "Rails", "find_rails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails:
    """The rails of a fabric: leaves by guid, the HCAs of each node, and what is wrong.

    ``attachments`` maps a node to its HCAs on the compute fabric in device order (the order in which GPUs use them).
    ``leaf_distance`` maps an ordered pair of leaf guids to the number of switch-to-switch cables between them
    (0 for the same leaf, 2 through one spine). ``units`` holds the compute nodes of each scalable unit; ``host_roles``
    is ``compute``, ``storage`` or ``management`` for every host on the fabric; ``tier`` is that of each switch,
    hosts on spines left out of account.
    """

    leaves: Mapping[str, Leaf]
    attachments: Mapping[str, tuple[Attachment, ...]]
    leaf_distance: Mapping[tuple[str, str], int]
    rail_count: int
    faults: tuple[Fault, ...] = ()
    units: tuple[tuple[str, ...], ...] = ()
    host_roles: Mapping[str, str] = field(default_factory=dict)
    tier: Mapping[str, int] = field(default_factory=dict)


@pause_garbage_collector()
def find_rails(fabric: Fabric, *, compute_nodes: Collection[str] | None = None) -> Rails:
    """Find units, rails, leaf roles and faults of the cabling.

    Leaves that share their nodes form a unit. Within it, a leaf carries the rail of the HCA position that most of its
    nodes have there; positions that most nodes have on one common leaf are one rail. Names of leaves play no part.

    Parameters
    ----------
    compute_nodes
        The site's compute nodes, when known; else they are found by cabling and name
        (``opsk.fabric.hosts.hosts``).
    """
    cabling = read_cabling(fabric, compute_nodes)
    numbering = number_rails(cabling)
    leaves = {guid: _build_leaf(cabling, numbering, guid) for guid in sorted(cabling.by_leaf)}
    return Rails(
        leaves=leaves,
        attachments={host.name: _build_attachments(numbering, host) for host in cabling.compute},
        leaf_distance=LeafDistances(cabling.neighbours, leaves),
        rail_count=numbering.rail_count,
        faults=check_cabling(cabling, numbering, leaves),
        units=tuple(unit.nodes for unit in cabling.units),
        host_roles={name: host.role for name, host in cabling.hosts.items()},
        tier=cabling.tier,
    )


def _build_leaf(cabling: Cabling, numbering: Numbering, guid: str) -> Leaf:
    """Return what is known of one leaf."""
    links = cabling.by_leaf[guid]
    hcas = cabling.fabric.hcas
    uplinks = cabling.uplinks(guid)
    carried = numbering.carries.get(guid, ())
    return Leaf(
        guid=guid,
        description=cabling.fabric.switches[guid].description,
        rail=carried[0] if carried else None,
        unit=cabling.unit_of.get(guid),
        nodes=tuple(sorted({node for link in links if (node := hcas[link.hca].node) is not None})),
        hca_links=len(links),
        uplinks=sum(uplinks.values()),
        role=cabling.roles[guid],
        carries=carried,
        down_bytes_per_s=sum(link.cable.bytes_per_s for link in links),
        up_bytes_per_s=cabling.up_bytes_per_s.get(guid, 0.0),
        off_tier=guid in cabling.off_tier,
    )


def _build_attachments(numbering: Numbering, host: Host) -> tuple[Attachment, ...]:
    """Return the ports of a node on the compute fabric, in device order."""
    return tuple(
        Attachment(
            node=host.name,
            device=port.device,
            guid=port.guid,
            leaf=port.switch,
            rail=rail,
            bytes_per_s=port.bytes_per_s,
        )
        for rail, port in zip(numbering.rails_at(host), host.ports, strict=True)
    )
