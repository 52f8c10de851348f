"""Holds the latest cluster view with its lookup tables, each built on first use."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opsk.slurm.commands.remap_commands import Command, Who
from opsk_tui.data.view import ClusterView, GpuTable, Health, JobView, Source

DRAINED_BY_HAND = "opsk: opsk top"
"""The reason of a drain from the screens themselves, which was a user's decision."""
_ABOVE = {Who.USER: (Who.OPERATOR, Who.ADMINISTRATOR), Who.OPERATOR: (Who.ADMINISTRATOR,), Who.ADMINISTRATOR: ()}


class ViewIndex:
    """One view, with its nodes and jobs by name and number.

    Parameters
    ----------
    view
        The delivered view.
    user
        Name of the caller, who owns jobs.
    """

    def __init__(self, view: ClusterView, user: str = "") -> None:
        self.view = view
        self.user = user

    @cached_property
    def jobs(self) -> dict[int, JobView]:
        """Jobs by Slurm's id."""
        return {job.record.id: job for job in self.view.jobs}

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each node."""
        return {node.name: row for row, node in enumerate(self.view.nodes)}

    @cached_property
    def gpus(self) -> GpuTable:
        """GPUs: from the view, else as far as Slurm's own numbers allow."""
        if self.view.gpus is not None:
            return self.view.gpus
        nodes = self.view.nodes
        slots = max((node.gpus for node in nodes), default=0)
        shape = (len(nodes), max(1, slots))
        counts = np.array([node.gpus for node in nodes], dtype=np.int64).reshape(-1, 1)
        return GpuTable(
            values={},
            health=np.zeros(shape, dtype=np.int8),
            job=np.full(shape, -1, dtype=np.int64),
            present=np.arange(shape[1]).reshape(1, -1) < counts,
        )

    @cached_property
    def jobs_of_node(self) -> dict[str, list[int]]:
        """Ids of the jobs on each node."""
        by_node: dict[str, list[int]] = {}
        for job in self.view.jobs:
            for name in job.record.nodes:
                by_node.setdefault(name, []).append(job.record.id)
        return by_node

    @cached_property
    def worst(self) -> NDArray[np.int8]:
        """Worst health of a GPU of each node; a node that takes no job is watched, one that is down is unhealthy."""
        health: NDArray[np.int8] = self.gpus.health.max(axis=1, initial=0).astype(np.int8)
        for row, node in enumerate(self.view.nodes):
            if not node.is_usable:
                is_down = node.state in ("DOWN", "FAIL", "UNKNOWN") or "NOT_RESPONDING" in node.state_flags
                health[row] = max(health[row], Health.UNHEALTHY if is_down else Health.WATCH)
        return health

    @cached_property
    def recovered(self) -> tuple[str, ...]:
        """Nodes that a remap of opsk has drained, and that show no fault any more."""
        bad = {node for event in self.view.events if not event.is_over for node in event.nodes}
        health = self.gpus.health
        return tuple(
            node.name
            for row, node in enumerate(self.view.nodes)
            if (node.reason or "").startswith("opsk:") and node.reason != DRAINED_BY_HAND
            and not node.is_usable and node.name not in bad
            and health[row].max(initial=0) == Health.OK
        )  # fmt: skip

    def may(self, command: Command, owner: str = "") -> bool:
        """Return whether the caller may run a command; the owner of a job may do what a user may."""
        rights = self.view.rights
        if any(right in rights for right in _ABOVE[command.who]):
            return True
        if command.who is Who.USER:
            return bool(owner) and owner == self.user
        return command.who in rights

    def sees(self, source: Source) -> bool:
        """Return whether a source has answered."""
        return any(state.source is source and state.taken_at_s is not None for state in self.view.sources)
