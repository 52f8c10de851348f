"""Defines the live state of the cluster: nodes, load on the links, and the age of Slurm's last answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk.app.interference.jobs import ActiveTraffic
from opsk.lru_cache import LruCache
from opsk.slurm.records import NodeRecord
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints, build_feature_test
from opsk_jobcheck.cluster_state.state_header import MAX_AGE_S
from opsk_jobcheck.submission.request import SlurmRequest

_HARMLESS_FLAGS = frozenset({"CLOUD", "DYNAMIC", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags of a node's state with which it still takes a job; others (DRAIN, RESERVED, PLANNED, ...) prevent that."""
_MAX_CACHED = 16
"""Number of queries for free nodes whose results are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The cluster in Slurm's last answer.

    Parameters
    ----------
    nodes
        All nodes.
    running
        Number of jobs that hold nodes, as far as they are visible.
    hidden_nodes
        Nodes that are allocated and that no visible job holds (``PrivateData``).
    age_s
        Age of Slurm's answer [s].
    source
        The source, for display (``squeue and sinfo of Slurm 22.05``).
    topology
        Slurm's own topology: ``tree``, ``block``, ``flat``; ``None`` where it was not queried.
    default_partition
        The partition of jobs that name none; ``None`` where it was not queried, or there is none.
    min_nodes
        Nodes of a job that asks for no number, by partition; of those that are not here one.
    wire
        The load of running jobs and storage on the links; ``None`` while it is being computed.
    around
        The total load of the links above each leaf, by guid [links].
    generation
        Changes whenever nodes or jobs do.
    recent_free
        Cached free nodes of recent queries, shared with later copies of the same state.
    """

    nodes: tuple[NodeRecord, ...]
    running: int = 0
    hidden_nodes: int = 0
    age_s: float = 0.0
    source: str = "Slurm"
    topology: str | None = None
    default_partition: str | None = None
    min_nodes: Mapping[str, int] = field(default_factory=dict)
    wire: ActiveTraffic | None = None
    around: Mapping[str, float] = field(default_factory=dict)
    generation: str = ""
    recent_free: LruCache[tuple[tuple[NodeRecord, ...], tuple[str, ...]]] = field(
        default_factory=lambda: LruCache(_MAX_CACHED), repr=False, compare=False
    )

    @property
    def is_fresh(self) -> bool:
        """False where it is too old to describe the present."""
        return self.age_s <= MAX_AGE_S

    def possible(
        self, constraints: NodeConstraints, *, gpus: int = 0, gpu_type: str | None = None
    ) -> tuple[NodeRecord, ...]:
        """Return the nodes that the job may get at some time.

        Parameters
        ----------
        gpus
            GPUs on each node that it needs; ignored where Slurm counts no GPUs at all.
        gpu_type
            As requested from Slurm; nodes whose GPUs have no type are not left out.
        """
        gpus = gpus if any(node.gpus for node in self.nodes) else 0
        has_features = build_feature_test(constraints.constraint) if constraints.constraint else None
        kind = gpu_type.lower() if gpu_type else None
        return tuple(
            node
            for node in self.nodes
            if node.is_usable
            and node.gpus >= gpus
            and (not kind or not node.gpu_type or node.gpu_type.lower() == kind)
            and (not constraints.partitions or not set(constraints.partitions).isdisjoint(node.partitions))
            and (has_features is None or has_features(node.features))
            and node.name not in constraints.exclude
        )

    def free(self, constraints: NodeConstraints, *, gpus: int = 0, gpu_type: str | None = None) -> tuple[str, ...]:
        """Return the nodes among them that can start the job at once."""

        def compute() -> tuple[tuple[NodeRecord, ...], tuple[str, ...]]:
            possible = self.possible(constraints, gpus=gpus, gpu_type=gpu_type)
            free = (node.name for node in possible if is_free(node, gpus, is_exclusive=constraints.is_exclusive))
            return self.nodes, tuple(free)

        return self.recent_free.get((id(self.nodes), constraints, gpus, gpu_type), compute)[1]

    def partitions(self) -> frozenset[str]:
        """Return the partitions that have nodes with GPUs."""
        return frozenset(name for node in self.nodes if node.gpus for name in node.partitions)

    def fill_min_nodes(self, request: SlurmRequest, default_partition: str | None = None) -> SlurmRequest:
        """Return a request without a number of nodes with the one of its partition (``MinNodes``).

        Parameters
        ----------
        default_partition
            The partition of jobs that name none, where the site configures it; it takes precedence over Slurm's.
        """
        if not request.is_left_to_partition:
            return request
        names = (request.partition or default_partition or self.default_partition or "").split(",")
        counts = {self.min_nodes.get(name, 1) for name in names}
        if counts == {1}:
            return request
        # the number of tasks was filled in for one node
        return replace(request, nodes=counts.pop() if len(counts) == 1 else None, ntasks=None)


def is_free(node: NodeRecord, gpus: int, *, is_exclusive: bool = False) -> bool:
    """Return whether a node can start a job that uses so many of its GPUs at once.

    A node that holds a job counts where enough GPUs, and at least the same share of the CPUs, are left.
    """
    if not node.is_usable or not _HARMLESS_FLAGS.issuperset(node.state_flags):
        return False
    if node.state == "IDLE":
        return True
    if node.state != "MIXED" or is_exclusive or not 0 < gpus <= node.gpus - node.gpus_used:
        return False
    return node.cpus_used * node.gpus <= node.cpus * (node.gpus - gpus)
