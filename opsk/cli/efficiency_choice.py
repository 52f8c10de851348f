"""With which efficiencies does a command predict? A file that was named, the site's own, or those that ship."""

from __future__ import annotations

from pathlib import Path

from opsk.cli.document import harmless
from opsk.config import load_site
from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.shipped import DEFAULT, MAX_BYTES, parse_efficiency
from opsk.errors import InputError


def load_efficiency(path: str | Path | None) -> Efficiency:
    """Return the efficiencies of a file; without one the site's, and without those the ones that ship with opsk.

    Raises
    ------
    InputError
        Names the file and everything that is wrong in it.
    """
    path = path or load_site().efficiency
    if path is None:
        return DEFAULT
    hint = "write one with: opsk calibrate RUNS.csv --output FILE"
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(harmless(f"{path}: {reason}"), hint=hint) from error
    try:
        return parse_efficiency(data.decode("utf-8-sig"), origin=harmless(str(path)))
    except UnicodeDecodeError as error:
        raise InputError(harmless(f"{path}: no UTF-8 text at byte {error.start}"), hint=hint) from error
