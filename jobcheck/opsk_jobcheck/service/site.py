"""Where do the cluster and the fabric of this site come from? Reads what the configuration or the command names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from opsk.app.inputs.cluster import named_cluster
from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.fabric_dump import read_dumps
from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.fabric.rails import find_rails
from opsk.planning.interference.wires import wires_of
from opsk.planning.routing.routes_of_fabric import routes_of
from opsk_jobcheck.advice.adviser import Adviser


def site_adviser(
    site: SiteConfig, *, cluster: str | None = None, fabric: Sequence[Path] = (), with_wires: bool = False
) -> Adviser:
    """Return the adviser of this site; ``cluster`` and ``fabric`` of the command line beat the configuration.

    Parameters
    ----------
    with_wires
        Number the links of the fabric too, for what runs on them.

    Raises
    ------
    InputError
        When the cluster or a dump of the fabric cannot be read; names the file and what to do.
    """
    named = cluster or site.cluster
    dumps = tuple(fabric) or site.fabric
    with _told_of("cluster", is_of_site=not cluster):
        spec = named_cluster(named) if named else None
    with _told_of("fabric", is_of_site=not fabric):
        cabled = read_dumps(dumps) if dumps else None
    with _told_of("efficiency", is_of_site=True):
        efficiency = load_efficiency(site.efficiency)
    rails = find_rails(cabled) if cabled else None
    routes = routes_of(cabled, rails, adaptive=site.adaptive_routing) if rails else None
    return Adviser(
        cluster=spec,
        cluster_from=named or "",
        rails=rails,
        routes=routes,
        fabric=cabled if with_wires else None,
        wires=wires_of(cabled, rails, routes) if with_wires and rails and routes else None,
        fabric_from=", ".join(str(dump) for dump in dumps),
        efficiency=efficiency,
        default_partition=site.advisor.default_partition,
    )


@contextmanager
def _told_of(key: str, *, is_of_site: bool) -> Iterator[None]:
    """Say which key of the site configuration a mistake is in, where no option of the command names the thing."""
    try:
        yield
    except InputError as error:
        if not is_of_site:
            raise
        raise InputError(f"{key} in the site configuration: {error.message}", hint=error.hint) from error
