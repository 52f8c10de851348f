"""Where can a job's traffic run on this fabric? Builds the routes that its dump, or its forwarding tables, allow."""

from __future__ import annotations

from opsk.planner.even_routes import EvenRoutes
from opsk.planner.routes import Routes, UplinkRoutes
from opsk.planner.switch_graph import switch_graph
from opsk.topology.fabric import Fabric
from opsk.topology.rails import Rails


def routes_of(fabric: Fabric | None, rails: Rails) -> Routes:
    """Return the routes of a fabric: all shortest paths, or up and down where only its leaves are known.

    Spines that carry a few hosts are passed through; leaves are not, unless two of them are cabled together.
    """
    if fabric is None or not rails.leaves:
        return UplinkRoutes(rails)
    on_tier = [guid for guid, leaf in rails.leaves.items() if not leaf.off_tier]
    return EvenRoutes(switch_graph(fabric), on_tier)
