"""What does the site say that hosts and switches are for?"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from opsk.config import load_site
from opsk.errors import ConfigError, InputError
from opsk.hostlist import expand
from opsk.topology.fabric import Fabric
from opsk.topology.hosts import COMPUTE

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


def site_roles() -> dict[str, frozenset[str]]:
    """Return the names under each role of ``fabric_roles`` in opsk.toml; those with ``*`` as they are written.

    Raises
    ------
    ConfigError
        When one is no host list.
    """
    return {role: _names(role, text) for role, text in load_site().fabric_roles.items()}


def site_compute_nodes(fabric: Fabric, roles: Mapping[str, Collection[str]]) -> frozenset[str] | None:
    """Return the hosts of a fabric that the site calls compute nodes; ``None`` when it says nothing of them."""
    patterns = roles.get(COMPUTE)
    if patterns is None:
        return None
    hosts = {hca.node for hca in fabric.hcas.values() if hca.node is not None}
    return frozenset(host for host in hosts if any(fnmatchcase(host, pattern) for pattern in patterns))


def _names(role: str, text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in _OUTSIDE_BRACKETS.split(text):
        try:
            names |= {part.strip()} if "*" in part else set(expand(part.strip()))
        except InputError as error:
            raise ConfigError(f"fabric_roles.{role}: {error.message}", hint=error.hint) from error
    return frozenset(names - {""})
