"""How long does a collective take on a group that lies partly inside an HB domain and partly across the fabric?

Hierarchical rings: each GPU moves its share over its own NIC between domains, and the rest inside the domain
(rail-only paper, arXiv 2307.12169, equation 1). Latency grows with the steps of the ring. Sizes are those of the whole
array, as nccl-tests defines them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.machine import Machine
from opsk.costmodel.table import FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A communication group: ``inside`` ranks in each HB domain, times ``across`` domains; one entry a plan."""

    inside: FloatColumn
    across: FloatColumn

    @property
    def size(self) -> FloatColumn:
        """Ranks of the group."""
        return self.inside * self.across


def group_of(machine: Machine, *, stride: FloatColumn | float, size: FloatColumn) -> Group:
    """Return how a group of ``size`` ranks, ``stride`` ranks apart, lies over HB domains.

    Ranks are numbered with tp innermost, then cp, then dp (with ep inside it), then pp, and fill domain after domain.
    """
    inside = np.minimum(np.maximum(np.floor(machine.hb_gpus / stride), 1.0), size)
    return Group(inside=inside, across=size / inside)


def all_gather_s(machine: Machine, group: Group, size_bytes: FloatColumn, calls: FloatColumn | float) -> FloatColumn:
    """Return the time of an all-gather of ``size_bytes`` done in ``calls`` parts [s]; reduce-scatter takes the same.

    T = (y - 1) D / (x y C_nic) + (x - 1) D / (x C_hb) + calls ((x - 1) a_hb + (y - 1) a_nic).
    """
    x, y = group.inside, group.across
    across = (y - 1) / (x * y) * size_bytes / machine.nic_bytes_per_s
    inside = (x - 1) / x * size_bytes / machine.hb_bytes_per_s
    return across + inside + calls * ((x - 1) * machine.hb_hop_s + (y - 1) * machine.nic_hop_s)


def all_reduce_s(machine: Machine, group: Group, size_bytes: FloatColumn, calls: FloatColumn | float) -> FloatColumn:
    """Return the time of an all-reduce: a reduce-scatter and an all-gather [s]."""
    return 2.0 * all_gather_s(machine, group, size_bytes, calls)


def all_to_all_s(machine: Machine, group: Group, size_bytes: FloatColumn, calls: FloatColumn | float) -> FloatColumn:
    """Return the time of an all-to-all in which each rank sends ``size_bytes`` in all, 1/n of it to each rank [s].

    What leaves the domain goes over the rank's own NIC; latency is one message per peer.
    """
    x, n = group.inside, group.size
    across = (n - x) / n * size_bytes / machine.nic_bytes_per_s
    inside = (x - 1) / n * size_bytes / machine.hb_bytes_per_s
    return across + inside + calls * ((x - 1) * machine.hb_hop_s + (group.across - 1) * machine.nic_hop_s)


def point_to_point_s(
    machine: Machine, *, stride: FloatColumn, size_bytes: FloatColumn, calls: FloatColumn
) -> FloatColumn:
    """Return the time to send ``size_bytes`` in each of ``calls`` messages to the rank ``stride`` further on [s].

    ``stride`` 1 to hb_gpus - 1 stays inside the HB domain.
    """
    is_inside = stride < machine.hb_gpus
    rate = np.where(is_inside, machine.hb_bytes_per_s, machine.nic_bytes_per_s)
    return calls * (size_bytes / rate + np.where(is_inside, machine.hb_hop_s, machine.nic_hop_s))
