"""Computes the time of a collective on a group that spans HB domains and the fabric.

The step-time model calls this module with whole columns of plans. It models what NCCL does: one ring goes through all
ranks of a domain and leaves it once, several such rings leave by different NICs, and the array streams round, so both
levels work at the same time and the slower one decides. The two phases of the rail-only paper's equation 1, one after
the other, are in `opsk.costmodel.collectives.networks`: DGX A100 (235 GB/s of NVLink, eight NICs of 25) would reach
150 GB/s of busbw on two nodes that way and 115 on many, where NVIDIA measures 192 (NCCL issue 812) of the 200 that a
streamed ring can have.

All groups of an axis run at once, so every GPU of a domain sends on its own NVLink port and has its share of the node's
NICs (``Machine.nic_bytes_per_s``), whether the domain holds many ranks of one group or one of many.

Sizes are those of the whole array, as nccl-tests defines them. Not modelled: the choice of protocol (LL, LL128), groups
that straddle domains because their size does not divide them, meshes without a switch, congestion on shared cables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from opsk.costmodel.elementwise import any_of, ceil, floor, log2, maximum, minimum, to_float, when, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.table import BoolColumn, FloatColumn

TREE_FRACTION = 0.92
"""Bandwidth of NCCL's trees over that of the rings (ncclTopoTuneModel in NCCL's src/graph/tuning.cc, 2.28)."""
NVLS_FRACTION = 0.85
"""Bandwidth of NVLink SHARP over that of the rings on Hopper (nvlsEfficiency in the same file)."""


CHAINED_GPUS = 8.0
"""GPUs of an HB domain that rings and chains visit one by one: those of a usual node."""
LEVEL_HOPS = 7.0 / 3.0
"""Hops of each doubling beyond that, so that 8 GPUs have 7 either way; not measured."""


class Algorithm(StrEnum):
    """The algorithm of an all-reduce.

    ``auto`` selects the faster of ring and tree, as NCCL's tuner does; ``sharp`` reduces in the switches between HB
    domains (NCCL's CollNet), ``nvls`` in the switches within one (NVLink SHARP).
    """

    AUTO = "auto"
    RING = "ring"
    TREE = "tree"
    SHARP = "sharp"
    NVLS = "nvls"


class Forwarding(StrEnum):
    """How an all-to-all reaches ranks on other rails: over spines, over NVLink, or over NVLink in a second phase."""

    DIRECT = "direct"
    PXN = "pxn"
    RAIL_ONLY = "rail-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A communication group: ``inside`` ranks in each HB domain, times ``across`` domains; one entry a plan."""

    inside: FloatColumn
    across: FloatColumn

    @property
    def size(self) -> FloatColumn:
        """Ranks of the group."""
        return self.inside * self.across


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The cost of a collective on a group: ``latency_s`` a call and ``s_per_byte`` of the array."""

    latency_s: FloatColumn
    s_per_byte: FloatColumn

    def time_s(self, size_bytes: FloatColumn, calls: FloatColumn | float) -> FloatColumn:
        """Return the time of an array of ``size_bytes`` done in ``calls`` parts [s]."""
        return size_bytes * self.s_per_byte + calls * self.latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """The time of a collective, and the time that each class of link of one GPU is busy with its bytes [s].

    ``total`` includes latencies. NVLink (``hb``) and the NIC (``nic``) work at the same time where an array streams
    through both.
    """

    total: FloatColumn
    hb: FloatColumn
    nic: FloatColumn

    def __add__(self, other: CollectiveTime) -> CollectiveTime:
        """Return the sum of both, one after the other."""
        return CollectiveTime(total=self.total + other.total, hb=self.hb + other.hb, nic=self.nic + other.nic)

    def times(self, count: FloatColumn | float) -> CollectiveTime:
        """Return the time of ``count`` such collectives."""
        return CollectiveTime(total=self.total * count, hb=self.hb * count, nic=self.nic * count)

    def when(self, condition: Any) -> CollectiveTime:
        """Return the time where a condition holds, 0 elsewhere."""
        return CollectiveTime(
            total=when(condition, self.total), hb=when(condition, self.hb), nic=when(condition, self.nic)
        )

    def otherwise(self, condition: Any, other: CollectiveTime) -> CollectiveTime:
        """Return the time where a condition holds, ``other`` elsewhere."""
        return CollectiveTime(
            total=where(condition, self.total, other.total),
            hb=where(condition, self.hb, other.hb),
            nic=where(condition, self.nic, other.nic),
        )


def build_group(
    machine: Machine, *, stride: FloatColumn | float, size: FloatColumn, ranks: FloatColumn | float = 0.0
) -> Group:
    """Return how a group of ``size`` ranks, ``stride`` ranks apart, is placed on HB domains.

    Ranks are numbered with tp innermost, then cp, then dp (with ep inside it), then pp, and fill domain after domain:
    as few domains as possible, equally many in each. 128 neighbouring ranks are 2 times 64 on GB200 NVL72, as they are
    allocated there.

    Where a domain is a node, all of whose GPUs a job uses, groups that do not divide it straddle its border: of three
    groups of 3 neighbours on nodes of 8 the last has ranks on both, and the slowest group sets the pace. With r ranks
    beyond whole domains that is so unless r divides the domain.

    Parameters
    ----------
    ranks
        Ranks of the job; a group of all of them, and the only one of a collective by itself, begins with a domain.
    """
    reach, domain = stride * size, machine.hb_gpus
    across = ceil(reach / domain)
    # remainders by hand: np.mod takes several times as long; 1 in place of 0 divides any domain
    beyond = reach - domain * floor(reach / domain)
    beyond = where(beyond > 0, beyond, 1.0)
    is_astride = (domain > beyond * floor(domain / beyond)) & (domain <= machine.node_gpus)
    across = minimum(across + to_float(is_astride & (reach < ranks) & (ranks > domain)), size)
    return Group(inside=size / across, across=across)


def hops_inside(ranks: FloatColumn) -> FloatColumn:
    """Return the latency steps of a small array through so many ranks of one domain, one way.

    One for each further rank up to 8. Domains of 72 to 256 GPUs are not visited in sequence when arrays are small:
    NVLink switches reduce and multicast (NVLS), and NCCL has trees and PAT; there the steps grow with the logarithm.
    """
    hops: FloatColumn = ranks - 1.0
    if not any_of(ranks > CHAINED_GPUS):
        return hops
    result: FloatColumn = minimum(hops, LEVEL_HOPS * log2(ranks))
    return result


def _ring_latency_s(machine: Machine, group: Group) -> FloatColumn:
    """Return the latency of one pass around the ring [s]."""
    y = group.across
    latency_s: FloatColumn = y * hops_inside(group.inside) * machine.hb_hop_s + (y - 1) * machine.nic_hop_s
    return latency_s


def _ring_link_s(machine: Machine, group: Group) -> tuple[FloatColumn, FloatColumn]:
    """Return the seconds of NVLink and of the NIC for each byte of an array that passes around the ring once."""
    n, y = group.size, group.across
    leaves = minimum(y - 1, 1.0) * (n - 1) / (group.inside * machine.nic_bytes_per_s)
    return (n - y) / machine.hb_bytes_per_s / n, leaves / n


def tree_pace(machine: Machine, group: Group) -> Pace:
    """Return the pace of an all-reduce in a chain inside each domain and two binary trees between them.

    The busiest rank sends the array once to one neighbour and twice to more; on two domains half of what the ring
    sends, which is why NCCL then exceeds the NICs' busbw (NCCL issues 812 and 946). Latency 2 ((x - 1) a_hb +
    log2(y) a_nic), as NCCL's tuner has it.
    """
    x, y = group.inside, group.across
    chain = minimum(x - 1, 2.0) / machine.hb_bytes_per_s
    trees = minimum(y - 1, 2.0) / (x * machine.nic_bytes_per_s)
    return Pace(
        latency_s=2.0 * (hops_inside(x) * machine.hb_hop_s + log2(y) * machine.nic_hop_s),
        s_per_byte=maximum(chain, trees) / TREE_FRACTION,
    )


def sharp_pace(machine: Machine, group: Group) -> Pace:
    """Return the pace of an all-reduce whose NIC part the switches of the fabric reduce (NCCL's CollNet).

    Inside a domain reduce-scatter and all-gather; each rank then sends 1/x of the array up and receives the result: K
    bytes and one step for the fabric, for any number of domains.
    """
    x, leaves = group.inside, minimum(group.across - 1, 1.0)
    inside = 2.0 * (x - 1) / (x * machine.hb_bytes_per_s)
    return Pace(
        latency_s=2.0 * hops_inside(x) * machine.hb_hop_s + leaves * machine.nic_hop_s,
        s_per_byte=maximum(inside, leaves / (x * machine.nic_bytes_per_s)),
    )


def schedule_bound_pace(machine: Machine, group: Group) -> Pace:
    """Return the pace of an all-reduce that no schedule can be faster than, on y domains of x ranks.

    Each rank receives and sends what others lack: 2 (x - 1)/x of the array inside the domain, and 2 (y - 1)/y of 1/x of
    it over its NIC, both at the same time, in 2 log2 steps. Synthesised schedules (SCCL, TACCL, MSCCL) come near it;
    the ring sends (n - 1)/n in place of (y - 1)/y. Source: Cai et al. 2021, "Synthesizing optimal collective
    algorithms".
    """
    x, y = group.inside, group.across
    inside = 2.0 * (x - 1) / (x * machine.hb_bytes_per_s)
    across = 2.0 * (y - 1) / (y * x * machine.nic_bytes_per_s)
    return Pace(
        latency_s=2.0 * (log2(x) * machine.hb_hop_s + log2(y) * machine.nic_hop_s),
        s_per_byte=maximum(inside, across),
    )


def nvls_pace(machine: Machine, group: Group) -> Pace:
    """Return the pace of an all-reduce in the NVSwitches of each domain and two trees between them (NVLSTree)."""
    x, y = group.inside, group.across
    share = minimum(x - 1, 1.0)
    inside = share * (x + 1) / (x * NVLS_FRACTION * machine.hb_bytes_per_s)
    return Pace(
        latency_s=2.0 * (share * machine.hb_hop_s + log2(y) * machine.nic_hop_s),
        s_per_byte=maximum(inside, minimum(y - 1, 2.0) / (x * machine.nic_bytes_per_s)),
    )


def all_gather_s(machine: Machine, group: Group, size_bytes: FloatColumn, calls: FloatColumn | float) -> FloatColumn:
    """Return the time of an all-gather of ``size_bytes`` done in ``calls`` parts [s]; reduce-scatter takes the same.

    Always a ring: NCCL has no other for groups with several ranks in a node (its PAT requires one).
    """
    return all_gather(machine, group, size_bytes, calls).total


def all_gather(machine: Machine, group: Group, size_bytes: FloatColumn, calls: FloatColumn | float) -> CollectiveTime:
    """Return the same with what each link carries."""
    hb, nic = (size_bytes * link_s for link_s in _ring_link_s(machine, group))
    return CollectiveTime(total=maximum(nic, hb) + calls * _ring_latency_s(machine, group), hb=hb, nic=nic)


def all_reduce(
    machine: Machine,
    group: Group,
    size_bytes: FloatColumn,
    calls: FloatColumn | float,
    *,
    in_network: BoolColumn | bool = False,
) -> CollectiveTime:
    """Return the time of the fastest all-reduce, and that of each link.

    Trees and switches that reduce send less than the ring; their links are assumed busy as with the ring, but for
    no longer than the total.
    """
    ring = all_gather(machine, group, size_bytes, calls).times(2.0)
    if not any_of(group.across > 1):
        return ring
    total = all_reduce_s(machine, group, size_bytes, calls, in_network=in_network)
    return CollectiveTime(total=total, hb=minimum(ring.hb, total), nic=minimum(ring.nic, total))


def all_reduce_s(
    machine: Machine,
    group: Group,
    size_bytes: FloatColumn,
    calls: FloatColumn | float,
    algorithm: Algorithm = Algorithm.AUTO,
    *,
    in_network: BoolColumn | bool = False,
) -> FloatColumn:
    """Return the time of an all-reduce of ``size_bytes`` done in ``calls`` parts [s].

    ``auto`` is the fastest of ring, tree and, where the fabric's switches can reduce (``in_network``), SHARP. Inside
    one domain that is the ring: NCCL's tree is a chain there.
    """
    if algorithm in _PACES:
        return _PACES[algorithm](machine, group).time_s(size_bytes, calls)
    ring_s = 2.0 * all_gather_s(machine, group, size_bytes, calls)
    if algorithm is Algorithm.RING or not any_of(group.across > 1):
        return ring_s
    best_s = minimum(ring_s, tree_pace(machine, group).time_s(size_bytes, calls))
    if in_network is not False:
        sharp_s = sharp_pace(machine, group).time_s(size_bytes, calls)
        best_s = where(in_network, minimum(best_s, sharp_s), best_s)
    return best_s


_PACES = {Algorithm.TREE: tree_pace, Algorithm.SHARP: sharp_pace, Algorithm.NVLS: nvls_pace}


def all_to_all(
    machine: Machine,
    group: Group,
    size_bytes: FloatColumn,
    calls: FloatColumn | float,
    forwarding: Forwarding = Forwarding.PXN,
    *,
    hb_share: float = 1.0,
) -> CollectiveTime:
    """Return the time of an all-to-all in which each rank sends ``size_bytes`` in all, 1/n of it to each rank.

    What leaves the domain goes over the rank's own NIC share: (n - x)/n. NVLink carries (x - 1)/n when the fabric
    takes messages to any rail (``direct``, rail-only paper, equation 2), and (x - 1)/x when they are first sent to
    the NIC on the rail of their destination (``pxn``, NCCL since 2.12). Both levels work at once; a rail-only
    fabric forwards in two phases, one after the other (equation 3). Steps: one message per peer; PXN and forwarding
    put those to one domain together. ``hb_share`` of NVLink's rate for rings is reached.
    """
    x, n = group.inside, group.size
    across = size_bytes * ((n - x) / (n * machine.nic_bytes_per_s))
    forwards = forwarding is not Forwarding.DIRECT
    inside = size_bytes * ((x - 1) / ((x if forwards else n) * (hb_share * machine.hb_bytes_per_s)))
    messages = group.across - 1 if forwards else n - x
    streamed = across + inside if forwarding is Forwarding.RAIL_ONLY else maximum(across, inside)
    latency_s = (x - 1) * machine.hb_hop_s + messages * machine.nic_hop_s
    return CollectiveTime(total=streamed + calls * latency_s, hb=inside, nic=across)


def point_to_point(
    machine: Machine,
    *,
    stride: FloatColumn,
    size_bytes: FloatColumn,
    calls: FloatColumn,
    ranks: FloatColumn | float = 1.0,
) -> CollectiveTime:
    """Return the time to send ``size_bytes`` in each of ``calls`` messages to the rank ``stride`` further on.

    ``ranks`` that are ``stride`` apart stay inside if all of them fit into one HB domain; else the boundary between
    two domains decides, since the slowest stage of a pipeline does. Only the ``stride`` ranks at that boundary send
    then, and share the NICs of their node: each has more than its share if they are few, but no more than one NIC.
    """
    is_inside = (stride < machine.hb_gpus) & (stride * ranks <= machine.hb_gpus)
    one_nic = machine.node_gpus / maximum(machine.nics, 1.0)
    nic_bytes_per_s = machine.nic_bytes_per_s * maximum(minimum(one_nic, machine.hb_gpus / stride), 1.0)
    rate = where(is_inside, machine.hb_bytes_per_s, nic_bytes_per_s)
    streamed = calls * size_bytes / rate
    return CollectiveTime(
        total=streamed + calls * where(is_inside, machine.hb_hop_s, machine.nic_hop_s),
        hb=where(is_inside, streamed, 0.0),
        nic=where(is_inside, 0.0, streamed),
    )
