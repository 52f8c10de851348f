"""Builds the routes of a fabric from its topology dump or its forwarding tables."""

from __future__ import annotations

import re

import numpy as np

from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import ForwardingTables, NextHops, far_end, resolve_next_hops
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.planning.routing.even_routes import EvenRoutes
from opsk.planning.routing.routes import NO_LINKS, Path, Routes, Shares, UplinkRoutes
from opsk.planning.routing.switch_graph import SwitchGraph, switch_graph

_SECOND_PORT = re.compile(r":(\d{1,3})$")


class TableRoutes:
    """Static routes; where the tables do not lead to an HCA, traffic is assumed to spread evenly, and is recorded.

    Parameters
    ----------
    graph
        Switches with parallel cables as separate links: tables choose one of them.
    hops
        The tables, resolved on the same fabric.
    otherwise
        Routes on the same graph for paths that are not in the tables.
    """

    by_port = True

    def __init__(self, graph: SwitchGraph, hops: NextHops, otherwise: EvenRoutes) -> None:
        self._graph = graph
        self._rates = graph.link_rates()
        self._hops = hops
        self._otherwise = otherwise
        self._paths: dict[tuple[str, str, str], Path | None] = {}
        self.guessed: set[tuple[str, str]] = set()
        """Leaf and HCA guid of the paths that are not in the tables."""

    @property
    def rates(self) -> Shares:
        """Return the rate of each cable [bytes/s]."""
        return self._rates

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids of the switches that a cable goes from and to."""
        return self._graph.ends(link)

    def path(self, leaf: str, target: Attachment) -> Path | None:
        """Return the cables on which the tables send a message."""
        key = (leaf, target.guid, target.device)
        if key not in self._paths:
            route = self._walk(leaf, target)
            if route is None:
                self.guessed.add((leaf, target.guid))
                route = self._otherwise.path(leaf, target)
            self._paths[key] = route
        return self._paths[key]

    def _walk(self, leaf: str, target: Attachment) -> Path | None:
        """Follow the tables from switch to switch."""
        hops = self._hops
        second_port = _SECOND_PORT.search(target.device)
        lid = hops.lid(target.guid, int(second_port[1]) if second_port else None)
        links: list[int] = []
        switch = leaf
        while switch != target.leaf:
            out = hops.tables.out_port(switch, lid) if lid is not None else None
            link = self._graph.link_of_port.get((switch, out)) if out else None
            if link is None or out is None or len(links) > len(hops.switches):
                return None
            links.append(link)
            switch, _ = far_end(hops.cable_at[switch, out], (switch, out))
        return Path(links=np.array(links, dtype=np.int64), shares=np.ones(len(links))) if links else NO_LINKS


def build_routes(
    fabric: Fabric | None, rails: Rails, tables: ForwardingTables | None = None, *, adaptive: bool = False
) -> Routes:
    """Return the routes of a fabric: by its forwarding tables, else all shortest paths, else up and down its leaves.

    With ``adaptive`` traffic on shortest paths avoids switches with few cables. Spines that carry a few
    hosts are passed through; leaves are not, unless two of them are cabled together.
    """
    if fabric is None or not rails.leaves:
        return UplinkRoutes(rails)
    on_tier = [guid for guid, leaf in rails.leaves.items() if not leaf.off_tier]
    if tables is None:
        return EvenRoutes(switch_graph(fabric), on_tier, adaptive=adaptive)
    graph = switch_graph(fabric, apart=True)
    return TableRoutes(graph, resolve_next_hops(tables, fabric), EvenRoutes(graph, on_tier))
