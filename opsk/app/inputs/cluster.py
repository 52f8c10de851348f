"""Resolves the cluster of a command: a catalogue name, or the path of a cluster TOML."""

from __future__ import annotations

from pathlib import Path

from opsk.config import load_site
from opsk.errors import InputError, OpskError
from opsk.hardware.catalog import MAX_CLUSTER_TOML_BYTES, cluster, parse_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape


def load_cluster(named: str) -> ClusterSpec:
    """Return the cluster ``named``: a file when it ends in ``.toml`` or has a slash, else a catalogue name.

    Raises
    ------
    InputError
        Names the file or the closest catalogue names, and what to do.
    """
    if not named.endswith(".toml") and "/" not in named:
        return cluster(named)
    try:
        with Path(named).open("rb") as stream:
            data = stream.read(MAX_CLUSTER_TOML_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{named}: {reason}"), hint="name a catalogue cluster or a cluster TOML") from error
    try:
        return parse_cluster(data.decode("utf-8-sig"), origin=escape(named))
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{named}: no UTF-8 text at byte {error.start}"), hint="is this a TOML?") from error


def resolve_cluster(named: str | None, wrong: list[str]) -> ClusterSpec | None:
    """Return the cluster of a request, or the site's; on an error append it to ``wrong`` and return ``None``."""
    named = named or load_site().cluster
    if named is None:
        wrong.append("no cluster is named: give --cluster, or set cluster in the plan file or in /etc/opsk/opsk.toml")
        return None
    try:
        return load_cluster(named)
    except OpskError as error:
        wrong.append(f"{error.message} ({error.hint})" if error.hint else error.message)
        return None
