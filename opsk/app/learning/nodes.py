"""Reads measured nodes, checks that they are of the site, and keeps them for later fits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from opsk.app.inputs.named_inputs import load_cluster
from opsk.app.learning.fits import replace_file
from opsk.calibration.learning.evidence import NodeMeasurement
from opsk.config import SiteConfig
from opsk.errors import InputError, OpskError
from opsk.probe.comparison import find_probe_cluster
from opsk.probe.document import MAX_BYTES, ProbeDocument, parse_probe
from opsk.text import escape, format_share

NODES = "nodes"
MAX_NODES = 20
"""Number of documents that are kept and read."""
OTHER_DRIVER_WEIGHT = 0.25
"""Weight of a measurement with a driver that no node has any more: its kernels and limits may be others."""
NO_DRIVERS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNodes:
    """The measured nodes of a site, those that are fitted to, and what is wrong with them or with others."""

    measurements: tuple[NodeMeasurement, ...]
    warnings: tuple[str, ...]


def read_probe(path: Path) -> ProbeDocument:
    """Read a measurement.

    Raises
    ------
    InputError
        It cannot be read, or is none.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            escape(f"{path}: {error.strerror}"), hint="opsk probe --sbatch writes the script that measures"
        ) from error
    return parse_probe(text, origin=escape(str(path)))


def list_stored_nodes(folder: Path) -> list[Path]:
    """Return the documents that are kept in a folder of learning, the newest names first."""
    return sorted((folder / NODES).glob("*.json"), reverse=True)[:MAX_NODES]


def store_node(folder: Path, document: ProbeDocument, text: str) -> None:
    """Keep a document for later fits: one a GPU and time.

    Raises
    ------
    InputError
        It cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{document.measured_at} {document.machine.gpu}").strip("-")[:100]
    replace_file(folder / NODES / f"{name}.json", text)


def read_nodes(
    named: Sequence[Path], stored: Sequence[Path], site: SiteConfig, drivers: Mapping[str, int] = NO_DRIVERS
) -> SiteNodes:
    """Return the measured nodes that a fit can use.

    Parameters
    ----------
    named
        Files that a user named: a wrong one is an error.
    stored
        Files of the folder of learning: a wrong one is passed over, with a warning.
    drivers
        How many nodes have each driver; empty where no node was read.

    Raises
    ------
    InputError
        A named file is torn, is no measurement, or is of another GPU than the site's.
    """
    spec = load_cluster(site.cluster) if site.cluster is not None else None
    warnings: list[str] = []
    read: list[NodeMeasurement] = []
    for path in (*named, *stored):
        try:
            document = read_probe(path)
            try:
                read.append(NodeMeasurement(document=document, cluster=find_probe_cluster(document, spec)))
            except OpskError as error:
                raise InputError(f"{escape(str(path))}: {error.message}", hint=error.hint) from error
        except InputError as error:
            if path in named:
                raise
            warnings.append(f"not used: {error.message}")
    usable = [_judge_driver(item, drivers, warnings) for item in _drop_outdated(read, warnings)]
    for item in usable:
        warnings += list_warnings(item.document)
    return SiteNodes(measurements=tuple(usable), warnings=tuple(dict.fromkeys(warnings)))


def _drop_outdated(read: Sequence[NodeMeasurement], warnings: list[str]) -> list[NodeMeasurement]:
    """Return the measurements with the driver that the last one of the same GPU has."""
    newest: dict[str, ProbeDocument] = {}
    for item in read:
        gpu = item.cluster.node.gpu.name
        if gpu not in newest or _get_time(item.document) > _get_time(newest[gpu]):
            newest[gpu] = item.document
    usable = []
    for item in read:
        gpu, driver = item.cluster.node.gpu.name, item.document.machine.driver
        current = newest[gpu].machine.driver
        if driver and current and driver != current:
            warnings.append(
                f"not used: the measurement of {gpu} at {escape(item.document.measured_at)} with driver "
                f"{escape(driver)}; a later one has {escape(current)}"
            )
            continue
        usable.append(item)
    return usable


def _get_time(document: ProbeDocument) -> float:
    try:
        return datetime.fromisoformat(document.measured_at).timestamp()
    except ValueError:
        return 0.0


def list_warnings(document: ProbeDocument) -> list[str]:
    """Return what makes a measurement less certain."""
    warnings = []
    gpu = escape(document.machine.gpu)
    if document.throttled_share > 0:
        share = format_share(document.throttled_share)
        warnings.append(f"{gpu}: heat held the clock down in {share} of the measurements: they count less")
    if document.disturbed:
        warnings.append(f"{gpu}: {document.disturbed} measurements varied by more than 10 %: they count less")
    return warnings


def _judge_driver(item: NodeMeasurement, drivers: Mapping[str, int], warnings: list[str]) -> NodeMeasurement:
    """Return a measurement with its weight, which is less where nodes have another driver and none has its own."""
    document = item.document
    measured, usual = document.machine.driver, max(drivers, key=lambda driver: drivers[driver], default="")
    if not measured or drivers.get(measured, 0) >= drivers.get(usual, 0):
        return item
    nodes = sum(drivers.values())
    who = f"{drivers[usual]} of {nodes} nodes have" if nodes > 1 else "the node that answers has"
    text = f"{escape(document.machine.gpu)}: measured with driver {escape(measured)}, and {who} {escape(usual)}"
    if measured in drivers:
        warnings.append(text)
        return item
    warnings.append(f"{text}: it counts less; probe a node again")
    return replace(item, weight=OTHER_DRIVER_WEIGHT)
