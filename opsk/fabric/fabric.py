"""Defines the InfiniBand fabric as a graph of switches, HCAs and cables, as read from a dump."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch: ``guid`` without prefix, in lower case; ``ports`` as the dump states it; ``line`` of the dump."""

    guid: str
    description: str
    ports: int
    lid: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """A channel adapter.

    ``node`` is the host part of the description and ``device`` the rest (``HCA-1``, ``mlx5_0``); both ``None`` when
    the description is the factory's. ``sharp`` marks the Aggregation Node inside a switch, which is no HCA.
    """

    guid: str
    description: str
    node: str | None
    device: str | None
    sharp: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable between two ports, ends in a fixed order; ``bytes_per_s`` is the data rate of width x speed, one way."""

    a_guid: str
    a_port: int
    b_guid: str
    b_port: int
    width: int
    speed: str
    bytes_per_s: float
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something wrong with the fabric or its dump.

    ``kind`` is a short fixed word (``damaged_line``, ``swapped_hcas``, ...), ``where`` names node, switch, port or
    file:line, ``evidence`` the facts it was concluded from, ``cost`` what it costs, in words; empty when not known.
    The same for programs: ``nodes`` by name, ``switches`` and ``devices`` (HCAs) by guid, ``cables`` as the two ends
    (guid, port, guid, port) in the order of ``Cable``; what a fault does not concern is empty.
    """

    kind: str
    where: str
    evidence: str
    cost: str = ""
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    cables: tuple[tuple[str, int, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A subnet as cabled; guids are keys, ``cables`` holds each cable once, those to SHARP nodes and loops too.

    ``routers`` are InfiniBand routers (``Rt``): ends of cables, but no channel adapters. ``port_lids`` holds the LID of
    each adapter port, by guid and port, that the dump reports; a switch has one LID of its own.
    """

    switches: Mapping[str, Switch]
    hcas: Mapping[str, Hca]
    cables: tuple[Cable, ...]
    faults: tuple[Fault, ...] = ()
    source: str = ""
    generated: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    routers: Mapping[str, Hca] = field(default_factory=dict)
    port_lids: Mapping[tuple[str, int], int] = field(default_factory=dict)
