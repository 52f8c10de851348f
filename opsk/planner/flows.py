"""How many bytes go from which HCA port to which in one step, when ranks sit where they sit?

Rings run through the HB domains of a group in the order of its ranks. A ring's traffic between two domains is split
evenly over channels, one for each of the group's GPUs there, and NCCL pairs channels that are on one leaf, or else on
one rail, where it can. Pipeline messages, ring attention and all-to-all go straight from GPU to GPU. Bytes that stay
inside an HB domain do not appear. Left out: forwarding through a GPU near the receiver's rail (PXN).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planner.ranks import RankGrid
from opsk.planner.seats import Index, Ports
from opsk.planner.traffic import StepBytes

Flows = npt.NDArray[np.float64]
_Batch = tuple[Index, Index, FloatColumn]
_PAIRS_AT_ONCE = 1 << 22
"""Channel pairs compared at once: bounds memory to some tens of MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Where every rank sits, one entry a rank: ``node`` and ``gpu`` index, ``domain`` (HB), ``port`` of `Ports`."""

    node: Index
    gpu: Index
    domain: Index
    port: Index


def port_flows(grid: RankGrid, sent: StepBytes, seating: Seating, ports: Ports) -> tuple[Flows, float]:
    """Return the bytes of one step from port to port, and how many of them are tensor-parallel.

    The flows have shape (ports, ports); what is on the diagonal stays on its leaf and rail.
    """
    _, dp, cp, tp = grid.ranks.shape
    count = len(ports.leaf)
    total = np.zeros(count * count)

    def add(batches: Iterator[_Batch]) -> None:
        for source, target, size in batches:
            total[:] += np.bincount(source * count + target, weights=size, minlength=count * count)

    add(_ring(grid.ranks.reshape(-1, tp), np.repeat(sent.tp, dp * cp), seating, ports))
    tensor_bytes = float(total.sum())
    add(_outside_tensor_groups(grid, sent, seating, ports))
    return total.reshape(count, count), tensor_bytes


def _outside_tensor_groups(grid: RankGrid, sent: StepBytes, seating: Seating, ports: Ports) -> Iterator[_Batch]:
    """Yield source port, target port and bytes of every message kind of a step but tensor-parallel ones."""
    stages, dp, cp, tp = grid.ranks.shape
    by_cp = grid.ranks.transpose(0, 1, 3, 2).reshape(-1, cp)
    yield from _neighbours(by_cp, np.repeat(sent.cp, dp * tp), seating)
    yield from _ring(grid.data.reshape(-1, dp * cp), np.repeat(sent.dp, tp), seating, ports)
    if sent.ep.any() or sent.expert_dp.any():
        groups = grid.experts.shape[1]
        yield from _all_to_all(grid.experts.reshape(-1, grid.ep), np.repeat(sent.ep, groups), seating)
        by_expert = grid.expert_data
        yield from _ring(
            by_expert.reshape(-1, by_expert.shape[2]), np.repeat(sent.expert_dp, by_expert.shape[1]), seating, ports
        )
    if stages > 1:
        yield from _pipeline(grid.ranks, sent, seating)


def _pipeline(ranks: Index, sent: StepBytes, seating: Seating) -> Iterator[_Batch]:
    """Messages between stages, and the tied embedding between the ends."""
    for lower, upper, size in (
        (ranks[:-1], ranks[1:], sent.pp_forward),
        (ranks[-1], ranks[0], sent.pp_wrap),
        (ranks[-1], ranks[0], sent.embedding),
    ):
        if size:
            yield _direct(lower.ravel(), upper.ravel(), np.full(lower.size, size), seating)
            yield _direct(upper.ravel(), lower.ravel(), np.full(lower.size, size), seating)


def _neighbours(groups: Index, sent: FloatColumn, seating: Seating) -> Iterator[_Batch]:
    """Every rank sends to the next one of its group."""
    if groups.shape[1] > 1:
        size = np.repeat(sent, groups.shape[1])
        yield _direct(groups.ravel(), np.roll(groups, -1, axis=1).ravel(), size, seating)


def _all_to_all(groups: Index, sent: FloatColumn, seating: Seating) -> Iterator[_Batch]:
    """Every rank sends the same to all others of its group."""
    members = groups.shape[1]
    for distance in range(1, members):
        size = np.repeat(sent / (members - 1), members)
        yield _direct(groups.ravel(), np.roll(groups, -distance, axis=1).ravel(), size, seating)


def _direct(source: Index, target: Index, size: FloatColumn, seating: Seating) -> _Batch:
    """Messages from rank to rank, without those inside an HB domain."""
    leaves = seating.domain[source] != seating.domain[target]
    return seating.port[source[leaves]], seating.port[target[leaves]], size[leaves]


def _ring(groups: Index, sent: FloatColumn, seating: Seating, ports: Ports) -> Iterator[_Batch]:
    """Rings through the HB domains of each group; ``sent`` passes every link of the ring of its group."""
    members = groups.shape[1]
    if members < 2 or not sent.any():
        return
    domain = seating.domain[groups]
    order = np.argsort(domain, axis=1, kind="stable")
    domain = np.take_along_axis(domain, order, axis=1)
    port = seating.port[np.take_along_axis(groups, order, axis=1)].ravel()
    starts_here = np.ones(domain.shape, dtype=np.bool_)
    starts_here[:, 1:] = domain[:, 1:] != domain[:, :-1]
    start = np.flatnonzero(starts_here)
    group = start // members
    held = np.diff(np.append(start, domain.size))
    following = np.arange(1, start.size + 1)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], start.size) - 1
    following[last] = first
    linked = following != np.arange(start.size)
    channels = int(held.max())
    at = port[start[:, None] + np.arange(channels) % held[:, None]]
    each = np.repeat(sent[group[linked]] / channels, channels)
    source, target = at[linked], at[following[linked]]
    yield source.ravel(), _paired(source, target, ports).ravel(), each


def _paired(source: Index, target: Index, ports: Ports) -> Index:
    """Return ``target`` with each row in the order in which its channels meet those of ``source``."""
    links, channels = source.shape
    if channels == 1:
        return target
    step = max(_PAIRS_AT_ONCE // (channels * channels), 1)
    parts = [
        _pair_rows(source[begin : begin + step], target[begin : begin + step], ports) for begin in range(0, links, step)
    ]
    return np.concatenate(parts) if parts else target


def _pair_rows(source: Index, target: Index, ports: Ports) -> Index:
    """Pair channels on one leaf, then those left on one rail, then those left in order."""
    partner, taken = _claims(ports.leaf[source], ports.leaf[target])
    free = partner < 0
    by_rail, also = _claims(np.where(free, ports.rail[source], -1), np.where(taken, -1, ports.rail[target]))
    partner = np.where(free, by_rail, partner)
    taken |= also
    free = partner < 0
    left_over = np.argsort(taken, axis=1, kind="stable")
    rest = np.take_along_axis(left_over, np.maximum(np.cumsum(free, axis=1) - 1, 0), axis=1)
    return np.take_along_axis(target, np.where(free, rest, partner), axis=1)


def _claims(source: Index, target: Index) -> tuple[Index, npt.NDArray[np.bool_]]:
    """Return for each source channel the target channel of the same key (-1 for none), and which targets are taken.

    Keys below 0 match nothing; the k-th channel with a key meets the k-th one there.
    """
    same = source[:, :, None] == target[:, None, :]
    same &= _occurrence(source)[:, :, None] == _occurrence(target)[:, None, :]
    same &= (source >= 0)[:, :, None]
    return np.where(same.any(axis=2), same.argmax(axis=2), -1), same.any(axis=1)


def _occurrence(keys: Index) -> Index:
    """Return how often each key came before in its row."""
    earlier = np.tril(np.ones((keys.shape[1], keys.shape[1]), dtype=np.bool_), k=-1)
    counted: Index = ((keys[:, :, None] == keys[:, None, :]) & earlier).sum(axis=2)
    return counted
