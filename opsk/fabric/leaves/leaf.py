"""Defines a leaf, and an HCA that is cabled to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A switch with HCAs: its ``rail`` (index from 0, ``None`` when its HCAs follow no rail) and ``unit``.

    ``unit`` is the index of the scalable unit: the group of nodes that share one leaf a rail. ``carries`` holds all
    rails that the leaf serves, more than one where several HCAs of a node share it. ``off_tier`` marks a spine or
    director chip that is a leaf only because it has a host or two; its cables to leaves are no uplinks.
    """

    guid: str
    description: str
    rail: int | None
    unit: int | None
    nodes: tuple[str, ...]
    hca_links: int
    uplinks: int
    role: str = "compute"
    carries: tuple[int, ...] = ()
    down_bytes_per_s: float = 0.0
    up_bytes_per_s: float = 0.0
    off_tier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One HCA of a node: ``device``, its ``guid``, the ``leaf`` guid it is cabled to, the ``rail`` of that leaf."""

    node: str
    device: str
    guid: str
    leaf: str
    rail: int | None
    bytes_per_s: float
