"""Edits a fabric for a repair: removes and adds cables, adds HCAs and switches, and returns the edited fabric."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.links import cable_ends
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.link_speed import link_bytes_per_s
from opsk.fabric.numbering import Numbering, number_rails

_MADE = 0xFFFE_0000_0000_0000
"""Guids of what a repair adds start here."""

End = tuple[str, int]
"""A guid and a port."""


class FabricEditor:
    """A fabric under repair: its cables as a list, free ports, and its cabling as it was."""

    def __init__(self, fabric: Fabric, cabling: Cabling) -> None:
        self.fabric = fabric
        self.switches = dict(fabric.switches)
        self.hcas = dict(fabric.hcas)
        self.cables = list(fabric.cables)
        self.cabling = cabling
        self._used: defaultdict[str, set[int]] = defaultdict(set)
        for cable in fabric.cables:
            self._used[cable.a_guid].add(cable.a_port)
            self._used[cable.b_guid].add(cable.b_port)

    def build_fabric(self) -> Fabric:
        """Return the fabric as it now is."""
        return dataclasses.replace(self.fabric, switches=self.switches, hcas=self.hcas, cables=tuple(self.cables))

    def remove_cables(self, requested: Iterable[tuple[str, int, str, int]]) -> list[Cable]:
        """Remove cables by their ends and return them, in the order requested."""
        keys = list(requested)
        matching = {cable_ends(cable): cable for cable in self.cables if cable_ends(cable) in set(keys)}
        self.cables = [cable for cable in self.cables if cable_ends(cable) not in matching]
        return [matching[key] for key in keys if key in matching]

    def take_free_port(self, guid: str) -> int:
        """Return the first free port of a switch or HCA, and take it."""
        port = next(port for port in range(1, len(self._used[guid]) + 2) if port not in self._used[guid])
        self._used[guid].add(port)
        return port

    def add_cable(self, first: End, second: End, width: int, speed: str) -> None:
        """Add a cable between two ports."""
        low, high = sorted((first, second))
        self.cables.append(
            Cable(
                a_guid=low[0],
                a_port=low[1],
                b_guid=high[0],
                b_port=high[1],
                width=width,
                speed=speed,
                bytes_per_s=link_bytes_per_s(width, speed),
            )
        )

    def add_cable_between(self, first: str, second: str, rate: tuple[int, str]) -> None:
        """Add a cable between free ports."""
        self.add_cable((first, self.take_free_port(first)), (second, self.take_free_port(second)), *rate)

    def create_guid(self) -> str:
        """Return a guid that nothing has yet."""
        value = _MADE
        while f"{value:016x}" in self.hcas or f"{value:016x}" in self.switches:
            value += 1
        return f"{value:016x}"

    def numbering(self) -> Numbering:
        """Return the rails of the fabric as it was."""
        return number_rails(self.cabling)

    def find_usual_rate(self, cables: Iterable[Cable]) -> tuple[int, str]:
        """Return the most usual width and speed, NDR where there is nothing to go by."""
        rates = Counter((cable.width, cable.speed) for cable in cables if cable.bytes_per_s)
        return max(rates, key=lambda rate: (rates[rate], link_bytes_per_s(*rate)), default=(4, "NDR"))
