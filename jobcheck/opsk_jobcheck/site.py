"""Where do the cluster and the fabric of this site come from? Reads what the configuration or the command names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsk.topology.ibnetdiscover import read_ibnetdiscover

from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.catalog import parse_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.topology.rails import Rails, find_rails
from opsk_jobcheck.adviser import Adviser

MAX_CLUSTER_BYTES = 1 << 20


def read_cluster(named: str) -> ClusterSpec:
    """Return a cluster by catalogue name, or from the TOML file that ``named`` is the path of.

    Raises
    ------
    InputError
        Names the file or the catalogue name, and what to do.
    """
    path = Path(named)
    if path.suffix != ".toml" and "/" not in named:
        return catalogue_cluster(named)
    try:
        if path.stat().st_size > MAX_CLUSTER_BYTES:
            raise InputError(f"{named}: larger than 1 MiB, this is no cluster file")
        return parse_cluster(path.read_text(encoding="utf-8"), origin=named)
    except OSError as error:
        raise InputError(f"{named}: {error.strerror}", hint="name a catalogue cluster or a cluster TOML") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{named}: not a text file") from error


def read_rails(dumps: Sequence[Path]) -> Rails | None:
    """Return the rails of the first fabric dump, or ``None`` when none is named.

    Raises
    ------
    InputError
        When the dump cannot be read or holds no switch.
    """
    for dump in dumps:
        try:
            text = dump.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(f"{dump}: {error.strerror}", hint="record it with: ibnetdiscover > FILE") from error
        return find_rails(read_ibnetdiscover(text, source=str(dump)))
    return None


def site_adviser(site: SiteConfig, *, cluster: str | None = None, fabric: Sequence[Path] = ()) -> Adviser:
    """Return the adviser of this site; ``cluster`` and ``fabric`` of the command line beat the configuration."""
    named = cluster or site.cluster
    dumps = tuple(fabric) or site.fabric
    return Adviser(
        cluster=read_cluster(named) if named else None,
        cluster_from=named or "",
        rails=read_rails(dumps),
        fabric_from=str(dumps[0]) if dumps else "",
    )
