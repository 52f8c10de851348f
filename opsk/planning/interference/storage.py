"""Computes the links that storage traffic uses between the HCAs of the servers and those of the jobs' nodes.

A node reads and writes through its HCAs on the storage servers' part of the fabric: those outside its rails where it
has such, as nodes with dedicated storage HCAs do, else evenly through all that are on rails. Servers share the traffic
in proportion to the rate of their HCAs, unless counters say otherwise. Metadata traffic, and servers that serve some
clients more than others, are not modelled.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.fabric.hosts.hosts import STORAGE
from opsk.fabric.leaves.leaf import Attachment
from opsk.planning.interference.links import FabricLinks, ports_of_hcas
from opsk.planning.interference.load import Load, LoadKind, traffic_load
from opsk.planning.interference.measured import MeasuredRates, PortRate
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.hca_traffic import Flows


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """Total rates at which clients read from storage and write to it [bytes/s]."""

    read_bytes_per_s: float
    write_bytes_per_s: float


def storage_servers(fabric_links: FabricLinks) -> tuple[str, ...]:
    """Return the hosts that serve storage."""
    return tuple(
        sorted(
            name
            for name, role in fabric_links.rails.host_roles.items()
            if role == STORAGE and name in fabric_links.elsewhere
        )
    )


def measured_storage(fabric_links: FabricLinks, servers: Sequence[str], rates: MeasuredRates) -> StorageRates | None:
    """Return the rates of the servers' HCAs; ``None`` where none was measured."""
    known = [rates.hcas[hca.guid] for name in servers for hca in fabric_links.elsewhere[name] if hca.guid in rates.hcas]
    if not known:
        return None
    return StorageRates(
        read_bytes_per_s=sum(rate.sent_bytes_per_s for rate in known),
        write_bytes_per_s=sum(rate.received_bytes_per_s for rate in known),
    )


def storage_load(
    name: str,
    fabric_links: FabricLinks,
    servers: Sequence[str],
    nodes: Sequence[str],
    storage: StorageRates,
    measured: MeasuredRates | None = None,
) -> Load | None:
    """Return the load of storage traffic of some nodes, split evenly; ``None`` where there is no route.

    Parameters
    ----------
    measured
        Counters of the servers' HCAs, for their shares of the traffic.
    """
    serving = [hca for server in servers for hca in fabric_links.elsewhere.get(server, ())]
    parts = {fabric_links.part[hca.leaf] for hca in serving if hca.leaf in fabric_links.part}
    clients = [(row, 1.0 / len(row)) for node in nodes if (row := _find_client_hcas(fabric_links, node, parts))]
    if not serving or not clients:
        return None
    hcas = [*serving, *(hca for row, _ in clients for hca in row)]
    ports = ports_of_hcas(hcas)
    weight = np.concatenate([np.full(len(row), share_of_client) for row, share_of_client in clients]) / len(clients)
    part_of_hca = np.array([fabric_links.part.get(hca.leaf, -1) for hca in hcas])
    sends, receives = _split_traffic(serving, measured)
    client, server = np.arange(len(serving), len(hcas)), np.arange(len(serving))
    source, target = (grid.ravel() for grid in np.meshgrid(server, client, indexing="ij"))
    joined = part_of_hca[source] == part_of_hca[target]
    source, target = source[joined], target[joined]
    share_of_client = weight[target - len(serving)]
    links, busy = fabric_links.route(
        {
            "read": _build_flows(source, target, storage.read_bytes_per_s * share_of_client * sends[source]),
            "write": _build_flows(target, source, storage.write_bytes_per_s * share_of_client * receives[source]),
        },
        ports,
    )
    return traffic_load(name, LoadKind.STORAGE, links, busy.sum(axis=0), nodes)


def _find_client_hcas(fabric_links: FabricLinks, node: str, parts: Collection[int]) -> tuple[Attachment, ...]:
    """Return the HCAs through which a node reaches the servers."""
    off_rail = tuple(hca for hca in fabric_links.elsewhere.get(node, ()) if fabric_links.part.get(hca.leaf) in parts)
    return off_rail or tuple(
        hca for hca in fabric_links.rails.attachments.get(node, ()) if fabric_links.part.get(hca.leaf) in parts
    )


def _split_traffic(serving: Sequence[Attachment], measured: MeasuredRates | None) -> tuple[FloatColumn, FloatColumn]:
    """Return the part of all reads, and of all writes, that each HCA of the servers serves."""
    known = measured.hcas if measured is not None else {}
    rates = [known.get(hca.guid, PortRate()) for hca in serving]
    capacity = np.array([hca.bytes_per_s or 1.0 for hca in serving])
    sent = np.array([rate.sent_bytes_per_s for rate in rates])
    received = np.array([rate.received_bytes_per_s for rate in rates])
    reads, writes = sent if sent.any() else capacity, received if received.any() else capacity
    return reads / reads.sum(), writes / writes.sum()


def _build_flows(source: Index, target: Index, size: FloatColumn) -> Flows:
    """Return the messages of one placement."""
    return Flows(row=np.zeros(source.size, dtype=np.int64), source=source, target=target, size_bytes=size)
