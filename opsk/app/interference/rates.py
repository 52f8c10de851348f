"""How are measured rates of ports read from a file? CSV or JSON rows of guid, port, and bytes/s sent and received.

CSV has the header ``guid,port,sent_bytes_per_s,received_bytes_per_s``; JSON is a list of objects with these keys. A row
without port, or with port 0, is an HCA's. Prometheus answers the same question: see docs/explanation/fabric.md.
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

from opsk.app.inputs.fabric_dump import text_of
from opsk.errors import InputError
from opsk.fabric.fabric import Fabric
from opsk.planning.interference.measured import MeasuredRates, PortRate
from opsk.text import escape

_MOST_SHOWN = 3
_FASTEST = 1e13
"""bytes/s beyond which no port is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRates:
    """Rates of ports of the fabric, and what of the file could not be used."""

    rates: MeasuredRates
    problems: tuple[str, ...] = ()


def read_rates(path: Path, fabric: Fabric) -> ReadRates:
    """Return what a file says of ports of this fabric.

    Raises
    ------
    InputError
        The file cannot be read, or no row of it can be used.
    """
    rows = _rows(text_of(path), path)
    hcas: dict[str, PortRate] = {}
    ports: dict[tuple[str, int], PortRate] = {}
    odd: list[str] = []
    strange: list[str] = []
    for number, row in enumerate(rows, start=1):
        found = _port_rate(row)
        if found is None:
            odd.append(str(number))
            continue
        guid, port, rate = found
        if guid in fabric.switches and port:
            ports[guid, port] = rate
        elif guid in fabric.hcas:
            hcas[guid] = _sum(hcas[guid], rate) if guid in hcas else rate
        else:
            strange.append(guid)
    problems = []
    if odd:
        problems.append(f"{len(odd)} rows of {path} are no rates (row {', '.join(odd[:_MOST_SHOWN])})")
    if strange:
        problems.append(f"{len(strange)} ports of {path} are not on the fabric ({', '.join(strange[:_MOST_SHOWN])})")
    if not hcas and not ports:
        raise InputError(
            escape(f"{path}: no row is a port of this fabric; {'; '.join(problems) or 'it is empty'}"),
            hint="rows are guid, port (none for an HCA), sent_bytes_per_s, received_bytes_per_s",
        )
    return ReadRates(
        rates=MeasuredRates(hcas=hcas, switch_ports=ports),
        problems=tuple(escape(problem) for problem in problems),
    )


def _sum(one: PortRate, other: PortRate) -> PortRate:
    """Return the rates of two ports of one HCA."""
    return PortRate(
        sent_bytes_per_s=one.sent_bytes_per_s + other.sent_bytes_per_s,
        received_bytes_per_s=one.received_bytes_per_s + other.received_bytes_per_s,
    )


def _rows(text: str, path: Path) -> list[Any]:
    """Return the rows of a file, whatever they hold."""
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


def _port_rate(row: Any) -> tuple[str, int, PortRate] | None:
    """Return guid, port and rate of one row; ``None`` where it has none."""
    if not isinstance(row, Mapping):
        return None
    guid = str(row.get("guid") or "").strip().lower().removeprefix("0x").rjust(16, "0")
    port = str(row.get("port") or "0").strip()
    sent, received = _rate(row.get("sent_bytes_per_s")), _rate(row.get("received_bytes_per_s"))
    if len(guid) != 16 or not guid.strip("0") or not (port.isascii() and port.isdigit() and len(port) <= 3):
        return None
    if sent is None or received is None:
        return None
    return guid, int(port), PortRate(sent_bytes_per_s=sent, received_bytes_per_s=received)


def _rate(value: Any) -> float | None:
    """Return a rate; 0 where none is given, ``None`` where it is none."""
    if value is None or value == "":
        return 0.0
    if isinstance(value, bool):
        return None
    try:
        rate = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if math.isfinite(rate) and 0 <= rate <= _FASTEST else None
