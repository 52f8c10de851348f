"""Defines what checks read, and what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk.costmodel.table import PredictionTable
from opsk.hardware.spec import ClusterSpec, GpuSpec, NodeSpec
from opsk.slurm.records import PartitionRecord
from opsk.workload.completion import Completion
from opsk.workload.workload import Evidence, Problem, Workload
from opsk_jobcheck.cluster_state.node_constraints import HostMemoryRequest
from opsk_jobcheck.scripts.run_facts import ENVIRONMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is certain of a job before it starts.

    Parameters
    ----------
    cluster
        The cluster with the GPU that the job requests; ``None`` where it is unknown.
    has_site_nodes
        The job runs on the nodes of the cluster's description: it requests no other GPU than theirs.
    is_gpu_known
        Whether the requested GPU is in the catalogue.
    prediction
        The prediction for the requested plan; ``None`` without one.
    completion
        The completed model and plan.
    memory
        The host memory that the job requests, and ``cpus_per_node`` the CPUs; ``None`` where they are unknown.
    partition
        What the one partition that the job can be in gives by default and at most; ``None`` where it is unknown.
    leaves_memory, time_limit_s
        Whether the job certainly requests no host memory, and the time limit that it requests [s].
    is_exclusive
        Whole nodes are requested: the job gets all CPUs of them.
    reports_idle_gpus
        The advice reports already that GPUs have nothing to do.
    stated
        The facts by name.
    """

    workload: Workload
    cluster: ClusterSpec | None = None
    has_site_nodes: bool = True
    is_gpu_known: bool = True
    prediction: PredictionTable | None = None
    completion: Completion | None = None
    memory: HostMemoryRequest | None = None
    cpus_per_node: int | None = None
    partition: PartitionRecord | None = None
    leaves_memory: bool = False
    time_limit_s: float | None = None
    is_exclusive: bool = False
    reports_idle_gpus: bool = False
    stated: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def gpu(self) -> GpuSpec | None:
        """The GPU of the job, where it is known."""
        return self.cluster.node.gpu if self.cluster is not None and self.is_gpu_known else None

    @property
    def node(self) -> NodeSpec | None:
        """The nodes that the job runs on, where they are known."""
        return self.cluster.node if self.cluster is not None and self.has_site_nodes else None

    @property
    def nodes(self) -> int:
        """The nodes of the job, 0 where they are unknown."""
        return self.workload.plan.nodes or 0

    @property
    def gpus(self) -> int:
        """The GPUs of the job, 0 where they are unknown."""
        plan = self.workload.plan
        return plan.gpus or (plan.nodes or 0) * (plan.gpus_per_node or 0)

    def find_count(self, name: str) -> int | None:
        """Return a fact that is a number."""
        entry = self.stated.get(name)
        return entry.value if entry is not None and isinstance(entry.value, int) else None

    def find_variable(self, name: str) -> Evidence | None:
        """Return a variable of the training command, where its value is certain."""
        return self.stated.get(ENVIRONMENT + name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """What a check found: what is wrong, what to do, and the line that is to blame (0 where there is none)."""

    what: str
    advice: str
    file: str = ""
    line: int = 0
    check: str = ""

    @property
    def problem(self) -> Problem:
        """The finding as a problem of the script."""
        return Problem(what=self.what, file=self.file, line=self.line, hint=self.advice)


def report(entry: Evidence, what: str, advice: str) -> PreflightFinding:
    """Return a finding with the place of the fact that it is about."""
    return PreflightFinding(what=what, advice=advice, file=entry.file, line=entry.line)
