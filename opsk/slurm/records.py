"""Defines the records of jobs, nodes and partitions, the same for every release and every adapter.

``None`` means that Slurm did not report the value or that it was not requested. Text that users wrote (names, comments,
directories) is unchanged and hostile: show it through `opsk.text.escape` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

ACTIVE_STATES = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "CONFIGURING"}
)
"""Job states in which the job holds its nodes."""

UNUSABLE_STATES = frozenset(
    {
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "FAIL",
        "FAILING",
        "INVALID_REG",
        "MAINT",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)
"""Node state words with which a node takes no new job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job, one array task, or one component of a heterogeneous job.

    Parameters
    ----------
    id
        Slurm's own job id, unique for every array task and component.
    label
        The id as people write it: ``10_3`` for an array task, ``10_[3-4%2]`` for what is pending of an array.
    state
        Base state in upper case (``RUNNING``, ``PENDING``, ``NODE_FAIL``); ``state_flags`` what comes with it.
    reason
        Why it is pending or failed; ``None`` when there is no reason.
    nodes
        Names of the allocated nodes in Slurm's order; empty while pending.
    node_count, cpus
        Nodes and CPUs allocated, or requested while pending.
    gpus, gpus_per_node
        GPUs allocated (requested while pending), and how many on each node; ``gpus_per_node`` is ``None`` when nodes
        have different numbers, or when nothing fixes it.
    gpu_type
        GRES type (``h100``); ``None`` for untyped GPUs.
    gpu_indices
        Node name to the GRES indices held there; only for running jobs and only from `SlurmClient.job` or with
        ``details``.
    admin_comment
        Written by ``job_submit.lua`` or an administrator; ``None`` also when it was not requested.
    submit_time, start_time, end_time
        In the time zone of the querying machine; ``start_time`` and ``end_time`` are expectations while pending or
        running.
    time_limit_s, run_time_s
        Seconds; ``time_limit_s`` is ``None`` for unlimited.
    exit_code, exit_signal
        Of the batch script; ``None`` until the job ended.
    work_dir, command, std_out, std_err
        Paths as Slurm prints them, patterns such as ``%j`` left as they are.
    """

    id: int
    label: str
    user: str
    name: str
    state: str
    state_flags: tuple[str, ...] = ()
    reason: str | None = None
    partition: str = ""
    account: str | None = None
    qos: str | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    cpus: int = 0
    tasks: int | None = None
    gpus: int = 0
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    gpu_indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    array_job_id: int | None = None
    array_task: str | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    comment: str | None = None
    admin_comment: str | None = None
    reservation: str | None = None
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    time_limit_s: int | None = None
    run_time_s: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    restarts: int | None = None
    work_dir: str | None = None
    command: str | None = None
    std_out: str | None = None
    std_err: str | None = None

    @property
    def is_active(self) -> bool:
        """True while the job holds nodes."""
        return self.state in ACTIVE_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node.

    ``state`` is the base state in upper case (``IDLE``, ``MIXED``, ``ALLOCATED``, ``DOWN``), ``state_flags`` the words
    after it (``DRAIN``, ``RESERVED``). ``gpus`` are configured, ``gpus_used`` allocated, ``gpu_indices_used`` which.
    ``memory_bytes`` is configured memory. ``address`` and ``port`` are where slurmd listens. ``reason`` is why it was
    drained or set down.
    """

    name: str
    state: str
    state_flags: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gpus: int = 0
    gpus_used: int = 0
    gpu_type: str | None = None
    gpu_indices_used: tuple[int, ...] = ()
    cpus: int = 0
    cpus_used: int = 0
    memory_bytes: int = 0
    address: str | None = None
    port: int | None = None
    release: str | None = None
    reason: str | None = None
    comment: str | None = None

    @property
    def is_usable(self) -> bool:
        """True when the node can take a job now or when its present jobs end."""
        return self.state not in UNUSABLE_STATES and not UNUSABLE_STATES.intersection(self.state_flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """One partition: what its jobs get by default, and at most.

    Parameters
    ----------
    is_default
        Whether it takes the jobs that name none.
    min_nodes, max_nodes
        Nodes of a job that requests no number, and the most that a job may have; ``None`` for any number.
    default_time_s, max_time_s
        Time limit of a job that requests none, and the longest; ``None`` for unlimited.
    default_memory_bytes, default_memory_each
        Memory of a job that requests none, for each ``node``, ``cpu`` or ``gpu``; ``None`` for all of a node.
    """

    name: str
    is_default: bool = False
    min_nodes: int = 1
    max_nodes: int | None = None
    default_time_s: int | None = None
    max_time_s: int | None = None
    default_memory_bytes: int | None = None
    default_memory_each: str = "node"
