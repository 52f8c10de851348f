"""Parses PCI addresses and classes, and computes how near two devices of a PCI tree are."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass

from opsk.fabric.node.node_topology import PathClass

_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?")

_GPU_CLASSES = ("0300", "0302", "0380", "1200")
"""VGA and 3D controllers, other displays (AMD's GPUs of older firmware), processing accelerators (AMD's newer)."""

_GPU_VENDORS = frozenset({"10de", "1002"})
"""NVIDIA and AMD; a VGA controller of anyone else (a BMC's, a virtual machine's) computes nothing."""

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
_LINK_LAYERS = {"0207": INFINIBAND, "0c06": INFINIBAND, "0200": ETHERNET}
"""0c06 is what adapters called themselves before there was a class for InfiniBand controllers."""


def parse_bus_id(text: str | None) -> str | None:
    """Return a PCI address as ``0000:18:00.0``, whatever its domain's width; ``None`` when it is none."""
    match = _BUS_ID.fullmatch((text or "").strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or 0}"


def parse_class(text: str | None) -> str:
    """Return the four hex digits of class and subclass of ``0x030200`` or ``0302``; empty when it is none."""
    match = re.match(r"\s*(?:0x)?([0-9a-fA-F]{4})", text or "")
    return match[1].lower() if match else ""


def is_gpu(pci_class: str, vendor: str | None = None) -> bool:
    """Return whether a class, and the vendor's four digits where they are known, are a GPU's."""
    known = (vendor or "").lower().removeprefix("0x")
    return pci_class in _GPU_CLASSES and (not known or known in _GPU_VENDORS)


def is_nic(pci_class: str) -> bool:
    """Return whether a class is a network controller's."""
    return pci_class.startswith("02") or pci_class == "0c06"


def get_link_layer(pci_class: str) -> str | None:
    """Return the link layer of a network controller's class."""
    return _LINK_LAYERS.get(pci_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class PciPlace:
    """The position of a device: NUMA node, host bridge, and the PCI bridges down to it; ``None`` = unknown."""

    numa: Hashable | None = None
    host_bridge: Hashable | None = None
    bridges: tuple[Hashable, ...] = ()


def path_class(first: PciPlace, second: PciPlace, *, ports: bool) -> PathClass:
    """Return how two devices of one PCI tree reach each other.

    Parameters
    ----------
    ports
        Whether each bridge of the tree is one port of a switch (lstopo, sysfs), or a whole switch (NCCL, which lists
        the upstream port only).
    """
    common = 0
    for mine, other in zip(first.bridges, second.bridges, strict=False):
        if mine != other:
            break
        common += 1
    if common:
        below = (len(first.bridges) - common, len(second.bridges) - common)
        single_switch = max(below) <= 1 if ports else sum(below) == 0
        return PathClass.PIX if single_switch else PathClass.PXB
    if first.host_bridge is not None and first.host_bridge == second.host_bridge:
        return PathClass.PHB
    if first.numa is not None and first.numa == second.numa:
        return PathClass.NODE
    return PathClass.SYS
