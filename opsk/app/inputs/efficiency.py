"""Loads the efficiencies for predictions: those of a file, of the site, or the ones shipped with opsk."""

from __future__ import annotations

from pathlib import Path

from opsk.config import load_site
from opsk.costmodel.efficiency.default import DEFAULT, MAX_BYTES, parse_efficiency
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape
from opsk.workload.defaults import Assumption
from opsk.workload.plan import Software


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
        raise InputError(escape(f"{path}: {reason}"), hint=hint) from error
    try:
        return parse_efficiency(data.decode("utf-8-sig"), origin=escape(str(path)))
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{path}: no UTF-8 text at byte {error.start}"), hint=hint) from error


def find_unmeasured(efficiency: Efficiency, software: Software, cluster: ClusterSpec) -> tuple[Assumption, ...]:
    """Return the note that this software was never measured on this generation of chips, where it was not."""
    architecture = cluster.node.gpu.architecture
    if efficiency.knows(architecture, software):
        return ()
    why = f"no run of {software.value} on {architecture or 'this GPU'} was measured: put together from others"
    return (Assumption(field="efficiency", value=f"{architecture or 'other'}/{software.value}", why=why),)
