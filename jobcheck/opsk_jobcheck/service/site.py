"""Builds the adviser of a site from the cluster and the fabric that the configuration or the command names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from opsk.app.inputs.cluster import load_cluster
from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.fabric_dump import read_dumps
from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.fabric.rails import find_rails
from opsk.planning.interference.links import build_links
from opsk.planning.routing.fabric_routes import build_routes
from opsk_jobcheck.advice.adviser import Adviser


def build_site_adviser(
    site: SiteConfig, *, cluster: str | None = None, fabric: Sequence[Path] = (), with_fabric_links: bool = False
) -> Adviser:
    """Return the adviser of this site; ``cluster`` and ``fabric`` of the command line override the configuration.

    Parameters
    ----------
    with_fabric_links
        Number the links of the fabric too, for the load on them.

    Raises
    ------
    InputError
        When the cluster or a dump of the fabric cannot be read; names the file and what to do.
    """
    named = cluster or site.cluster
    dumps = tuple(fabric) or site.fabric
    with _name_config_key("cluster", is_from_config=not cluster):
        spec = load_cluster(named) if named else None
    with _name_config_key("fabric", is_from_config=not fabric):
        fabric_dump = read_dumps(dumps) if dumps else None
    with _name_config_key("efficiency", is_from_config=True):
        efficiency = load_efficiency(site.efficiency)
    rails = find_rails(fabric_dump) if fabric_dump else None
    routes = build_routes(fabric_dump, rails, adaptive=site.adaptive_routing) if rails else None
    return Adviser(
        cluster=spec,
        cluster_from=named or "",
        rails=rails,
        routes=routes,
        fabric=fabric_dump if with_fabric_links else None,
        fabric_links=build_links(fabric_dump, rails, routes) if with_fabric_links and rails and routes else None,
        fabric_from=", ".join(str(dump) for dump in dumps),
        efficiency=efficiency,
        default_partition=site.advisor.default_partition,
    )


@contextmanager
def _name_config_key(key: str, *, is_from_config: bool) -> Iterator[None]:
    """Name the key of the site configuration in an error, where no option of the command names it."""
    try:
        yield
    except InputError as error:
        if not is_from_config:
            raise
        raise InputError(f"{key} in the site configuration: {error.message}", hint=error.hint) from error
