"""Numbers the links of a fabric that jobs and storage share, so that the loads of all jobs are comparable.

The links between switches come first, as `Routes` numbers them, then every HCA sending, then every HCA receiving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import build_switch_neighbours, find_hca_links
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.lru_cache import LruCache
from opsk.planning.routing.hca_ports import NOWHERE, Index, Ports, build_ports
from opsk.planning.routing.loads import LinkSeconds, link_seconds, port_rates
from opsk.planning.routing.routes import Routes
from opsk.planning.routing.traffic import Flows

_RECENT_NODES = 16
"""Node lists whose HCAs are cached: free nodes change, but not with every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLinks:
    """All links of a fabric.

    Parameters
    ----------
    rates
        Of each link [bytes/s]; of one cable where several share their traffic.
    hcas
        Every HCA; HCA *h* sends on link ``switch_links + h`` and receives on ``switch_links + len(hcas) + h``.
    elsewhere
        HCAs of each host that are not on its rails: of storage servers, and of nodes on storage leaves.
    part
        Leaf to the number of the connected part of the fabric that it is in.
    """

    rails: Rails
    routes: Routes
    rates: FloatColumn
    switch_links: int
    hcas: tuple[Attachment, ...]
    index: Mapping[tuple[str, str], int]
    elsewhere: Mapping[str, tuple[Attachment, ...]]
    part: Mapping[str, int]
    _port_cache: LruCache[Ports] = field(
        default_factory=lambda: LruCache(_RECENT_NODES), init=False, repr=False, compare=False
    )
    _link_cache: LruCache[tuple[Ports, Index]] = field(
        default_factory=lambda: LruCache(_RECENT_NODES), init=False, repr=False, compare=False
    )

    @property
    def links(self) -> int:
        """Return the number of links."""
        return int(self.rates.size)

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids that a link goes from and to: two switches ("" for all above), or an HCA and its leaf."""
        if link < self.switch_links:
            return self.routes.ends(link)
        receives, number = divmod(link - self.switch_links, len(self.hcas))
        hca = self.hcas[number]
        return (hca.leaf, hca.guid) if receives else (hca.guid, hca.leaf)

    def is_hca(self, link: int) -> bool:
        """Return whether a link is that of an HCA and not between switches."""
        return link >= self.switch_links

    def ports(self, nodes: Sequence[str], node_gpus: int) -> Ports:
        """Return the HCA of every GPU of some nodes, as `ports_of` does."""
        row = tuple(nodes)
        return self._port_cache.get((row, node_gpus), lambda: build_ports(self.rails, row, node_gpus))

    def port_links(self, ports: Ports) -> Index:
        """Return the links on which the HCAs of ``ports`` send, then those on which they receive, -1 for none known."""
        return self._link_cache.get(id(ports), lambda: (ports, self._find_port_links(ports)))[1]

    def _find_port_links(self, ports: Ports) -> Index:
        """Compute the links of `port_links`."""
        numbers = [NOWHERE if hca is None else self.index[hca.guid, hca.device] for hca in ports.hcas]
        sends = np.array(numbers, dtype=np.int64)
        known = sends >= 0
        return np.concatenate(
            [
                np.where(known, sends + self.switch_links, NOWHERE),
                np.where(known, sends + self.switch_links + len(self.hcas), NOWHERE),
            ]
        )

    def route(self, flows: Mapping[str, Flows], ports: Ports) -> tuple[Index, FloatColumn]:
        """Return the links that messages take, and the seconds of each by kind, shape (kinds, links) [s].

        Messages are of one placement. Given bytes/s instead of bytes, the seconds are the busy part of each link.
        """
        return self.select_links(link_seconds(flows, 1, ports, self.routes), tuple(flows), ports)

    def select_links(self, seconds: LinkSeconds, kinds: Sequence[str], ports: Ports) -> tuple[Index, FloatColumn]:
        """Return the links in this numbering and their seconds by kind, links that stay idle left out."""
        links = np.concatenate([seconds.links, self.port_links(ports)])
        busy = np.zeros((len(kinds), links.size))
        is_used = np.zeros(links.size, dtype=np.bool_)
        for row, kind in zip(busy, kinds, strict=True):
            np.concatenate([seconds.switches[kind][0], seconds.ports[kind][0]], out=row)
            is_used |= row != 0
        used = np.flatnonzero(is_used & (links >= 0))
        return (links, busy) if used.size == links.size else (links[used], busy.take(used, axis=1))


def build_links(fabric: Fabric | None, rails: Rails, routes: Routes) -> FabricLinks:
    """Return all links of a fabric.

    Parameters
    ----------
    fabric
        Where it is not known, only HCAs on rails and the leaves' uplinks are.
    """
    on_rails = [hca for row in rails.attachments.values() for hca in row]
    elsewhere = _find_off_rail_hcas(fabric, on_rails) if fabric is not None else {}
    hcas = (*on_rails, *(hca for row in elsewhere.values() for hca in row))
    switches = routes.rates
    hca_rates = port_rates(ports_of_hcas(hcas))[:-1]
    return FabricLinks(
        rails=rails,
        routes=routes,
        rates=np.concatenate([switches, hca_rates, hca_rates]),
        switch_links=int(switches.size),
        hcas=hcas,
        index={(hca.guid, hca.device): number for number, hca in enumerate(hcas)},
        elsewhere=elsewhere,
        part=_find_connected_parts(fabric) if fabric is not None else dict.fromkeys(rails.leaves, 0),
    )


def ports_of_hcas(hcas: Sequence[Attachment]) -> Ports:
    """Return HCAs as the ends of messages, in this order, independent of the GPUs that use them."""
    leaf_index: dict[str, int] = {}
    leaf = [leaf_index.setdefault(hca.leaf, len(leaf_index)) for hca in hcas]
    return Ports(
        port=np.arange(len(hcas), dtype=np.int64).reshape(1, -1),
        leaf=np.array([*leaf, NOWHERE], dtype=np.int64),
        rail=np.array([*(NOWHERE if hca.rail is None else hca.rail for hca in hcas), NOWHERE], dtype=np.int64),
        bytes_per_s=np.array([*(hca.bytes_per_s for hca in hcas), 0.0]),
        leaves=tuple(leaf_index),
        hcas=(*hcas, None),
    )


def _find_off_rail_hcas(fabric: Fabric, on_rails: Sequence[Attachment]) -> dict[str, tuple[Attachment, ...]]:
    """Return the HCAs that are on no rail, by host."""
    known = {(hca.guid, hca.leaf) for hca in on_rails}
    hcas_by_host: dict[str, list[Attachment]] = {}
    for link in find_hca_links(fabric):
        hca = fabric.hcas[link.hca]
        if hca.node is None or (hca.guid, link.switch) in known:
            continue
        device = hca.device or hca.guid
        if link.hca_port > 1:
            device += f":{link.hca_port}"
        hcas_by_host.setdefault(hca.node, []).append(
            Attachment(
                node=hca.node,
                device=device,
                guid=hca.guid,
                leaf=link.switch,
                rail=None,
                bytes_per_s=link.cable.bytes_per_s,
            )
        )
    return {node: tuple(row) for node, row in hcas_by_host.items()}


def _find_connected_parts(fabric: Fabric) -> dict[str, int]:
    """Return the connected part of each switch."""
    neighbours = build_switch_neighbours(fabric)
    part: dict[str, int] = {}
    for number, start in enumerate(neighbours):
        if start in part:
            continue
        part[start] = number
        waiting = [start]
        while waiting:
            for other in neighbours[waiting.pop()]:
                if other not in part:
                    part[other] = number
                    waiting.append(other)
    return part
