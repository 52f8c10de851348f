"""Defines the graph of switches, the interface of routes between them, and the routes where only the leaves are known.

Forwarding tables, all shortest paths, and uplinks alone implement the same interface: the links that a message takes,
and the rate of each link. HCA ports are not links here; `opsk.planning.routing.loads` adds them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_isl_cables
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.planning.routing.hca_ports import Index

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchGraph:
    """The switches of a fabric and the cables between them.

    Entry *e* of ``one``, ``other`` and ``cables`` stands for two switches and the number of cables between them, or for
    a single cable where ``apart`` was set; ``bytes_per_s`` is the rate of one cable, the slowest of several. Each
    is two links, one a direction: link 2 *e* from ``one`` to ``other``, 2 *e* + 1 back. ``link_of_port`` finds the
    link that leaves a switch by a port, where ``apart`` was set. Build it once a fabric: it serves every placement.
    """

    guids: tuple[str, ...]
    index: dict[str, int]
    one: Index
    other: Index
    cables: Index
    bytes_per_s: npt.NDArray[np.float64]
    link_of_port: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def links(self) -> int:
        """Return the number of links: two for each entry."""
        return 2 * int(self.one.size)

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids of the switches that a link goes from and to."""
        ends = self.guids[self.one[link // 2]], self.guids[self.other[link // 2]]
        return ends if link % 2 == 0 else ends[::-1]

    def link_rates(self) -> npt.NDArray[np.float64]:
        """Return the rate of one cable of each link [bytes/s]."""
        return np.repeat(self.bytes_per_s, 2)


def switch_graph(fabric: Fabric, *, apart: bool = False) -> SwitchGraph:
    """Return the switches and cables of a fabric; loops left out.

    Parameters
    ----------
    apart
        Make every cable an entry of its own, for forwarding tables, which choose one of several parallel cables.
    """
    guids = tuple(fabric.switches)
    index = {guid: number for number, guid in enumerate(guids)}
    cables = [cable for cable in find_isl_cables(fabric) if cable.a_guid != cable.b_guid]
    if apart:
        ports: dict[tuple[str, int], int] = {}
        for number, cable in enumerate(cables):
            ports[cable.a_guid, cable.a_port] = 2 * number
            ports[cable.b_guid, cable.b_port] = 2 * number + 1
        return SwitchGraph(
            guids=guids,
            index=index,
            one=np.array([index[cable.a_guid] for cable in cables], dtype=np.int64),
            other=np.array([index[cable.b_guid] for cable in cables], dtype=np.int64),
            cables=np.ones(len(cables), dtype=np.int64),
            bytes_per_s=_fill_unknown_rates(np.array([cable.bytes_per_s for cable in cables], dtype=np.float64)),
            link_of_port=ports,
        )
    count: Counter[tuple[int, int]] = Counter()
    rate: dict[tuple[int, int], float] = {}
    for cable in cables:
        a, b = sorted((index[cable.a_guid], index[cable.b_guid]))
        count[a, b] += 1
        if cable.bytes_per_s > 0:
            rate[a, b] = min(cable.bytes_per_s, rate.get((a, b), cable.bytes_per_s))
    ends = np.array(list(count), dtype=np.int64).reshape(-1, 2)
    return SwitchGraph(
        guids=guids,
        index=index,
        one=ends[:, 0],
        other=ends[:, 1],
        cables=np.array(list(count.values()), dtype=np.int64),
        bytes_per_s=_fill_unknown_rates(np.array([rate.get(pair, 0.0) for pair in count], dtype=np.float64)),
    )


def _fill_unknown_rates(rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return rates with the median for unknown ones; infinite where none is known."""
    is_known = rates > 0
    usual = float(np.median(rates[is_known])) if is_known.any() else np.inf
    return np.where(is_known, rates, usual)


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
