"""Computes the effect of in-network aggregation and optical circuits on the step time, and their price and power.

Each technique replaces the communication of a plan in the step by its own closed form (`opsk.costmodel.collectives`).
Aggregation shortens all-reduces only: with a sharded optimizer gradients are reduce-scattered and weights gathered, and
neither gets shorter. Plans without a sharded optimizer are therefore evaluated as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from opsk.costmodel.collectives import networks
from opsk.costmodel.collectives.hierarchical import (
    Group,
    all_gather_s,
    all_reduce_s,
    build_group,
    hops_inside,
    schedule_bound_pace,
)
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.machine import Machine, build_machine
from opsk.costmodel.network_cost import NetworkParts, PartPrices, network_cost_usd, network_power_w
from opsk.costmodel.predict import predict
from opsk.costmodel.sizes.parameters import count_parameters
from opsk.costmodel.sizes.pipeline import build_stages
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import Shares, compute_shares
from opsk.costmodel.table import FloatColumn, PlanTable, TimeTable
from opsk.costmodel.time.optimizer_time import trained_parameters
from opsk.costmodel.uncertainty.offset import compute_offset_factor
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

CUBE, CUBE_LINKS, TORUS_LINKS = 64, 96, 6
"""Endpoints of a cube of 4 x 4 x 4, its links to circuit switches (16 on each face), and links of an endpoint."""


class Technique(StrEnum):
    """The techniques that a network may add to switches."""

    SHARP = "sharp"
    """Switches that reduce what passes through them (NVIDIA SHARP)."""
    OPTCAST = "optcast"
    """CPU servers on the fabric that take a part of each all-reduce (NTT Optcast, Google's Reduction Server)."""
    SMARTNIC = "smartnic"
    """NICs that add up what streams through them, on circuits between workers (NTT 2024)."""
    OPTICAL = "optical"
    """Optical circuit switches between NICs and leaves, to bring an idle GPU onto the rail of a failed one."""
    TOPOOPT = "topoopt"
    """No packet switches: optical circuits as one job needs them (TopoOpt, Wang et al., NSDI 23)."""
    JUPITER = "jupiter"
    """Optical circuit switches in place of the top tier of packet switches (Poutievski et al., SIGCOMM 22)."""
    TORUS = "torus"
    """No packet switches: a 3D torus of cubes of 4 x 4 x 4, joined by circuits (TPU v4, Jouppi et al., ISCA 23)."""
    TACCL = "taccl"
    """Schedules synthesised for the topology (TACCL, Shah et al., NSDI 23; SCCL, MSCCL)."""


ASSUMES: Mapping[Technique, tuple[str, ...]] = {
    Technique.SHARP: (
        "every switch reduces at line rate, for one job alone; its price is that of the switch",
        "all-reduces alone gain: the reduce-scatter of a sharded optimizer does not",
    ),
    Technique.OPTCAST: (
        "servers have the NICs of a node and add up as fast as these deliver; rings take the rest at the same time",
        "all-reduces alone gain; all data-parallel groups share the servers evenly",
    ),
    Technique.SMARTNIC: (
        "workers of a data-parallel group are joined by circuits, each NIC being split into interfaces of equal rate",
        "the same bytes in fewer transfers, one after the other: latency falls, bandwidth does not",
        "the price of circuits and packet switches beside each other; smart NICs cost no more than others",
    ),
    Technique.OPTICAL: (
        "no step changes: circuits are switched after a failure only",
        "every NIC goes through a circuit switch, with two ports for each; a site may do with fewer",
    ),
    Technique.TOPOOPT: (
        "circuits are set once for one job: rings for data parallelism, a chain for the pipeline, nothing else",
        "each NIC is split into interfaces of equal rate; where both cross domains the pipeline takes two of them",
        "an all-to-all between domains is forwarded by hosts, log(domains) to the base of interfaces - 1 times",
        "ports of circuit switches are those of the largest that exist or are joined without loss",
    ),
    Technique.JUPITER: (
        "no step changes: circuits between the blocks of leaves are set to the traffic of the job",
        "each uplink has one port of a circuit switch, and a transceiver at the block's end only",
    ),
    Technique.TORUS: (
        "each NIC is split into six links of equal rate, two in each direction; links inside a cube are copper",
        "rings of data parallelism use all directions; where stages cross domains too, the pipeline takes one of three",
        "an all-to-all between domains passes 3/4 of a side of the torus of domains on average",
        "48 circuit switches join all cubes, two ports for each: those of TPU v4 have 136, enough for 64 cubes",
    ),
    Technique.TACCL: (
        "data parallelism is at its bound: (y - 1)/y of 1/x of the array over each NIC, for y domains of x GPUs",
        "a bound, which a synthesised schedule meets at best; it was searched for this topology and loaded (MSCCL)",
    ),
}
"""The assumptions of each technique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Sizes and prices of the parts that techniques add.

    Parameters
    ----------
    servers_per_node
        Reduction servers for each node.
    interfaces
        Interfaces that a NIC is split into where circuits join workers; the NTT talk has 4.
    usd_per_server, w_per_server
        A CPU server with NICs: assumed, a site gives its own.
    usd_per_circuit_port, w_per_circuit_port
        A port of an optical circuit switch: 520 USD as TopoOpt (NSDI 23) counts it, from memory; the power of a
        MEMS switch of some hundred ports, about 50 W, from memory.
    """

    servers_per_node: float = 0.25
    interfaces: int = 4
    usd_per_server: float = 10_000.0
    w_per_server: float = 500.0
    usd_per_circuit_port: float = 520.0
    w_per_circuit_port: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The cost [USD], power [W] and parts of a network with its options."""

    switches: int
    transceivers: int
    circuit_ports: int
    servers: int
    cost_usd: float
    power_w: float


def bill(
    parts: NetworkParts, prices: PartPrices, *, nodes: int, technique: Technique | None = None,
    extras: Extras | None = None,
) -> Bill:  # fmt: skip
    """Return the bill of a network; reduction servers need ports too, at the price of a port of this network."""
    extras = extras or Extras()
    cost_usd, power_w = network_cost_usd(parts, prices), network_power_w(parts, prices)
    switches, transceivers, ports, servers = parts.switches, parts.transceivers, 0, 0
    if technique is Technique.OPTCAST:
        servers = max(round(extras.servers_per_node * nodes), 1)
        more = 1 + servers / nodes
        cost_usd, power_w = cost_usd * more, power_w * more
        switches, transceivers = round(switches * more), round(transceivers * more)
    elif technique is Technique.TOPOOPT:
        # one transceiver a NIC, split into interfaces: they share its rate and so its price
        cost_usd = prices.usd_per_transceiver * parts.endpoints
        power_w = prices.w_per_transceiver * parts.endpoints
        switches, transceivers, ports = 0, parts.endpoints, parts.endpoints * extras.interfaces
    elif technique is Technique.TORUS:
        # a transceiver a link of a sixth of the rate, and of the price
        ports = transceivers = -(-parts.endpoints // CUBE) * CUBE_LINKS
        switches = 0
        cost_usd = prices.usd_per_transceiver * transceivers / TORUS_LINKS
        power_w = prices.w_per_transceiver * transceivers / TORUS_LINKS
    elif technique is Technique.JUPITER and parts.tiers > 1:
        ports = count_uplinks(parts)
        switches, transceivers = switches - -(-ports // parts.radix), transceivers - ports
        cost_usd -= ports * (prices.usd_per_switch_port + prices.usd_per_transceiver)
        power_w -= ports * (prices.w_per_switch_port + prices.w_per_transceiver)
    elif technique is Technique.SMARTNIC:
        ports = parts.endpoints * extras.interfaces
    elif technique is Technique.OPTICAL:
        ports = 2 * parts.endpoints
    return Bill(
        switches=switches,
        transceivers=transceivers,
        circuit_ports=ports,
        servers=servers,
        cost_usd=cost_usd + ports * extras.usd_per_circuit_port + servers * extras.usd_per_server,
        power_w=power_w + ports * extras.w_per_circuit_port + servers * extras.w_per_server,
    )


def count_uplinks(parts: NetworkParts) -> int:
    """Return the links between the top tier and the one below: each tier above the leaves has as many."""
    return round((parts.transceivers / 2 - parts.endpoints) / (parts.tiers - 1)) if parts.tiers > 1 else 0


def reprice_steps(
    model: ModelShape,
    plans: Sequence[Plan],
    cluster: ClusterSpec,
    technique: Technique,
    *,
    extras: Extras,
    efficiency: Efficiency,
) -> FloatColumn:
    """Return the step of each plan with an option [s]; infinite where the option cannot carry its traffic.

    `Technique.SHARP` is in the cost model itself (``ClusterSpec.in_network_reduction``), `Technique.OPTICAL`
    and `Technique.JUPITER` change no step.
    """
    work = _Work.of(model, plans, cluster, efficiency)
    if technique is Technique.OPTCAST:
        return work.with_dense(_servers_s(work, extras, cluster.nodes))
    if technique is Technique.SMARTNIC:
        return work.with_dense(_streamed_s(work, extras))
    if technique is Technique.TOPOOPT:
        return work.on_circuits(extras.interfaces)
    if technique is Technique.TORUS:
        return work.on_circuits(TORUS_LINKS, is_torus=True)
    if technique is Technique.TACCL:
        return work.with_synthesised_schedules()
    return work.step_s


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Plans with their prediction, and the all-reduce of their dense gradients."""

    time: TimeTable
    shares: Shares
    machine: Machine
    group: Group
    size_bytes: FloatColumn
    dense_s: FloatColumn
    helps: FloatColumn
    offset: FloatColumn
    """Factor by which the software is slower than its parts (`opsk.costmodel.uncertainty.offset`), as in ``time``."""

    @classmethod
    def of(cls, model: ModelShape, plans: Sequence[Plan], cluster: ClusterSpec, efficiency: Efficiency) -> _Work:
        """Return plans as the cost model has them."""
        table, columns = PlanTable.of(plans), build_shape(model)
        machine = build_machine(cluster, table.precision, efficiency)
        shares = compute_shares(columns, table)
        stages = build_stages(columns, shares)
        trained = trained_parameters(shares, count_parameters(columns, shares, stages)).dense.max(axis=0)
        group = build_group(machine, stride=shares.tp, size=shares.replicas, ranks=shares.gpus)
        size_bytes = trained * shares.reduced_bytes
        return cls(
            time=predict(model, table, cluster, efficiency).time,
            shares=shares,
            machine=machine,
            group=group,
            size_bytes=size_bytes,
            dense_s=all_reduce_s(machine, group, size_bytes, 1.0),
            helps=np.where(shares.shards_optimizer | (group.across <= 1), 0.0, 1.0),
            offset=np.ones(len(plans))
            if (factor := compute_offset_factor(efficiency.offset, table, "time")) is None
            else factor,
        )

    @property
    def step_s(self) -> FloatColumn:
        """Step without any option [s]."""
        return self.time.step_s.expected

    def with_dense(self, nic_s: FloatColumn) -> FloatColumn:
        """Return the steps when the part of the all-reduce between domains takes ``nic_s``, if that is shorter [s]."""
        inside = self.group.inside
        inside_s = 2.0 * (inside - 1.0) / inside * self.size_bytes / self.machine.hb_bytes_per_s
        inside_s = inside_s + 2.0 * hops_inside(inside) * self.machine.hb_hop_s
        saved = np.maximum(self.dense_s - np.maximum(inside_s, nic_s), 0.0) * self.helps * self.offset
        return self._with({"dp": self.time.communication["dp"] - saved})

    def with_synthesised_schedules(self) -> FloatColumn:
        """Return the steps when data parallelism takes as long as no schedule can be faster than [s]."""
        ring_s = 2.0 * all_gather_s(self.machine, self.group, self.size_bytes, 1.0)
        usual_s = np.where(
            self.shares.shards_optimizer, ring_s, all_reduce_s(self.machine, self.group, self.size_bytes, 1.0)
        )
        bound_s = schedule_bound_pace(self.machine, self.group).time_s(self.size_bytes, 1.0)
        share = np.minimum(bound_s / np.maximum(usual_s, 1e-12), 1.0)
        return self._with({"dp": self.time.communication["dp"] * np.where(self.group.across > 1, share, 1.0)})

    def on_circuits(self, interfaces: int, *, is_torus: bool = False) -> FloatColumn:
        """Return the steps when circuits join the domains, ``interfaces`` a NIC, at will or as a 3D torus [s]."""
        shares, machine = self.shares, self.machine
        traffic = self.time.communication
        domain = machine.hb_gpus
        stage = shares.tp * shares.cp * shares.dp
        rings = (self.group.across > 1).astype(np.float64)
        chain = ((shares.pp > 1) & (stage * shares.pp > domain)).astype(np.float64)
        slower = np.where((rings > 0) & (chain > 0), interfaces / max(interfaces - 2.0, 0.5), 1.0)
        message = np.where(rings > 0, float(interfaces), interfaces / 2.0)
        experts = build_group(machine, stride=shares.etp, size=shares.ep, ranks=shares.gpus)
        domains = np.maximum(experts.across, 1.0)
        at_will = np.log(domains) / np.log(max(interfaces - 1.0, 2.0))
        hops = np.maximum(0.75 * np.cbrt(domains) if is_torus else at_will, 1.0)
        step_s_ = self._with(
            {
                "dp": traffic["dp"] * np.where(rings > 0, slower, 1.0),
                "cp": traffic["cp"] * np.where((shares.cp > 1) & (shares.tp * shares.cp > domain), slower, 1.0),
                "pp": traffic["pp"] * np.where(chain > 0, message, 1.0),
                "ep": traffic["ep"] * np.where(experts.across > 1, hops, 1.0),
            }
        )
        return np.where(shares.tp > domain, np.inf, step_s_)

    def _with(self, traffic: Mapping[str, FloatColumn]) -> FloatColumn:
        """Return the steps with other times of communication; what hides, and stragglers, stay in proportion."""
        parts = self.time.components
        straggling = self.step_s / (self.step_s - parts["straggler"])
        running = sum(parts[name] for name in ("compute", "recompute", "tp", "cp", "ep", "pp"))
        waits = 1.0 + parts["bubble"] / np.maximum(running, 1e-12)
        step_s = self.step_s
        for axis, total_s in traffic.items():
            before_s, shown_s = self.time.communication[axis], parts[axis]
            late_s = np.maximum(total_s - self.time.windows[axis], 0.0)
            if axis == "pp":  # a part of each message hides, however long it is
                then_s = shown_s * total_s / np.maximum(before_s, 1e-12)
            else:
                then_s = np.where(shown_s > 0, np.maximum(shown_s + total_s - before_s, 0.0), late_s)
            step_s = step_s + straggling * (1.0 if axis == "dp" else waits) * (then_s - shown_s)
        return step_s


def _servers_s(work: _Work, extras: Extras, nodes: int) -> FloatColumn:
    """Return the time of the part between domains when reduction servers take a share of it [s]."""
    servers = max(round(extras.servers_per_node * nodes), 1)
    rate = np.broadcast_to(work.machine.nic_bytes_per_s, work.size_bytes.shape)
    times = [
        networks.server_all_reduce_s(
            float(size / inside),
            workers=max(round(float(across)), 1),
            servers=servers,
            worker_bytes_per_s=float(nic),
            # all workers of all groups share the servers: each group has its part of them
            server_bytes_per_s=float(nic) * float(across) / nodes,
            hop_s=float(work.machine.nic_hop_s),
        )
        for size, inside, across, nic in zip(work.size_bytes, work.group.inside, work.group.across, rate, strict=True)
    ]
    return np.array(times)


def _streamed_s(work: _Work, extras: Extras) -> FloatColumn:
    """Return the time of the part between domains when smart NICs stream along trees of circuits [s]."""
    rate = np.broadcast_to(work.machine.nic_bytes_per_s, work.size_bytes.shape)
    times = []
    for size, inside, across, nic in zip(work.size_bytes, work.group.inside, work.group.across, rate, strict=True):
        workers = max(round(float(across)), 1)
        times.append(
            networks.circuit_all_reduce_s(
                float(size / inside),
                transfers=networks.streamed_transfers(workers, interfaces=extras.interfaces),
                workers=workers,
                interfaces=extras.interfaces,
                bytes_per_s=float(nic) / extras.interfaces,
                hop_s=float(work.machine.nic_hop_s),
            )
        )
    return np.array(times)
