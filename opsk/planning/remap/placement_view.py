"""Builds views of an option: the rank of each GPU before and after, with nodes as rows and rails as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opsk.planning.placement.node_order import slurm_order
from opsk.planning.remap.failure import Failure, FailureImpact, assess_impact
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.values import Option
from opsk.planning.routing.hca_ports import Index

FREE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """The rank on each slot: one row a node, one column a GPU slot, which is a rail where each GPU has its own HCA.

    Parameters
    ----------
    nodes
        Names of the nodes, in the order of the rows; untrusted text, as all names.
    columns
        Names of the columns: ``rail 3``, or ``gpu 3`` where GPUs of that slot are on several rails or on none.
    ranks
        Rank on each slot, int32, shape (nodes, columns); -1 is free.
    failed
        Whether the slot's GPU cannot be used, or its HCA is lost, shape (nodes, columns).
    """

    nodes: tuple[str, ...]
    columns: tuple[str, ...]
    ranks: NDArray[np.int32]
    failed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """An option on the fabric; both views have the same nodes and columns. ``changed`` marks slots that differ."""

    before: PlacementView
    after: PlacementView

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Return the slots whose rank differs, or that gain or lose one."""
        differs: NDArray[np.bool_] = self.before.ranks != self.after.ranks
        return differs

    def only_changed(self) -> Preview:
        """Return only the rows in which something changes or failed."""
        rows = np.flatnonzero((self.changed | self.before.failed).any(axis=1))
        return Preview(before=_select_rows(self.before, rows), after=_select_rows(self.after, rows))


def preview(situation: Situation, failure: Failure | FailureImpact, option: Option) -> Preview:
    """Return the ranks before and after, on all nodes that are used before or after, or failed."""
    impact = failure if isinstance(failure, FailureImpact) else assess_impact(situation, failure)
    names = situation.job.nodes
    shape = situation.job.ports.port.shape
    before = np.full(shape, FREE, dtype=np.int32)
    node, gpu = situation.rank_placement.node[0], situation.rank_placement.gpu[0]
    before[node, gpu] = np.arange(node.size)
    after = np.full(shape, FREE, dtype=np.int32)
    node_after, slot_after = compute_slots_after(situation, option)
    after[node_after, slot_after] = np.arange(node_after.size)
    failed = impact.dead | impact.lost_ports[situation.job.ports.port]
    rows = np.flatnonzero((before >= 0).any(axis=1) | (after >= 0).any(axis=1) | failed.any(axis=1))
    columns = tuple(_name_columns(situation, rows))
    chosen = tuple(names[row] for row in rows.tolist())

    def build_view(ranks: NDArray[np.int32]) -> PlacementView:
        return PlacementView(nodes=chosen, columns=columns, ranks=ranks[rows], failed=failed[rows])

    return Preview(before=build_view(before), after=build_view(after))


def compute_slots_after(situation: Situation, option: Option) -> tuple[Index, Index]:
    """Return node number and GPU of each rank of the plan that the option then runs."""
    number = {name: index for index, name in enumerate(situation.job.nodes)}
    if not option.renumbered:
        node, gpu = situation.rank_placement.node[0].copy(), situation.rank_placement.gpu[0].copy()
        for move in option.moves:
            node[move.rank], gpu[move.rank] = number[move.to_node], move.to_gpu
        return node, gpu
    hosts = list_hosts(option)
    node = np.array([number[host] for host in hosts], dtype=np.int64)
    order = {name: [int(word) for word in gpus.split(",")] for name, gpus in option.gpu_order}
    taken: dict[str, int] = {}
    gpus = []
    for host in hosts:
        local = taken[host] = taken.get(host, -1) + 1
        gpus.append(order[host][local] if host in order else local)
    return node, np.array(gpus, dtype=np.int64)


def list_hosts(option: Option) -> tuple[str, ...]:
    """Return the node of each rank: of the rank file, else nodes in Slurm's order, as many ranks on each in turn."""
    if option.rank_file:
        return tuple(option.rank_file.split())
    nodes = slurm_order(option.nodes)
    ranks_per_node = -(-option.plan.gpus // len(nodes))
    return tuple(nodes[rank // ranks_per_node] for rank in range(option.plan.gpus))


def _name_columns(situation: Situation, rows: Index) -> Iterable[str]:
    ports = situation.job.ports
    for gpu in range(ports.port.shape[1]):
        rails = {int(ports.rail[port]) for port in ports.port[rows, gpu]} if rows.size else set()
        rail = rails.pop() if len(rails) == 1 else -1
        yield f"rail {rail}" if rail >= 0 else f"gpu {gpu}"


def _select_rows(view: PlacementView, rows: Index | Mask) -> PlacementView:
    return PlacementView(
        nodes=tuple(view.nodes[row] for row in rows.tolist()),
        columns=view.columns,
        ranks=view.ranks[rows],
        failed=view.failed[rows],
    )
