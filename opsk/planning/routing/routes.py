"""Defines the interface of routes between switches, and the routes of fabrics of which only the leaves are known.

Forwarding tables, all shortest paths, and uplinks alone implement the same interface: the links that a message takes,
and the rate of each link. HCA ports are not links here; `opsk.planning.routing.loads` adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.planning.routing.hca_ports import Index

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The links of a message, and the part of it on one cable of each link (``shares``)."""

    links: Index
    shares: Shares


NO_LINKS = Path(links=np.empty(0, dtype=np.int64), shares=np.empty(0))


class Routes(Protocol):
    """Routes of one fabric; paths are cached, so build it once."""

    by_port: bool
    """Whether the path depends on the HCA that a message is for, and not on its leaf alone."""

    @property
    def rates(self) -> Shares:
        """Return the rate of one cable of each link [bytes/s]."""
        ...

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids of the switches that a link goes from and to; "" for "all above"."""
        ...

    def path(self, leaf: str, target: Attachment) -> Path | None:
        """Return the path from a leaf to an HCA on another one; ``None`` where there is none."""
        ...


class UplinkRoutes:
    """Routes where only the leaves are known, not what is above them: a leaf's uplinks share its traffic evenly.

    Equal to all shortest paths on two tiers where every leaf has as many cables to every spine. Uplinks of unknown
    rate are assumed to be as fast as the fastest HCA.
    """

    by_port = False

    def __init__(self, rails: Rails) -> None:
        self._guids = tuple(rails.leaves)
        self._index = {guid: number for number, guid in enumerate(self._guids)}
        fastest = max((hca.bytes_per_s for row in rails.attachments.values() for hca in row), default=0.0)
        up = [leaf.up_bytes_per_s or leaf.uplinks * fastest for leaf in rails.leaves.values()]
        self._rates = np.repeat(np.array(up, dtype=np.float64), 2)

    @property
    def rates(self) -> Shares:
        """Return the rate of all uplinks of each leaf together, up and down in turn [bytes/s]."""
        return self._rates

    def ends(self, link: int) -> tuple[str, str]:
        """Return the leaf, and "" for what is above it."""
        leaf = self._guids[link // 2]
        return (leaf, "") if link % 2 == 0 else ("", leaf)

    def path(self, leaf: str, target: Attachment) -> Path | None:
        """Return the path up the one leaf and down the other."""
        if leaf not in self._index or target.leaf not in self._index:
            return None
        links = np.array([2 * self._index[leaf], 2 * self._index[target.leaf] + 1])
        return Path(links=links, shares=np.ones(2)) if self._rates[links].all() else None
