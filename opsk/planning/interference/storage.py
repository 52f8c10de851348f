"""Which links does storage traffic run on, between the servers' HCAs and those of the jobs' nodes?

A node reads and writes through its HCAs on the storage servers' part of the fabric: those beside its rails where it has
such, as nodes with HCAs for storage alone do, else all that are on rails, evenly. Servers share the work by the rate
of their HCAs, unless counters say otherwise. Left out: metadata, and servers that serve some clients more than others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.fabric.hosts.hosts import STORAGE
from opsk.fabric.leaves.leaf import Attachment
from opsk.planning.interference.load import Load, LoadKind, traffic_load
from opsk.planning.interference.measured import MeasuredRates, PortRate
from opsk.planning.interference.wires import Wires, ports_of_hcas
from opsk.planning.routing.hca_seats import Index
from opsk.planning.routing.hca_traffic import Flows


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """What clients read from storage and write to it, all together [bytes/s]."""

    read_bytes_per_s: float
    write_bytes_per_s: float


def storage_servers(wires: Wires) -> tuple[str, ...]:
    """Return the hosts that serve storage."""
    return tuple(
        sorted(name for name, role in wires.rails.host_roles.items() if role == STORAGE and name in wires.elsewhere)
    )


def measured_storage(wires: Wires, servers: Sequence[str], rates: MeasuredRates) -> StorageRates | None:
    """Return what the servers' HCAs send and receive; ``None`` where none was measured."""
    known = [rates.hcas[hca.guid] for name in servers for hca in wires.elsewhere[name] if hca.guid in rates.hcas]
    if not known:
        return None
    return StorageRates(
        read_bytes_per_s=sum(rate.sent_bytes_per_s for rate in known),
        write_bytes_per_s=sum(rate.received_bytes_per_s for rate in known),
    )


def storage_load(
    name: str,
    wires: Wires,
    servers: Sequence[str],
    nodes: Sequence[str],
    storage: StorageRates,
    measured: MeasuredRates | None = None,
) -> Load | None:
    """Return the load of storage traffic of some nodes, as much to each; ``None`` where no route leads there.

    Parameters
    ----------
    measured
        Counters of the servers' HCAs, for how they share the work.
    """
    serving = [hca for server in servers for hca in wires.elsewhere.get(server, ())]
    parts = {wires.part[hca.leaf] for hca in serving if hca.leaf in wires.part}
    clients = [(row, 1.0 / len(row)) for node in nodes if (row := _clients(wires, node, parts))]
    if not serving or not clients:
        return None
    hcas = [*serving, *(hca for row, _ in clients for hca in row)]
    ports = ports_of_hcas(hcas)
    weight = np.concatenate([np.full(len(row), each) for row, each in clients]) / len(clients)
    here = np.array([wires.part.get(hca.leaf, -1) for hca in hcas])
    sends, receives = _work(serving, measured)
    client, server = np.arange(len(serving), len(hcas)), np.arange(len(serving))
    one, other = (grid.ravel() for grid in np.meshgrid(server, client, indexing="ij"))
    joined = here[one] == here[other]
    one, other = one[joined], other[joined]
    each = weight[other - len(serving)]
    links, busy = wires.laid(
        {
            "read": _flows(one, other, storage.read_bytes_per_s * each * sends[one]),
            "write": _flows(other, one, storage.write_bytes_per_s * each * receives[one]),
        },
        ports,
    )
    return traffic_load(name, LoadKind.STORAGE, links, busy.sum(axis=0), nodes)


def _clients(wires: Wires, node: str, parts: Collection[int]) -> tuple[Attachment, ...]:
    """Return the HCAs through which a node reaches the servers."""
    beside = tuple(hca for hca in wires.elsewhere.get(node, ()) if wires.part.get(hca.leaf) in parts)
    return beside or tuple(hca for hca in wires.rails.attachments.get(node, ()) if wires.part.get(hca.leaf) in parts)


def _work(serving: Sequence[Attachment], measured: MeasuredRates | None) -> tuple[FloatColumn, FloatColumn]:
    """Return the part of all reads, and of all writes, that each HCA of the servers serves."""
    known = measured.hcas if measured is not None else {}
    found = [known.get(hca.guid, PortRate()) for hca in serving]
    able = np.array([hca.bytes_per_s or 1.0 for hca in serving])
    sent = np.array([rate.sent_bytes_per_s for rate in found])
    received = np.array([rate.received_bytes_per_s for rate in found])
    reads, writes = sent if sent.any() else able, received if received.any() else able
    return reads / reads.sum(), writes / writes.sum()


def _flows(source: Index, target: Index, size: FloatColumn) -> Flows:
    """Return messages of one seating."""
    return Flows(row=np.zeros(source.size, dtype=np.int64), source=source, target=target, size_bytes=size)
