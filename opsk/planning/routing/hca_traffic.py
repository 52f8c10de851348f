"""How many bytes go from which HCA to which in one step, when ranks sit where they sit?

Rings run through the HB domains of a group in the order of its ranks. A ring's traffic between two domains is split
evenly over channels, one for each of the group's GPUs there, and NCCL pairs channels that are on one leaf, or else on
one rail, where it can. Pipeline messages, ring attention and all-to-all go straight from GPU to GPU. Bytes that stay
inside an HB domain do not appear. Left out: forwarding through a GPU near the receiver's rail (PXN).

Several seatings of the same job are followed at once, one row each: a search compares thousands. Where a few ranks
moved, the messages of their groups alone can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_seats import Index, Ports
from opsk.planning.routing.rank_traffic import AXES, StepBytes

Touched = npt.NDArray[np.bool_]
"""Ranks whose groups are followed; ``None`` for all."""

_PAIRS_AT_ONCE = 1 << 22
"""Channel pairs compared at once: bounds memory to some tens of MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Where every rank sits, shape (rows, ranks): ``node`` and ``gpu`` index, ``domain`` (HB), ``port`` of `Ports`."""

    node: Index
    gpu: Index
    domain: Index
    port: Index

    @property
    def rows(self) -> int:
        """Return how many seatings there are."""
        return int(self.node.shape[0])

    def row(self, number: int) -> Seating:
        """Return one of the seatings."""
        at = slice(number, number + 1)
        return Seating(node=self.node[at], gpu=self.gpu[at], domain=self.domain[at], port=self.port[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Messages of one axis: ``size_bytes`` of one step from port ``source`` to port ``target`` in seating ``row``."""

    row: Index
    source: Index
    target: Index
    size_bytes: FloatColumn

    @classmethod
    def joined(cls, parts: Iterator[Flows]) -> Flows:
        """Return all messages of several lists."""
        every = list(parts)
        if not every:
            nothing = np.empty(0, dtype=np.int64)
            return cls(row=nothing, source=nothing, target=nothing, size_bytes=np.empty(0))
        return cls(
            row=np.concatenate([part.row for part in every]),
            source=np.concatenate([part.source for part in every]),
            target=np.concatenate([part.target for part in every]),
            size_bytes=np.concatenate([part.size_bytes for part in every]),
        )


def step_flows(
    grid: RankGrid, sent: StepBytes, seating: Seating, ports: Ports, *, touched: Touched | None = None
) -> dict[str, Flows]:
    """Return the messages of one step by axis (``AXES``); axes without any between HB domains are empty.

    Parameters
    ----------
    touched
        Follow the groups with one of these ranks in them only; shape (ranks,).
    """
    stages, dp, cp, tp = grid.ranks.shape
    at = grid.ranks
    parts: dict[str, Iterator[Flows]] = {
        "tp": _ring(*_hit(at.reshape(-1, tp), np.repeat(sent.tp, dp * cp), touched), seating, ports),
        "cp": _neighbours(
            *_hit(at.transpose(0, 1, 3, 2).reshape(-1, cp), np.repeat(sent.cp, dp * tp), touched), seating
        ),
        "ep": _experts(grid, sent, seating, touched),
        "dp": _replicas(grid, sent, seating, ports, touched),
        "pp": _pipeline(at, sent, seating, touched) if stages > 1 else iter(()),
    }
    return {axis: Flows.joined(parts[axis]) for axis in AXES}


def _hit(groups: Index, sent: FloatColumn, touched: Touched | None) -> tuple[Index, FloatColumn]:
    """Return the groups that hold a touched rank, and what these send."""
    if touched is None:
        return groups, sent
    kept = touched[groups].any(axis=1)
    return groups[kept], sent[kept]


def _experts(grid: RankGrid, sent: StepBytes, seating: Seating, touched: Touched | None) -> Iterator[Flows]:
    """Dispatch and combine of tokens."""
    if sent.ep.any():
        size = np.repeat(sent.ep, grid.experts.shape[1])
        yield from _all_to_all(*_hit(grid.experts.reshape(-1, grid.ep), size, touched), seating)


def _replicas(
    grid: RankGrid, sent: StepBytes, seating: Seating, ports: Ports, touched: Touched | None
) -> Iterator[Flows]:
    """Gradients and weights of dense parameters, of experts, and of a tied embedding."""
    stages, dp, cp, tp = grid.ranks.shape
    if sent.dp.any():
        yield from _ring(*_hit(grid.data.reshape(-1, dp * cp), np.repeat(sent.dp, tp), touched), seating, ports)
    if sent.expert_dp.any():
        alike = grid.expert_data
        size = np.repeat(sent.expert_dp, alike.shape[1])
        yield from _ring(*_hit(alike.reshape(-1, alike.shape[2]), size, touched), seating, ports)
    if stages > 1 and sent.embedding:
        yield from _both_ways(grid.ranks[-1], grid.ranks[0], sent.embedding, seating, touched)


def _pipeline(ranks: Index, sent: StepBytes, seating: Seating, touched: Touched | None) -> Iterator[Flows]:
    """Messages between stages, and from the last to the first with interleaving."""
    if sent.pp_forward:
        yield from _both_ways(ranks[:-1], ranks[1:], sent.pp_forward, seating, touched)
    if sent.pp_wrap:
        yield from _both_ways(ranks[-1], ranks[0], sent.pp_wrap, seating, touched)


def _both_ways(one: Index, other: Index, size: float, seating: Seating, touched: Touched | None) -> Iterator[Flows]:
    """The same message from every rank of ``one`` to its like in ``other``, and back."""
    pairs, sizes = _hit(np.stack([one.ravel(), other.ravel()], axis=1), np.full(one.size, size), touched)
    yield _direct(pairs[:, 0], pairs[:, 1], sizes, seating)
    yield _direct(pairs[:, 1], pairs[:, 0], sizes, seating)


def _neighbours(groups: Index, sent: FloatColumn, seating: Seating) -> Iterator[Flows]:
    """Every rank sends to the next one of its group."""
    if groups.shape[1] > 1 and sent.any():
        size = np.repeat(sent, groups.shape[1])
        yield _direct(groups.ravel(), np.roll(groups, -1, axis=1).ravel(), size, seating)


def _all_to_all(groups: Index, sent: FloatColumn, seating: Seating) -> Iterator[Flows]:
    """Every rank sends the same to all others of its group."""
    members = groups.shape[1]
    for distance in range(1, members):
        size = np.repeat(sent / (members - 1), members)
        yield _direct(groups.ravel(), np.roll(groups, -distance, axis=1).ravel(), size, seating)


def _direct(source: Index, target: Index, size: FloatColumn, seating: Seating) -> Flows:
    """Messages from rank to rank, without those inside an HB domain."""
    row, at = np.nonzero(seating.domain[:, source] != seating.domain[:, target])
    return Flows(
        row=row, source=seating.port[row, source[at]], target=seating.port[row, target[at]], size_bytes=size[at]
    )


def _ring(groups: Index, sent: FloatColumn, seating: Seating, ports: Ports) -> Iterator[Flows]:
    """Rings through the HB domains of each group; ``sent`` passes every link of the ring of its group."""
    count, members = groups.shape
    if members < 2 or not sent.any():
        return
    domain = seating.domain[:, groups].reshape(-1, members)
    order = np.argsort(domain, axis=1, kind="stable")
    domain = np.take_along_axis(domain, order, axis=1)
    port = np.take_along_axis(seating.port[:, groups].reshape(-1, members), order, axis=1).ravel()
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
    if not linked.any():
        return
    channels_of = np.maximum.reduceat(held, first)[group]
    for channels in np.unique(channels_of[linked]).tolist():
        link = np.flatnonzero(linked & (channels_of == channels))
        turn = np.arange(channels)
        source = port[start[link, None] + turn % held[link, None]]
        target = port[start[following[link], None] + turn % held[following[link], None]]
        yield Flows(
            row=np.repeat(group[link] // count, channels),
            source=source.ravel(),
            target=_paired(source, target, ports).ravel(),
            size_bytes=np.repeat(sent[group[link] % count] / channels, channels),
        )


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
