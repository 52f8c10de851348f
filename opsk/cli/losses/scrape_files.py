"""Reads files with scrapes of opsk's exporters: ``NODE=FILE``, or a file that is named after its node."""

from __future__ import annotations

import math
import re
from pathlib import Path

from opsk.diagnosis.losses.scrapes import Scrape, Series
from opsk.errors import InputError
from opsk.metrics.exposition import read_stamped_samples
from opsk.text import escape
from opsk.units import MIB

MAX_BYTES = 32 * MIB
_MAX_LINE_BYTES = 8192


def read_scrape(argument: str) -> Scrape:
    """Read one scrape; its time is the file's where samples have no time stamps.

    Raises
    ------
    InputError
        The file cannot be read, or has no series of opsk's exporters.
    """
    node, sign, name = argument.partition("=")
    path = Path(name if sign else argument)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        at_s = path.stat().st_mtime
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name a scrape: NODE=FILE") from error
    if len(data) > MAX_BYTES:
        raise InputError(escape(f"{path}: larger than {MAX_BYTES} bytes"), hint="is this a scrape?")
    values, stamped_s = parse_scrape(data)
    if not values:
        raise InputError(
            escape(f"{path}: no series of opsk's exporters"), hint="opsk exporter --once writes what is wanted"
        )
    return Scrape(node=node if sign else re.split(r"[.@]", path.name)[0], values=values, at_s=stamped_s or at_s)


def parse_scrape(page: bytes) -> tuple[dict[Series, float], float | None]:
    """Return the series of a page in Prometheus's format, and the time that its samples have [s since 1970]."""
    values: dict[Series, float] = {}
    stamped: float | None = None
    lines = (line for line in page.splitlines() if len(line) <= _MAX_LINE_BYTES)
    for (name, labels, value), at_s in read_stamped_samples(lines, "opsk_"):
        if math.isfinite(value):
            values[name, frozenset(labels.items())] = value
        stamped = at_s or stamped
    return values, stamped
