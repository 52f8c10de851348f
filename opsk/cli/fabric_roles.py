"""What does the site say that hosts and switches are for?"""

from __future__ import annotations

import re

from opsk.config import load_site
from opsk.errors import ConfigError, InputError
from opsk.hostlist import expand

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


def site_roles() -> dict[str, frozenset[str]]:
    """Return the names under each role of ``fabric_roles`` in opsk.toml; those with ``*`` as they are written.

    Raises
    ------
    ConfigError
        When one is no host list.
    """
    return {role: _names(role, text) for role, text in load_site().fabric_roles.items()}


def _names(role: str, text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in _OUTSIDE_BRACKETS.split(text):
        try:
            names |= {part.strip()} if "*" in part else set(expand(part.strip()))
        except InputError as error:
            raise ConfigError(f"fabric_roles.{role}: {error.message}", hint=error.hint) from error
    return frozenset(names - {""})
