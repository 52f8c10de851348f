"""How does an option look on the fabric? Who sits where, rails across and nodes down, before and after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsk.planning.placement.node_order import slurm_order
from opsk.planning.remap.failure import Failure, Wreck, wreck
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.values import Option
from opsk.planning.routing.hca_seats import Index

FREE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatPicture:
    """Who sits where: one row a node, one column a GPU slot, which is a rail where each GPU has an HCA of its own.

    Parameters
    ----------
    nodes
        Names of the nodes, in the order of the rows; hostile until made harmless, as all names.
    columns
        Names of the columns: ``rail 3``, or ``gpu 3`` where GPUs of that slot are on several rails or on none.
    ranks
        Rank in each seat, int32, shape (nodes, columns); -1 is free.
    failed
        Whether the seat's GPU cannot be used, or its HCA is gone, shape (nodes, columns).
    """

    nodes: tuple[str, ...]
    columns: tuple[str, ...]
    ranks: NDArray[np.int32]
    failed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """An option on the fabric; both pictures have the same nodes and columns. ``changed`` marks seats that differ."""

    before: SeatPicture
    after: SeatPicture

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Return the seats that have another rank, or one instead of none."""
        found: NDArray[np.bool_] = self.before.ranks != self.after.ranks
        return found

    def only_changed(self) -> Preview:
        """Return the rows alone in which something changes or failed."""
        rows = np.flatnonzero((self.changed | self.before.failed).any(axis=1))
        return Preview(before=_rows(self.before, rows), after=_rows(self.after, rows))


def preview(situation: Situation, failure: Failure | Wreck, option: Option) -> Preview:
    """Return who sits where before and after, on all nodes that are used before, after, or failed."""
    broken = failure if isinstance(failure, Wreck) else wreck(situation, failure)
    names = situation.job.nodes
    shape = situation.job.ports.port.shape
    before = np.full(shape, FREE, dtype=np.int32)
    node, gpu = situation.seating.node[0], situation.seating.gpu[0]
    before[node, gpu] = np.arange(node.size)
    after = np.full(shape, FREE, dtype=np.int32)
    there, at = seats_after(situation, option)
    after[there, at] = np.arange(there.size)
    failed = broken.dead | broken.lost_ports[situation.job.ports.port]
    rows = np.flatnonzero((before >= 0).any(axis=1) | (after >= 0).any(axis=1) | failed.any(axis=1))
    columns = tuple(_columns(situation, rows))
    chosen = tuple(names[row] for row in rows.tolist())

    def picture(ranks: NDArray[np.int32]) -> SeatPicture:
        return SeatPicture(nodes=chosen, columns=columns, ranks=ranks[rows], failed=failed[rows])

    return Preview(before=picture(before), after=picture(after))


def seats_after(situation: Situation, option: Option) -> tuple[Index, Index]:
    """Return node number and GPU of each rank of the plan that the option then runs."""
    number = {name: at for at, name in enumerate(situation.job.nodes)}
    if not option.renumbered:
        node, gpu = situation.seating.node[0].copy(), situation.seating.gpu[0].copy()
        for move in option.moves:
            node[move.rank], gpu[move.rank] = number[move.to_node], move.to_gpu
        return node, gpu
    hosts = hosts_of(option)
    node = np.array([number[host] for host in hosts], dtype=np.int64)
    order = {name: [int(word) for word in gpus.split(",")] for name, gpus in option.gpu_order}
    taken: dict[str, int] = {}
    gpus = []
    for host in hosts:
        local = taken[host] = taken.get(host, -1) + 1
        gpus.append(order[host][local] if host in order else local)
    return node, np.array(gpus, dtype=np.int64)


def hosts_of(option: Option) -> tuple[str, ...]:
    """Return the node of each rank: of the rank file, else nodes in Slurm's order, as many ranks on each in turn."""
    if option.rank_file:
        return tuple(option.rank_file.split())
    nodes = slurm_order(option.nodes)
    each = -(-option.plan.gpus // len(nodes))
    return tuple(nodes[rank // each] for rank in range(option.plan.gpus))


def _columns(situation: Situation, rows: Index) -> Iterable[str]:
    ports = situation.job.ports
    for gpu in range(ports.port.shape[1]):
        rails = {int(ports.rail[port]) for port in ports.port[rows, gpu]} if rows.size else set()
        rail = rails.pop() if len(rails) == 1 else -1
        yield f"rail {rail}" if rail >= 0 else f"gpu {gpu}"


def _rows(picture: SeatPicture, rows: Index | Mask) -> SeatPicture:
    return SeatPicture(
        nodes=tuple(picture.nodes[row] for row in rows.tolist()),
        columns=picture.columns,
        ranks=picture.ranks[rows],
        failed=picture.failed[rows],
    )
