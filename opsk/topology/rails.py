"""Which HCAs share a rail, and which leaves carry it? Found from the cabling by majority, never from an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsk.topology.fabric import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A switch with HCAs: its ``rail`` (index from 0, ``None`` when its HCAs follow no rail) and ``unit``.

    ``unit`` is the index of the scalable unit: the group of nodes that share one leaf a rail.
    """

    guid: str
    description: str
    rail: int | None
    unit: int | None
    nodes: tuple[str, ...]
    hca_links: int
    uplinks: int
    role: str = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One HCA of a node: ``device``, its ``guid``, the ``leaf`` guid it is cabled to, the ``rail`` of that leaf."""

    node: str
    device: str
    guid: str
    leaf: str
    rail: int | None
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails:
    """What the cabling says: leaves by guid, the HCAs of each node, and what is wrong.

    ``attachments`` maps a node to its HCAs on the compute fabric in device order (the order in which GPUs use them).
    ``leaf_distance`` maps an ordered pair of leaf guids to the number of switch-to-switch cables between them
    (0 for the same leaf, 2 through one spine).
    """

    leaves: Mapping[str, Leaf]
    attachments: Mapping[str, tuple[Attachment, ...]]
    leaf_distance: Mapping[tuple[str, str], int]
    rail_count: int
    faults: tuple[Fault, ...] = ()
