"""Recognises and reads files with forwarding tables, and checks their routes against the fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.fabric_dump import STDIN, read_head, read_text
from opsk.errors import InputError
from opsk.fabric.checks.routes import check_routes
from opsk.fabric.dumps.forwarding_tables import is_forwarding_dump, merge_tables, read_forwarding_tables
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.forwarding import ForwardingTables, resolve_next_hops


def split_routes(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Split files into those without and those with forwarding tables, by their beginning."""
    routes = [path for path in files if path != STDIN and path.is_file() and is_forwarding_dump(read_head(path))]
    return [path for path in files if path not in routes], routes


def read_routes(paths: Sequence[Path]) -> ForwardingTables | None:
    """Return the merged tables of all files, ``None`` without files; a file without any table is a fault.

    Raises
    ------
    InputError
        When no file holds any table; the message names all.
    """
    parts: list[ForwardingTables] = []
    unread: list[InputError] = []
    for path in paths:
        try:
            parts.append(read_forwarding_tables(read_text(path), source=str(path)))
        except InputError as error:
            unread.append(error)
    if unread and not parts:
        raise InputError("; ".join(error.message for error in unread), hint=unread[0].hint)
    if not parts:
        return None
    tables = merge_tables(parts)
    return replace(tables, faults=(*tables.faults, *map(_build_unreadable_fault, unread)))


def build_routes_document(paths: Sequence[Path], fabric: Fabric) -> tuple[dict[str, Any] | None, tuple[Fault, ...]]:
    """Return the ``routes`` document of ``opsk fabric``, and the findings; ``None`` without tables."""
    try:
        tables = read_routes(paths)
    except InputError as error:
        return None, (_build_unreadable_fault(error),)
    if tables is None:
        return None, ()
    report = check_routes(resolve_next_hops(tables, fabric), fabric)
    document = {
        "source": tables.source,
        "switches": report.switches,
        "destinations": report.destinations,
        "unreachable": report.unreachable,
        "loops": report.loops,
    }
    return document, (*tables.faults, *report.faults)


def _build_unreadable_fault(error: InputError) -> Fault:
    where = error.message.split(":")[0]
    return Fault(kind="unreadable_file", where=where, evidence=error.message, cost="routes are not known")


def build_missing_fabric_error(routes: Sequence[Path]) -> InputError:
    """Return the error for forwarding tables that are given without their fabric."""
    named = ", ".join(map(str, routes))
    return InputError(
        f"{named}: forwarding tables, but no fabric that they are of", hint="give a dump of ibnetdiscover"
    )
