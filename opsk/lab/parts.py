"""What do front ends add to a lab? The advisor and its submit hooks are above this package and register themselves.

An entry point of the group ``opsk.lab_parts`` is a function that gets a `LabSite` and returns a `LabPart`. The lab
never imports a front end, and works without any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from opsk.errors import LabError

GROUP = "opsk.lab_parts"
ADVISOR = "advisor"
"""Name under which the advisor and its submit hooks register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSite:
    """Where a part may put what: ``etc`` is the directory of slurm.conf, ``config`` the lab's opsk.toml."""

    etc: Path
    run: Path
    log: Path
    config: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDaemon:
    """A process that the lab runs for a part: ready as soon as it accepts on ``socket``."""

    name: str
    command: tuple[str, ...]
    socket: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPart:
    """What one front end adds.

    Parameters
    ----------
    install
        Writes the part's files into ``etc``; called before slurmctld starts.
    slurm_snippets
        Names of files of ``deploy/slurm`` that the lab's slurm.conf includes, as a site's would.
    daemons
        Processes to run as long as the lab runs.
    """

    install: Callable[[], None]
    slurm_snippets: tuple[str, ...] = ()
    daemons: tuple[PartDaemon, ...] = ()


def known_parts() -> tuple[str, ...]:
    """Return the names of the parts that are installed, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def load_parts(names: Iterable[str], site: LabSite) -> tuple[LabPart, ...]:
    """Return the named parts for a lab at ``site``.

    Raises
    ------
    LabError
        When a part is not installed whole.
    """
    found = []
    for name in names:
        try:
            factory = next(iter(entry_points(group=GROUP, name=name))).load()
        except (ImportError, AttributeError) as error:
            raise LabError(f"the lab's part {name} cannot be loaded: {error}", hint="install opsk again") from error
        found.append(cast("LabPart", factory(site)))
    return tuple(found)
