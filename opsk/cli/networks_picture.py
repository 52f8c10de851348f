"""How are the fabrics, and the routes through them, shown to a person?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup

from opsk.text import escape
from opsk.topology.networks import Network


def networks_picture(document: Mapping[str, Any]) -> None:
    """Print the fabrics, where there are several or one is shared, and what following the routes shows."""
    console = Console(highlight=False, soft_wrap=True)
    networks: Sequence[Network] = document["fabrics"]
    if len(networks) > 1 or any(network.shared for network in networks):
        console.print("Fabrics")
        for network in networks:
            role = network.role or "of unknown use"
            shared = f", shared with {' and '.join(network.shared)}" if network.shared else ""
            counts = f"{len(network.switches)} switches, {len(network.hosts)} hosts"
            console.print(escape_markup(f"  {role}{shared} ({network.link_layer}): {counts}; {escape(network.why)}"))
    routes = document["routes"]
    if routes is not None:
        lost = f"{routes['unreachable']} pairs of leaf and HCA port without a way, {routes['loops']} in a circle"
        console.print(f"Routes: tables of {routes['switches']} switches, {routes['destinations']} HCA ports; {lost}")
