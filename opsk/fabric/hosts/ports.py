"""Orders the HCAs of a host, and makes the positions of HCAs comparable between hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """One cabled HCA port of a host; ``slot`` orders the ports of one host and compares between hosts."""

    device: str
    slot: tuple[int, ...]
    guid: str
    switch: str
    width: int
    speed: str
    bytes_per_s: float


Place = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]
"""Slot and natural sort key of a device name; hosts of one kind share their device names."""


@lru_cache(maxsize=1 << 16)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key in which ``n2`` comes before ``n10``."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part)


def mask_numbers(name: str) -> str:
    """Return the name with each number replaced by ``#``: hosts of one kind share it."""
    return re.sub(r"\d+", "#", name)


def device_slot(device: str) -> tuple[int, ...]:
    """Return the place of a device in its host, comparable between hosts.

    ``HCA-1`` and ``mlx5_0`` are the same place: the one counts from 1, the other from 0. Other names (``ibp12s0f0``)
    are placed by their numbers.
    """
    if match := re.fullmatch(r"HCA-?(\d{1,6})", device, re.IGNORECASE):
        return (int(match[1]) - 1,)
    if match := re.match(r"[A-Za-z]+\d*_(\d{1,6})\b", device):
        return (int(match[1]),)
    return tuple(int(number) for number in re.findall(r"\d{1,9}", device))


def sort_ports(fabric: Fabric, links: Sequence[HcaLink], places: dict[str, Place]) -> tuple[HostPort, ...]:
    """Return the ports in device order; a second cabled port of one HCA is ``mlx5_0:2``, as NCCL writes it.

    Parameters
    ----------
    places
        What is known of device names so far; those of this host are added.
    """
    hcas = [link.hca for link in links]
    twice = len(set(hcas)) < len(hcas)
    ports = []
    for link in links:
        name = fabric.hcas[link.hca].device or ""
        several = twice and hcas.count(link.hca) > 1
        if name not in places:
            places[name] = device_slot(name), natural_key(name)
        slot = places[name][0]
        ports.append(
            HostPort(
                device=f"{name or link.hca}:{link.hca_port}" if several and link.hca_port > 1 else name or link.hca,
                slot=(*slot, link.hca_port) if several else slot,
                guid=link.hca,
                switch=link.switch,
                width=link.cable.width,
                speed=link.cable.speed,
                bytes_per_s=link.cable.bytes_per_s,
            )
        )
    return tuple(sorted(ports, key=lambda port: (port.slot, _device_key(port, places), port.guid)))


def _device_key(port: HostPort, places: Mapping[str, Place]) -> tuple[tuple[int, int, str], ...]:
    """Return the natural order of a device name; a guid in its place is no name, and orders as a number."""
    if port.device == port.guid:
        return ()
    return places[port.device][1] if port.device in places else natural_key(port.device)
