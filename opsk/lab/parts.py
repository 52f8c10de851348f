"""Defines the interface through which front ends add parts to a lab, such as the advisor and its submit hooks.

An entry point of the group ``opsk.lab_parts`` is a function that gets a `LabSite` and returns a `LabPart`. The lab
never imports a front end, and works without any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from opsk.errors import LabError
from opsk.lab.launcher import Launcher
from opsk.lab.record import LabShape

GROUP = "opsk.lab_parts"
ADVISOR = "advisor"
"""Name under which the advisor and its submit hooks register."""
EXPORTER = "exporter"
"""Name under which the exporters of the nodes register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSite:
    """The paths and settings of a lab for its parts: ``etc`` is the directory of slurm.conf, ``config`` its opsk.toml.

    Parameters
    ----------
    shape
        How big the lab is.
    exporters
        TCP port of loopback by node, for the nodes that get an exporter.
    prometheus_port
        Where Prometheus is to listen; 0 for none.
    cluster
        Name of the lab for Slurm and Prometheus.
    """

    etc: Path
    run: Path
    log: Path
    config: Path
    shape: LabShape = field(default_factory=LabShape)
    exporters: Mapping[str, int] = field(default_factory=dict)
    prometheus_port: int = 0
    cluster: str = "lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDaemon:
    """A process that the lab runs for a part.

    Parameters
    ----------
    socket
        It is ready as soon as it accepts there: a Unix socket, or a TCP port of loopback; ``None``: at once.
    environment
        Environment in addition to the lab's own variables.
    """

    name: str
    command: tuple[str, ...]
    socket: Path | int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPart:
    """The part that one front end adds.

    Parameters
    ----------
    install
        Writes the part's files into ``etc``; called before slurmctld starts.
    slurm_snippets
        Names of files of ``deploy/slurm`` that the lab's slurm.conf includes, as a site's would.
    daemons
        Processes to run as long as the lab runs.
    slurm_lines
        Further lines of slurm.conf.
    prepare
        Called when the subnet is up and has been written down, before Slurm and the daemons start.
    notes
        Notes for people, a sentence each: what is left out, and why.
    """

    install: Callable[[], None]
    slurm_snippets: tuple[str, ...] = ()
    daemons: tuple[PartDaemon, ...] = ()
    slurm_lines: tuple[str, ...] = ()
    prepare: Callable[[Launcher], None] | None = None
    notes: tuple[str, ...] = ()


def list_parts() -> tuple[str, ...]:
    """Return the names of the parts that are installed, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def load_parts(names: Iterable[str], site: LabSite) -> tuple[LabPart, ...]:
    """Return the named parts for a lab at ``site``.

    Raises
    ------
    LabError
        When a part is not installed whole.
    """
    parts = []
    for name in names:
        try:
            factory = next(iter(entry_points(group=GROUP, name=name))).load()
        except (ImportError, AttributeError) as error:
            raise LabError(f"the lab's part {name} cannot be loaded: {error}", hint="install opsk again") from error
        parts.append(cast("LabPart", factory(site)))
    return tuple(parts)
