"""Reads the site's fabric dumps: tiers, leaves, HB domains and cabling faults.

The dumps are read once, and again when a file has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opsk.app.inputs.fabric_files import read_dumps
from opsk.errors import UnavailableError
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails, find_rails
from opsk_tui.data.view import FabricView, PortTable

MAX_FAULTS = 500


class FabricSource:
    """The dumps in the site's configuration.

    Parameters
    ----------
    dumps
        Files; none is no fabric.
    """

    def __init__(self, dumps: Sequence[Path]) -> None:
        self._dumps = tuple(dumps)
        self._mtimes: tuple[float, ...] = ()
        self._view: FabricView | None = None
        self.leaf_of: dict[tuple[str, int], str] = {}

    @property
    def shown(self) -> str:
        """The files."""
        return ", ".join(map(str, self._dumps))

    def read(self) -> FabricView | None:
        """Return the fabric; ``None`` where the site configures none.

        Raises
        ------
        OpskError
            A dump cannot be read.
        """
        if not self._dumps:
            return None
        try:
            mtimes = tuple(path.stat().st_mtime for path in self._dumps)
        except OSError as error:
            raise UnavailableError(f"{error.filename}: {error.strerror}", hint="see fabric in opsk.toml") from error
        if mtimes != self._mtimes or self._view is None:
            rails = find_rails(fabric := read_dumps(self._dumps))
            self.leaf_of = {
                (node, rail): rails.leaves[attachment.leaf].description
                for node, attachments in rails.attachments.items()
                for rail, attachment in enumerate(attachments)
                if attachment.leaf in rails.leaves
            }
            names = {guid: switch.description for guid, switch in fabric.switches.items()}
            self._view, self._mtimes = build_view(rails, names), mtimes
        return self._view


def build_view(rails: Rails, names: dict[str, str]) -> FabricView:
    """Return the view of the cabling; it does not include the ports' state."""
    levels = sorted(set(rails.tier.values()))
    tiers = tuple(
        tuple(sorted((names.get(guid, guid) for guid, tier in rails.tier.items() if tier == level), key=natural_key))
        for level in levels
    )
    nodes = tuple(sorted(rails.attachments, key=natural_key))
    domains, _ = find_hb_domains(nodes)
    shape = (len(nodes), max(1, rails.rail_count))
    unknown = np.full(shape, np.nan, np.float32)
    ports = PortTable(
        rails=tuple(f"rail {tier}" for tier in range(shape[1])),
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
        faults=tuple(faults[:MAX_FAULTS]),
    )
