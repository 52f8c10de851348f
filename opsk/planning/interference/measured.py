"""Derives the loads that no plan explains: from HCA and switch counters, and from the storage traffic of nodes.

A node reads and writes through its HCAs on the storage servers' part of the fabric: those outside its rails where it
has such, as nodes with dedicated storage HCAs do, else evenly through all that are on rails. Servers share the traffic
in proportion to the rate of their HCAs, unless counters say otherwise. Metadata traffic, and servers that serve some
clients more than others, are not modelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_hca_links, find_isl_cables
from opsk.fabric.hosts.hosts import STORAGE
from opsk.fabric.leaves.leaf import Attachment
from opsk.planning.interference.links import FabricLinks, ports_of_hcas
from opsk.planning.interference.load import Load, LoadKind, traffic_load
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.traffic import Flows

_NOTICED = 0.01
"""Part of a link's rate below which unexplained traffic is ignored: counters and plans are no more accurate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRate:
    """Rates at which one port sends and receives [bytes/s], as a mean over minutes: several steps of every job."""

    sent_bytes_per_s: float = 0.0
    received_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """Rates by HCA guid, and by guid and port of switches."""

    hcas: Mapping[str, PortRate] = field(default_factory=dict)
    switch_ports: Mapping[tuple[str, int], PortRate] = field(default_factory=dict)


def at_hcas(rates: MeasuredRates, fabric: Fabric) -> MeasuredRates:
    """Return the rates, completed with those of HCAs of which only the switch port was measured."""
    hcas = dict(rates.hcas)
    for link in find_hca_links(fabric):
        facing = rates.switch_ports.get((link.switch, link.switch_port))
        if facing is not None:
            mirrored = PortRate(
                sent_bytes_per_s=facing.received_bytes_per_s, received_bytes_per_s=facing.sent_bytes_per_s
            )
            hcas.setdefault(link.hca, mirrored)
    return MeasuredRates(hcas=hcas, switch_ports=rates.switch_ports)


def measured_load(name: str, fabric_links: FabricLinks, nodes: Sequence[str], rates: MeasuredRates) -> Load | None:
    """Return the load of a job of unknown plan from the rates of its nodes' HCAs; ``None`` where none was measured.

    The counters have no destinations. The traffic is assumed to run as NCCL's rings do: from each node to the next one
    of the job, on the same rail. On the HCAs themselves both directions are as measured.
    """
    rings: defaultdict[object, list[int]] = defaultdict(list)
    hcas: list[Attachment] = []
    for node in nodes:
        for place, hca in enumerate(fabric_links.rails.attachments.get(node, ())):
            if hca.guid in rates.hcas:
                rings[("place", place) if hca.rail is None else hca.rail].append(len(hcas))
                hcas.append(hca)
    if not hcas:
        return None
    ports = ports_of_hcas(hcas)
    source = np.array([member for ring in rings.values() if len(ring) > 1 for member in ring], dtype=np.int64)
    target = np.array(
        [member for ring in rings.values() if len(ring) > 1 for member in (*ring[1:], ring[0])], dtype=np.int64
    )
    sent = np.array([rates.hcas[hca.guid].sent_bytes_per_s for hca in hcas])
    received = np.array([rates.hcas[hca.guid].received_bytes_per_s for hca in hcas])
    flows = Flows(row=np.zeros(source.size, dtype=np.int64), source=source, target=target, size_bytes=sent[source])
    links, busy = fabric_links.route({"measured": flows}, ports)
    between = links < fabric_links.switch_links
    sends, receives = (direction[:-1] for direction in np.split(fabric_links.port_links(ports), 2))
    all_links = np.concatenate([links[between], sends, receives])
    busy_share = np.concatenate(
        [busy[0][between], sent / fabric_links.rates[sends], received / fabric_links.rates[receives]]
    )
    return traffic_load(name, LoadKind.MEASURED, all_links[busy_share > 0], busy_share[busy_share > 0], nodes)


def background(fabric_links: FabricLinks, fabric: Fabric, rates: MeasuredRates, explained: RunningLoads) -> Load | None:
    """Return the traffic of links beyond that of known jobs and storage; ``None`` where nothing is left.

    A measured link carries at least the measured traffic; where plans predict more, the plans are used, since a mean
    over minutes includes pauses for checkpoints and validation.
    """
    links, used = _measure_switch_links(fabric_links, fabric, rates)
    left = used - explained.total[links]
    left[left < _NOTICED] = 0.0
    return traffic_load("unexplained", LoadKind.BACKGROUND, links[left > 0], left[left > 0]) if left.any() else None


def _measure_switch_links(fabric_links: FabricLinks, fabric: Fabric, rates: MeasuredRates) -> tuple[Index, FloatColumn]:
    """Return the links between switches that were measured, and which part of their rate is in use.

    Parallel cables count together: their mean.
    """
    carried: defaultdict[tuple[str, str], float] = defaultdict(float)
    capacity: defaultdict[tuple[str, str], float] = defaultdict(float)
    is_known_above = not fabric_links.switch_links or "" not in fabric_links.ends(0)
    for cable in find_isl_cables(fabric):
        a, b = (cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)
        for here, there in ((a, b), (b, a)):
            sending, receiving = rates.switch_ports.get(here), rates.switch_ports.get(there)
            if sending is not None:
                rate = sending.sent_bytes_per_s
            elif receiving is not None:
                rate = receiving.received_bytes_per_s
            else:
                continue
            for ends in ((here[0], there[0]),) if is_known_above else ((here[0], ""), ("", there[0])):
                carried[ends] += rate
                capacity[ends] += cable.bytes_per_s
    shares = [
        (link, carried[ends] / capacity[ends])
        for link in range(fabric_links.switch_links)
        if (ends := fabric_links.ends(link)) in carried and capacity[ends] > 0
    ]
    return np.array([link for link, _ in shares], dtype=np.int64), np.array([part for _, part in shares])


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
