"""Reads measured port rates from CSV or JSON.

CSV has the header ``guid,port,sent_bytes_per_s,received_bytes_per_s``; JSON is a list of objects with these keys. A row
without port, or with port 0, is an HCA's. Prometheus has the same rates: see docs/explanation/fabric.md.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.app.inputs.fabric_files import read_text
from opsk.errors import InputError
from opsk.fabric.fabric import Fabric
from opsk.planning.interference.measured import MeasuredRates, PortRate
from opsk.text import escape

_MAX_SHOWN = 3
_MAX_BYTES_PER_S = 1e13
"""No port is faster [bytes/s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRates:
    """Rates of ports of the fabric, and problems of the file."""

    rates: MeasuredRates
    problems: tuple[str, ...] = ()


def read_rates(path: Path, fabric: Fabric) -> ReadRates:
    """Return the rates of this fabric's ports from a file.

    Raises
    ------
    InputError
        The file cannot be read, or no row of it can be used.
    """
    rows = _parse_rows(read_text(path), path)
    hcas: dict[str, PortRate] = {}
    ports: dict[tuple[str, int], PortRate] = {}
    invalid: list[str] = []
    unknown: list[str] = []
    for number, row in enumerate(rows, start=1):
        parsed = _parse_port_rate(row)
        if parsed is None:
            invalid.append(str(number))
            continue
        guid, port, rate = parsed
        if guid in fabric.switches and port:
            ports[guid, port] = rate
        elif guid in fabric.hcas:
            hcas[guid] = _add_rates(hcas[guid], rate) if guid in hcas else rate
        else:
            unknown.append(guid)
    problems = []
    if invalid:
        problems.append(f"{len(invalid)} rows of {path} are no rates (row {', '.join(invalid[:_MAX_SHOWN])})")
    if unknown:
        problems.append(f"{len(unknown)} ports of {path} are not on the fabric ({', '.join(unknown[:_MAX_SHOWN])})")
    if not hcas and not ports:
        raise InputError(
            escape(f"{path}: no row is a port of this fabric; {'; '.join(problems) or 'it is empty'}"),
            hint="rows are guid, port (none for an HCA), sent_bytes_per_s, received_bytes_per_s",
        )
    return ReadRates(
        rates=MeasuredRates(hcas=hcas, switch_ports=ports),
        problems=tuple(escape(problem) for problem in problems),
    )


def _add_rates(first: PortRate, second: PortRate) -> PortRate:
    """Return the rates of two ports of one HCA."""
    return PortRate(
        sent_bytes_per_s=first.sent_bytes_per_s + second.sent_bytes_per_s,
        received_bytes_per_s=first.received_bytes_per_s + second.received_bytes_per_s,
    )


def _parse_rows(text: str, path: Path) -> list[Any]:
    """Return the unchecked rows of a file."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(escape(f"{path}: no JSON: {str(error)[:200]}")) from error
        return document if isinstance(document, list) else [document]
    try:
        return list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(escape(f"{path}: no CSV: {error}")) from error


def _parse_port_rate(row: Any) -> tuple[str, int, PortRate] | None:
    """Return guid, port and rate of one row; ``None`` where it is invalid."""
    if not isinstance(row, Mapping):
        return None
    guid = str(row.get("guid") or "").strip().lower().removeprefix("0x").rjust(16, "0")
    port = str(row.get("port") or "0").strip()
    sent, received = _parse_rate(row.get("sent_bytes_per_s")), _parse_rate(row.get("received_bytes_per_s"))
    if len(guid) != 16 or not guid.strip("0") or not (port.isascii() and port.isdigit() and len(port) <= 3):
        return None
    if sent is None or received is None:
        return None
    return guid, int(port), PortRate(sent_bytes_per_s=sent, received_bytes_per_s=received)


def _parse_rate(value: Any) -> float | None:
    """Return a rate; 0 where none is given, ``None`` where it is invalid."""
    if value is None or value == "":
        return 0.0
    if isinstance(value, bool):
        return None
    try:
        rate = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if math.isfinite(rate) and 0 <= rate <= _MAX_BYTES_PER_S else None
