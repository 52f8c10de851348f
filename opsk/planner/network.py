"""Where can a job's traffic run on this fabric? Builds the routes that its dump, or its forwarding tables, allow."""

from __future__ import annotations

from opsk.planner.even_routes import EvenRoutes
from opsk.planner.routes import Routes, UplinkRoutes
from opsk.planner.switch_graph import switch_graph
from opsk.planner.table_routes import TableRoutes
from opsk.topology.fabric import Fabric
from opsk.topology.forwarding import ForwardingTables, next_hops
from opsk.topology.rails import Rails


def routes_of(
    fabric: Fabric | None, rails: Rails, tables: ForwardingTables | None = None, *, adaptive: bool = False
) -> Routes:
    """Return the routes of a fabric: by its forwarding tables, else all shortest paths, else up and down its leaves.

    With ``adaptive`` traffic on shortest paths gives way to switches that are short of cables. Spines that carry a few
    hosts are passed through; leaves are not, unless two of them are cabled together.
    """
    if fabric is None or not rails.leaves:
        return UplinkRoutes(rails)
    on_tier = [guid for guid, leaf in rails.leaves.items() if not leaf.off_tier]
    if tables is None:
        return EvenRoutes(switch_graph(fabric), on_tier, adaptive=adaptive)
    graph = switch_graph(fabric, apart=True)
    return TableRoutes(graph, next_hops(tables, fabric), EvenRoutes(graph, on_tier))
