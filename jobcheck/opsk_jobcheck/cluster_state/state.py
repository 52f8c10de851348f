"""What was the cluster like when Slurm was last asked? Nodes, jobs on the links, and how long ago that was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk.app.interference.jobs import Wire
from opsk.planning.routing.recent import Recent
from opsk.slurm.records import NodeRecord
from opsk_jobcheck.cluster_state.heading import MAX_AGE_S
from opsk_jobcheck.cluster_state.wanted import NodesWanted, feature_test
from opsk_jobcheck.submission.request import SlurmRequest

_HARMLESS_FLAGS = frozenset({"CLOUD", "DYNAMIC", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Words after a node's state with which it still takes a job at once; any other (DRAIN, RESERVED, PLANNED, ...) not."""
_RECENT = 16
"""Kinds of questions for free nodes of which the answer is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The cluster as Slurm last told it.

    Parameters
    ----------
    nodes
        All nodes.
    running
        Number of jobs that hold nodes, as far as the asker may see them.
    hidden_nodes
        Nodes that are allocated and that no visible job holds (``PrivateData``).
    age_s
        How long ago Slurm said so [s].
    source
        Whom it is from, for people (``squeue and sinfo of Slurm 22.05``).
    topology
        Slurm's own idea of the fabric: ``tree``, ``block``, ``flat``; ``None`` where nobody asked.
    default_partition
        Where jobs go that name none; ``None`` where nobody asked, or there is none.
    least_nodes
        Nodes of a job that asks for no number, by partition; of those that are not here one.
    wire
        What running jobs and storage ask of the links; ``None`` while it is being worked out.
    around
        How busy the links above each leaf are in all, by guid [links].
    generation
        Changes whenever nodes or jobs do.
    recent_free
        Nodes that are free for what was asked lately; the same state at a later time goes on with it.
    """

    nodes: tuple[NodeRecord, ...]
    running: int = 0
    hidden_nodes: int = 0
    age_s: float = 0.0
    source: str = "Slurm"
    topology: str | None = None
    default_partition: str | None = None
    least_nodes: Mapping[str, int] = field(default_factory=dict)
    wire: Wire | None = None
    around: Mapping[str, float] = field(default_factory=dict)
    generation: str = ""
    recent_free: Recent[tuple[tuple[NodeRecord, ...], tuple[str, ...]]] = field(
        default_factory=lambda: Recent(_RECENT), repr=False, compare=False
    )

    @property
    def is_fresh(self) -> bool:
        """False where it is too old to say anything of now."""
        return self.age_s <= MAX_AGE_S

    def possible(self, wanted: NodesWanted, *, gpus: int = 0, gpu_type: str | None = None) -> tuple[NodeRecord, ...]:
        """Return the nodes that the job may get at some time.

        Parameters
        ----------
        gpus
            GPUs on each node that it needs; not looked at where Slurm counts no GPUs at all.
        gpu_type
            As asked of Slurm; nodes whose GPUs have no type are not left out.
        """
        gpus = gpus if any(node.gpus for node in self.nodes) else 0
        has_features = feature_test(wanted.constraint) if wanted.constraint else None
        kind = gpu_type.lower() if gpu_type else None
        return tuple(
            node
            for node in self.nodes
            if node.is_usable
            and node.gpus >= gpus
            and (not kind or not node.gpu_type or node.gpu_type.lower() == kind)
            and (not wanted.partitions or not set(wanted.partitions).isdisjoint(node.partitions))
            and (has_features is None or has_features(node.features))
            and node.name not in wanted.exclude
        )

    def free(self, wanted: NodesWanted, *, gpus: int = 0, gpu_type: str | None = None) -> tuple[str, ...]:
        """Return the nodes among them that take the job at once."""

        def found() -> tuple[tuple[NodeRecord, ...], tuple[str, ...]]:
            possible = self.possible(wanted, gpus=gpus, gpu_type=gpu_type)
            free = (node.name for node in possible if is_free(node, gpus, is_exclusive=wanted.is_exclusive))
            return self.nodes, tuple(free)

        return self.recent_free.get((id(self.nodes), wanted, gpus, gpu_type), found)[1]

    def partitions(self) -> frozenset[str]:
        """Return the partitions that have nodes with GPUs."""
        return frozenset(name for node in self.nodes if node.gpus for name in node.partitions)

    def with_least_nodes(self, request: SlurmRequest, default_partition: str | None = None) -> SlurmRequest:
        """Return a request that asks for no number of nodes with the one that its partition gives (``MinNodes``).

        Parameters
        ----------
        default_partition
            Where jobs go that name none, where the site says so; it counts before what Slurm says.
        """
        if not request.is_left_to_partition:
            return request
        names = (request.partition or default_partition or self.default_partition or "").split(",")
        least = {self.least_nodes.get(name, 1) for name in names}
        if least == {1}:
            return request
        # a count of tasks was filled in for one node
        return replace(request, nodes=least.pop() if len(least) == 1 else None, ntasks=None)


def is_free(node: NodeRecord, gpus: int, *, is_exclusive: bool = False) -> bool:
    """Tell whether a node takes a job that uses so many of its GPUs at once.

    A node that holds a job counts where enough GPUs, and as large a part of the CPUs, are left.
    """
    if not node.is_usable or not _HARMLESS_FLAGS.issuperset(node.state_flags):
        return False
    if node.state == "IDLE":
        return True
    if node.state != "MIXED" or is_exclusive or not 0 < gpus <= node.gpus - node.gpus_used:
        return False
    return node.cpus_used * node.gpus <= node.cpus * (node.gpus - gpus)
