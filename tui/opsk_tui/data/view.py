"""Defines the view that the screens show, the cluster at one moment in plain values, and its lookup tables.

Per-GPU values are arrays of nodes x slots, so that 16,000 GPUs are compared and painted at once. Unknown values are
NaN, ``None`` or -1, never 0. Text from users and logs is hostile until `opsk_tui.text` has escaped it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opsk.diagnosis.events.observations import Event
from opsk.diagnosis.losses.values import Losses
from opsk.slurm.commands.remap_commands import Command, Who
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord

DRAINED_BY_HAND = "opsk: opsk top"
"""The reason of a drain from the screens themselves, which was a user's decision."""
_ABOVE = {Who.USER: (Who.OPERATOR, Who.ADMINISTRATOR), Who.OPERATOR: (Who.ADMINISTRATOR,), Who.ADMINISTRATOR: ()}


class Health(IntEnum):
    """The health of a GPU, node or port."""

    UNKNOWN = 0
    OK = 1
    WATCH = 2
    UNHEALTHY = 3


class Metric(StrEnum):
    """The metrics of the GPU map: keys of `GpuTable.values`."""

    UTILISATION = "utilisation"
    """Share of time in which any kernel ran [ratio]."""
    TENSOR = "tensor"
    """Share of time in which tensor cores were busy [ratio]."""
    MEMORY = "memory"
    """Used part of device memory [ratio]."""
    POWER = "power"
    """Electrical power [W]."""
    TEMPERATURE = "temperature"
    """Of the core [degrees Celsius]."""
    CLOCK = "clock"
    """SM clock as part of the largest [ratio]."""
    THROTTLE = "throttle"
    """Share of the last minutes held down by heat or power [ratio]."""
    ERRORS = "errors"
    """XIDs and uncorrected memory errors since the driver was loaded."""


class Source(StrEnum):
    """The data sources."""

    SLURM = "slurm"
    PROMETHEUS = "prometheus"
    EXPORTERS = "exporters"
    ADVISOR = "advisor"
    STORE = "store"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The state of one source.

    Parameters
    ----------
    where
        Its address for display, without passwords.
    taken_at_s
        When its last answer came [s since 1970]; ``None`` before the first.
    problem, hint
        Why the last query got no answer, and what to do; empty when it did.
    """

    source: Source
    where: str = ""
    taken_at_s: float | None = None
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTable:
    """All GPUs of the cluster, one row a node (in the order of `ClusterView.nodes`), one column a slot.

    Parameters
    ----------
    values
        By metric, float32 of shape (nodes, slots); NaN is unknown.
    health
        `Health` as int8, shape (nodes, slots).
    job
        Slurm id of the job that holds the GPU, int64, shape (nodes, slots); -1 where none does or it is unknown.
    present
        Whether the node has a GPU there, shape (nodes, slots).
    uuids
        UUID by (node, slot), where an exporter reports it.
    memory_size_bytes
        Memory of each GPU, float32 of shape (nodes, slots), NaN is unknown; ``None`` where no exporter reports any.
    """

    values: Mapping[Metric, NDArray[np.float32]]
    health: NDArray[np.int8]
    job: NDArray[np.int64]
    present: NDArray[np.bool_]
    uuids: Mapping[tuple[str, int], str] = field(default_factory=dict)
    memory_size_bytes: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of a job's progress.

    Parameters
    ----------
    step_s, tokens_per_s, tflops_per_gpu, mfu
        Medians of the latest steps; ``None`` where unknown.
    memory_peak_bytes
        Largest use of device memory over the job's GPUs [bytes].
    iteration
        The last finished step; ``age_s`` is how long ago it ended [s].
    source
        ``log``, ``report`` or ``counters`` (derived from GPU and InfiniBand counters).
    history
        (time [s since 1970], step time [s]), oldest first, at most some hundreds.
    """

    step_s: float | None = None
    tokens_per_s: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    memory_peak_bytes: float | None = None
    iteration: int | None = None
    age_s: float | None = None
    source: str = ""
    history: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: Slurm's record, the prediction (``None``: there is none), the measurements, and the losses."""

    record: JobRecord
    advice: AdviceRecord | None = None
    measured: Measured | None = None
    losses: Losses | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTable:
    """The fabric as a matrix: one row a node, one column a rail.

    Parameters
    ----------
    rails
        Names of the rails.
    rate_ratio
        Rate of the port as part of its best [ratio]; 0 is down; NaN unknown; shape (nodes, rails).
    congestion
        Part of the time in which it could not send [ratio], shape (nodes, rails).
    bytes_per_s
        Sent and received together [bytes/s], shape (nodes, rails).
    errors
        Error counters since the last minutes, shape (nodes, rails).
    health
        `Health` as int8, shape (nodes, rails).
    leaves
        Name of the leaf by (node, rail), where the fabric is known.
    """

    rails: tuple[str, ...]
    rate_ratio: NDArray[np.float32]
    congestion: NDArray[np.float32]
    bytes_per_s: NDArray[np.float32]
    errors: NDArray[np.float32]
    health: NDArray[np.int8]
    leaves: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricView:
    """The fabric: ports by node and rail, tiers from leaf to core with their switches, faults."""

    ports: PortTable
    tiers: tuple[tuple[str, ...], ...] = ()
    hb_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One report in the list; ``path`` is its location."""

    job: str
    title: str
    kind: str
    made_at_s: float
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster at one moment.

    Parameters
    ----------
    taken_at_s
        Seconds since 1970.
    sources
        The state of each source; the screen lists them.
    rights
        The caller's rights in Slurm.
    """

    taken_at_s: float
    cluster: str = ""
    nodes: tuple[NodeRecord, ...] = ()
    gpus: GpuTable | None = None
    jobs: tuple[JobView, ...] = ()
    fabric: FabricView | None = None
    events: tuple[Event, ...] = ()
    reports: tuple[ReportRow, ...] = ()
    sources: tuple[SourceState, ...] = ()
    rights: tuple[Who, ...] = ()


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
    def rows_by_node(self) -> dict[str, int]:
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
