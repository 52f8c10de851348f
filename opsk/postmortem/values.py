"""Defines the values of a post-mortem that reading, reasoning and reporting exchange.

Text from users, logs or kernels is kept as it was read and is hostile: the code that shows it escapes it. Times are
seconds since 1970 in the reference clock of the report (see ``Skew``); ``None`` means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FailureClass(StrEnum):
    """The kind of a failure; programs rely on these values."""

    GPU_MEMORY = "gpu_memory"
    HOST_MEMORY = "host_memory"
    GPU_HARDWARE = "gpu_hardware"
    NVLINK = "nvlink"
    FABRIC = "fabric"
    NODE = "node"
    STORAGE = "storage"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    RENDEZVOUS = "rendezvous"
    COLLECTIVE_HANG = "collective_hang"
    NUMERIC = "numeric"
    CONFIG = "config"
    SOFTWARE = "software"


LAST_WORDS = "end.last_words"
"""Signature of a program's own words that all went well: they end a job well where nothing speaks against it."""
TRIFLE = "trifle"
"""Field of a finding: a line of the job's script failed that was not what the job was for, after its program ran."""


class Role(StrEnum):
    """The role of a finding in a failure."""

    ROOT = "root"
    """Can have started the failure."""
    CASCADE = "cascade"
    """Follows from another failure; never a root by itself."""
    CONFIRMATION = "confirmation"
    """Makes a root more certain; begins nothing."""
    ADVICE = "advice"
    """Text that only explains or advises (``might be caused by``); never evidence."""
    PROGRESS = "progress"
    """The job was alive and working then."""
    END = "end"
    """The job, or a rank, ended well."""


class Origin(StrEnum):
    """The writer of a text: output of a user's program is never evidence of the kernel or of Slurm."""

    JOB_LOG = "job_log"
    """stdout or stderr of the job: anybody's text."""
    LAUNCHER = "launcher"
    """slurmstepd and srun, in the job's output: trusted unless Slurm's record contradicts."""
    KERNEL = "kernel"
    """The node's own kernel log or journal."""
    SLURM = "slurm"
    """sacct, scontrol: authority over text."""
    GPU = "gpu"
    """NVML or nvidia-smi on the node."""
    FABRIC = "fabric"
    """Port counters and link states."""
    CGROUP = "cgroup"
    """memory.events and its kin."""
    FLIGHT_RECORDER = "flight_recorder"
    """PyTorch's dump of collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place, by any of its identifiers; empty and ``None`` are unknown."""

    node: str = ""
    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    """Number of the node within the job as launchers count (torchrun's group rank), where no name is stated."""
    gpu_uuid: str = ""
    gpu_index: int | None = None
    pci: str = ""
    """PCI address of the GPU, normalised: ``0000:9b:00.0`` without the function where it is not stated."""
    hca: str = ""
    """InfiniBand device (``mlx5_3``)."""
    peer: str = ""
    """The other end of a link or connection, where the text names it."""
    ranks: tuple[int, ...] = ()
    """Several ranks, where it is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation: a signature matched in some text, or a fact read elsewhere.

    Parameters
    ----------
    signature
        Id of the signature (``torch.watchdog_timeout``, ``kernel.xid``, ``slurm.oom_kill``).
    failure
        Class that it points to; ``None`` for progress and ends.
    time_s
        When, in the clock of its own node; ``None`` where the line carries no time.
    order
        Number of the line (or record) in its source, which orders findings without a time; ``last_order``: of the last.
    source
        File or command it comes from; ``line`` is the line's number there, from 1.
    text
        The line as it was, at most a few hundred characters.
    fields
        Fields read from it: ``code``, ``pci``, ``seq``, ``op``, ``rank``, ``iteration``, ...
    count
        How often the same was seen in this source; this is the first.
    last_time_s
        When it was seen last.
    has_line
        Whether ``line`` is the line's number: behind a part of a log that was not read it is not known.
    earliest_s, latest_s
        Where the line itself has no time: when a line before it and one after it in the same log were written.
    """

    signature: str
    role: Role
    origin: Origin
    failure: FailureClass | None = None
    place: Place = field(default_factory=Place)
    time_s: float | None = None
    last_time_s: float | None = None
    earliest_s: float | None = None
    latest_s: float | None = None
    order: int = 0
    last_order: int = 0
    source: str = ""
    line: int = 0
    has_line: bool = True
    text: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """How far one rank came, by its log: last iteration, last line, last collective.

    ``last_progress_order`` is where in its source the last step was reported, as `Finding.order` counts.
    ``previous_progress_order`` is where the step before that was.
    ``ordinary_order`` is where the third-last line begins that a program at work writes, if it is near the end.
    ``first_line_s`` is the first time in the log; ``pci`` and ``gpu_index`` are the rank's GPU, as NCCL reports it.
    Where only ``local_rank`` is known it is one of several ranks of that number, on the node of that ``node_rank``.
    ``seq_enqueued``, ``seq_completed``: last NCCL work enqueued and completed, by process group name.
    """

    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    node: str = ""
    pci: str = ""
    gpu_index: int | None = None
    source: str = ""
    first_iteration: int | None = None
    last_iteration: int | None = None
    first_progress_s: float | None = None
    last_progress_s: float | None = None
    last_progress_order: int | None = None
    previous_progress_order: int | None = None
    ordinary_order: int | None = None
    first_line_s: float | None = None
    last_line_s: float | None = None
    last_text: str = ""
    lines: int = 0
    bytes: int = 0
    ended_well: bool = False
    seq_enqueued: Mapping[str, int] = field(default_factory=dict)
    seq_completed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Slurm's record of the job; ``None`` and empty are unknown.

    Parameters
    ----------
    state
        ``COMPLETED``, ``FAILED``, ``TIMEOUT``, ``OUT_OF_MEMORY``, ``NODE_FAIL``, ``PREEMPTED``, ``CANCELLED``, ...
    exit_code, exit_signal, derived_exit_code
        Of the batch script; ``derived_exit_code`` is the largest of its steps.
    number, uid
        Slurm's own number of it, which a task of an array has too, and its user's number.
    cancelled_by
        User id who cancelled it.
    node_reasons
        Reason by node, as administrators or Slurm set it, with when [s].
    """

    job_id: str = ""
    number: str = ""
    user: str = ""
    uid: int | None = None
    name: str = ""
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    derived_exit_code: int | None = None
    cancelled_by: int | None = None
    nodes: tuple[str, ...] = ()
    tasks: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    time_limit_s: int | None = None
    submit_s: float | None = None
    restarts: int = 0
    partition: str = ""
    account: str = ""
    cluster: str = ""
    admin_comment: str = ""
    node_reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was gathered of one job.

    Parameters
    ----------
    job
        Slurm's record; ``None`` where there are only logs.
    findings
        The findings, in any order.
    ranks
        Progress of each rank or log.
    gathered
        Kinds of evidence that were read (``kernel_log``, ``nvml``, ``ib_counters``, ``sacct``, ``logs``, ...) and
        for how many of how many nodes, as text: other kinds are candidates for ``missing``.
    unreadable
        Evidence that could not be read, and why.
    notes
        What is to be known of the evidence: parts that were not read, logs of another job.
    """

    job: JobFacts | None = None
    findings: tuple[Finding, ...] = ()
    ranks: tuple[RankProgress, ...] = ()
    gathered: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How far a node's clock is ahead of the reference clock [s], and how far that may be wrong [s]."""

    node: str
    ahead_s: float
    error_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of the timeline, in the reference clock."""

    time_s: float | None
    what: str
    place: Place = field(default_factory=Place)
    role: Role = Role.CONFIRMATION
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A candidate for the cause of the failure.

    Parameters
    ----------
    what
        One sentence with the numbers.
    confidence
        Probability that this is the root [ratio].
    why
        The steps of the reasoning, each a sentence that can be checked against the evidence.
    findings
        The evidence for it.
    """

    failure: FailureClass
    what: str
    where: Place
    confidence: float
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[Finding, ...]:
        """Return the findings to show, of those in one line the first."""
        shown: dict[tuple[str, int, str], Finding] = {}
        for finding in self.findings:
            shown.setdefault((finding.source, finding.line, finding.text), finding)
        return tuple(shown.values())


class Audience(StrEnum):
    """Who is to do something."""

    ADMINISTRATOR = "administrator"
    USER = "user"
    OPSK = "opsk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action: a sentence, the exact command where there is one, and its audience."""

    what: str
    command: str = ""
    audience: Audience = Audience.USER
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Missing evidence: what it is, why it matters, and how to have it next time."""

    what: str
    why: str
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The collective in which ranks diverged: who is behind, who never arrived, of whom nothing is known.

    ``completed`` is the last collective that the ranks completed that waited, ``lowest_completed`` that of the ranks
    behind; ``unseen`` are ranks below the highest of which there is no line at all.
    """

    group: str
    seq: int | None
    op: str
    behind: tuple[int, ...] = ()
    never_arrived: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()
    completed: int | None = None
    lowest_completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The number of recent failures of a part or user (``lemon``: ratio to what chance would give)."""

    subject: str
    failures: int
    jobs: int
    days: int
    lemon: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The post-mortem of one job.

    Parameters
    ----------
    state
        Slurm's state of the job; else ``failed``, ``ended well`` or ``unknown`` by the logs.
    root
        The most likely cause; ``None`` when nothing failed or no cause is likely enough.
    alternatives
        Other candidates, the likeliest first.
    timeline
        What happened from the root on, the oldest first; all that is known where there is no root.
    before
        Where the job was before the root: its start, and the last step that was reported.
    """

    state: str
    job: JobFacts | None = None
    root: Cause | None = None
    alternatives: tuple[Cause, ...] = ()
    timeline: tuple[Moment, ...] = ()
    before: tuple[Moment, ...] = ()
    divergence: Divergence | None = None
    evidence: Evidence = field(default_factory=Evidence)
    skews: tuple[Skew, ...] = ()
    missing: tuple[Missing, ...] = ()
    actions: tuple[Action, ...] = ()
    recurrence: tuple[Recurrence, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
