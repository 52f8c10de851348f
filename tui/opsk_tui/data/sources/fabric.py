"""What does the site's dump of the fabric say? Tiers, leaves, HB domains and faults of the cabling.

It is read once, and again when a file has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opsk.app.inputs.fabric_dump import read_dumps
from opsk.errors import UnavailableError
from opsk.fabric.hb_domains import hb_domains
from opsk.fabric.hosts.ports import natural
from opsk.fabric.rails import Rails, find_rails
from opsk_tui.data.view import FabricView, PortTable

MOST_FAULTS = 500


class FabricSource:
    """The dumps that the site's configuration names.

    Parameters
    ----------
    dumps
        Files; none is no fabric.
    """

    def __init__(self, dumps: Sequence[Path]) -> None:
        self._dumps = tuple(dumps)
        self._seen: tuple[float, ...] = ()
        self._view: FabricView | None = None
        self.leaf_of: dict[tuple[str, int], str] = {}

    @property
    def shown(self) -> str:
        """The files."""
        return ", ".join(map(str, self._dumps))

    def read(self) -> FabricView | None:
        """Return the fabric; ``None`` where the site has named none.

        Raises
        ------
        OpskError
            A dump cannot be read.
        """
        if not self._dumps:
            return None
        try:
            seen = tuple(path.stat().st_mtime for path in self._dumps)
        except OSError as error:
            raise UnavailableError(f"{error.filename}: {error.strerror}", hint="see fabric in opsk.toml") from error
        if seen != self._seen or self._view is None:
            rails = find_rails(fabric := read_dumps(self._dumps))
            self.leaf_of = {
                (node, at): rails.leaves[attachment.leaf].description
                for node, attachments in rails.attachments.items()
                for at, attachment in enumerate(attachments)
                if attachment.leaf in rails.leaves
            }
            names = {guid: switch.description for guid, switch in fabric.switches.items()}
            self._view, self._seen = view_of(rails, names), seen
        return self._view


def view_of(rails: Rails, names: dict[str, str]) -> FabricView:
    """Return what the cabling says; of the ports' state nothing is known from it."""
    levels = sorted(set(rails.tier.values()))
    tiers = tuple(
        tuple(sorted((names.get(guid, guid) for guid, at in rails.tier.items() if at == level), key=natural))
        for level in levels
    )
    nodes = tuple(sorted(rails.attachments, key=natural))
    domains, _ = hb_domains(nodes)
    shape = (len(nodes), max(1, rails.rail_count))
    unknown = np.full(shape, np.nan, np.float32)
    ports = PortTable(
        rails=tuple(f"rail {at}" for at in range(shape[1])),
        rate_ratio=unknown,
        congestion=unknown,
        bytes_per_s=unknown,
        errors=unknown,
        health=np.zeros(shape, np.int8),
    )
    faults = [f"{fault.kind}: {fault.where}: {fault.evidence}" for fault in rails.faults]
    return FabricView(
        ports=ports,
        tiers=tiers,
        hb_domains={domain.name: domain.nodes for domain in domains if len(domain.nodes) > 1},
        faults=tuple(faults[:MOST_FAULTS]),
    )
