"""Defines what failure detection reads and returns: GPUs, ports and nodes at one moment, and events of their parts.

Observations come from exporters and Slurm. What was not reported is ``None`` or empty, and never counts as unhealthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_NOWHERE = -1


class FailedPart(StrEnum):
    """The kind of a failed part; ``opsk remap --failed`` takes these values before the colon."""

    GPU = "gpu"
    NIC = "nic"
    CABLE = "cable"
    LEAF = "leaf"
    NODE = "node"
    HB_DOMAIN = "hb"


class Severity(StrEnum):
    """How bad it is."""

    FATAL = "fatal"
    """The part is gone; jobs on it die or hang."""
    DEGRADED = "degraded"
    """It works, slower or at risk."""
    WATCH = "watch"
    """Worth knowing, nothing to do now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One failure as it was observed.

    Parameters
    ----------
    key
        Identifies this failure, the same however often it is observed and whatever reports it (``gpu:n3/5``).
    failed
        Value for ``opsk remap --failed`` (``gpu:n3/5``, ``nic:n3/mlx5_2``, ``leaf:leaf07``, ``hb:rack2``).
    part, severity
        Kind of the part, and severity.
    first_seen_s, last_seen_s
        Seconds since 1970.
    count
        How often it was observed.
    text
        The observation, with its numbers; plain text, hostile parts not yet escaped.
    action
        Action in one sentence; ``source`` is its reference (a vendor's page, ``facts``' section).
    nodes
        Nodes that it touches.
    jobs
        Slurm ids of jobs that use the part now.
    is_over
        True when it is healthy again.
    was_there
        True when the very first round showed it: it may have failed long before ``first_seen_s``.
    """

    key: str
    failed: str
    part: FailedPart
    severity: Severity
    first_seen_s: float
    last_seen_s: float
    count: int = 1
    text: str = ""
    action: str = ""
    source: str = ""
    nodes: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    is_over: bool = False
    was_there: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class XidSeen:
    """How often a GPU reported an XID, and when last [s since 1970]; ``None``: its source has no times."""

    code: int
    count: int = 1
    last_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidSeen:
    """How often an NVSwitch of a node reported an error; ``severity`` is a value of `opsk.hardware.xids.Sxid`."""

    code: int
    severity: str
    count: int = 1
    last_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """One GPU.

    Parameters
    ----------
    index
        As nvidia-smi counts; ``None`` where it is unknown: a GPU that was lost before the first observation.
    is_up
        False when it was there and answers no more.
    uncorrected
        Uncorrected memory errors since the last reset or driver load; ``None`` unknown.
    remap_pending, remap_failed
        Rows of memory wait for a reset to be replaced, or could not be replaced.
    recovery
        Requested recovery: a name of `opsk.hardware.xids.recovery_action`; empty where the driver reports none.
    links_active
        NVLinks that are active; ``None`` where it is unknown.
    fabric_faults
        Faults of the GPU in its NVLink fabric, as the driver names them.
    place
        Node and index; -1 where it is unknown.
    is_quiet
        Whether it has no reports at all, as nearly all GPUs, which should cost nothing.
    """

    node: str
    index: int | None
    uuid: str = ""
    is_up: bool = True
    xids: tuple[XidSeen, ...] = ()
    uncorrected: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""
    links_active: int | None = None
    fabric_faults: tuple[str, ...] = ()
    place: tuple[str, int] = field(init=False, compare=False)
    is_quiet: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the values that every round reads of each GPU."""
        has_reports = self.xids or self.uncorrected or self.recovery or self.remap_pending or self.remap_failed
        is_quiet = self.is_up and self.links_active is None and not has_reports and not self.fabric_faults
        object.__setattr__(self, "place", (self.node, _NOWHERE if self.index is None else self.index))
        object.__setattr__(self, "is_quiet", is_quiet)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSeen:
    """One port of an HCA.

    Parameters
    ----------
    is_up
        Whether it can carry traffic (logical state active); ``None`` where it is unknown.
    rate_bytes_per_s
        Speed of the link now [bytes/s].
    downs
        How often the link went down since the counter was cleared.
    leaf, rail, role
        Its cabling by the rails file; empty or ``None`` where it has none.
    name
        ``n3/mlx5_2``; a second port of one adapter has its number. Stored, because every round reads it.
    """

    node: str
    device: str
    port: int = 1
    is_up: bool | None = None
    rate_bytes_per_s: float | None = None
    downs: int | None = None
    leaf: str = ""
    rail: int | None = None
    role: str = ""
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the name."""
        name = f"{self.node}/{self.device}"
        object.__setattr__(self, "name", f"{name}.{self.port}" if self.port > 1 else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """One node.

    Parameters
    ----------
    is_read
        Whether its exporter answered: of one that did not nothing new is known, and nothing ends.
    is_down, is_silent
        Slurm reports it as down, or not responding; ``state`` and ``reason`` as Slurm gives them.
    gpus
        GPUs that Slurm has configured there; ``None`` unknown.
    domain
        HB domain; empty: one of its own, with the node's name.
    """

    name: str
    is_read: bool = True
    is_down: bool = False
    is_silent: bool = False
    state: str = ""
    reason: str = ""
    gpus: int | None = None
    domain: str = ""
    sxids: tuple[SxidSeen, ...] = ()

    @property
    def hb_domain(self) -> str:
        """Name of its HB domain."""
        return self.domain or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A running job: its nodes, and the GPUs that it holds of them where that is known (all of them where not)."""

    id: int
    nodes: tuple[str, ...]
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All observations at one moment [s since 1970]; their order does not matter."""

    at_s: float
    nodes: tuple[NodeSeen, ...] = ()
    gpus: tuple[GpuSeen, ...] = ()
    ports: tuple[PortSeen, ...] = ()
    jobs: tuple[JobSeen, ...] = ()
