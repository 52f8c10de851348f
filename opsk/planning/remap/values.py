"""Defines the values that a remap is made of, and the durations that a site assumes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from opsk.slurm.commands.remap_commands import UNKNOWN_JOB, Command, SlurmSite
from opsk.workload.plan import Plan

HORIZON_S = 86_400.0
REPAIR_S = 14_400.0
CHECKPOINT_INTERVAL_S = 1_800.0
STOP_S = 30.0
START_S = 120.0
RELOAD_S = 120.0
QUEUE_S = 5.0
OPTICAL_S = 30.0
NEWEST_SITE = SlurmSite(release=(26, 5))


class OptionKind(StrEnum):
    """The kinds of options; these words are part of the JSON interface."""

    IDLE_GPU = "idle_gpu"
    """A GPU of the same HB domain that the job holds and no rank uses takes over."""
    OPTICAL = "optical"
    """The same, and optical circuit switches put its HCA on the rail of the GPU that failed."""
    HB_DOMAIN = "hb_domain"
    """Another whole HB domain takes over."""
    SPARE_NODE = "spare_node"
    """Another node takes over: one that the job holds as a spare, or a free one after a requeue."""
    SHRINK_DP = "shrink_dp"
    """The affected replicas are dropped."""
    REPLAN = "replan"
    """Another plan on the nodes that remain."""
    WAIT = "wait"
    """Go on degraded where that is possible, or wait for the repair."""


class Way(StrEnum):
    """How an option is executed in Slurm."""

    RELAUNCH = "relaunch"
    """A new step inside the job's own nodes; nothing leaves the queue."""
    RESIZE = "resize"
    """Nodes are given back first, then a new step runs on the rest."""
    REQUEUE = "requeue"
    """The job goes back into the queue and starts again on other nodes."""
    HOLD = "hold"
    """The job is held until the repair is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One rank that changes its GPU; rails are ``None`` where a GPU has no HCA that follows one."""

    rank: int
    from_node: str
    from_gpu: int
    to_node: str
    to_gpu: int
    from_rail: int | None = None
    to_rail: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """One part of a time: ``name``, ``seconds``, and ``why``: its source, a flag, or an assumption."""

    name: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The predicted performance of the job, with an option or today.

    Parameters
    ----------
    step_s
        Time of a step; its communication alone where the cluster's GPUs are not known.
    loss
        Part of today's sequences a second that is lost; negative where it runs faster.
    is_on_fabric
        False where the prediction is the cost model's alone, because a completely new placement was not evaluated.
    """

    step_s: float
    loss: float
    sequences_per_s: float
    tokens_per_s: float | None
    gpus: int
    global_batch: int
    rail_local_fraction: float | None = None
    leaf_local_fraction: float | None = None
    max_link_load: float | None = None
    is_on_fabric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """The rendezvous host of the ranks (``MASTER_ADDR``): the node of rank 0."""

    before: str
    after: str

    @property
    def changes(self) -> bool:
        """Return whether the node changes."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option to continue.

    Parameters
    ----------
    title
        Short description.
    moves
        Ranks that change their GPU, in rank order. Where ranks get new numbers (``shrink_dp``, ``replan``) it is empty,
        and ``renumbered`` counts the ranks of the new numbering.
    downtime
        The parts that ``downtime_s`` is the sum of.
    lost_s
        Expected loss over the horizon, in seconds of today's work: downtime, work since the last checkpoint, and slower
        steps from then on.
    lost
        The parts that ``lost_s`` is the sum of.
    commands
        Exactly what to run, in order.
    needs
        Preconditions, and help that is required.
    nodes
        Nodes that the job then uses, in the order of their first ranks.
    rank_file
        One host per rank and line for ``SLURM_HOSTFILE`` of a **step**; empty where Slurm's own order is right.
    gpu_order
        ``CUDA_VISIBLE_DEVICES`` of nodes whose local ranks do not take GPUs 0, 1, ... in order.
    changes
        Descriptions of the plan's changes.
    goodput
        Part of today's work that is still done until the job ends [ratio]: downtime, work done again and slower steps
        taken away; above 1 where steps are faster than today's; ``None`` where no time is left.
    goodput_over_s
        That time [s]: until the job's time limit, or the horizon where that is not known.
    """

    kind: OptionKind
    title: str
    way: Way
    moves: tuple[Move, ...]
    renumbered: int
    predicted: Predicted
    downtime_s: float
    downtime: tuple[CostPart, ...]
    lost_s: float
    lost: tuple[CostPart, ...]
    commands: tuple[Command, ...]
    needs: tuple[str, ...]
    why: tuple[str, ...]
    nodes: tuple[str, ...]
    rendezvous: Rendezvous
    plan: Plan
    changes: tuple[str, ...] = ()
    rank_file: str = ""
    gpu_order: tuple[tuple[str, str], ...] = ()
    goodput: float | None = None
    goodput_over_s: float = 0.0

    @property
    def moved(self) -> int:
        """Return how many ranks are somewhere else, or someone else, than before."""
        return self.renumbered or len(self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An option that is not available, and why."""

    kind: OptionKind
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedRank:
    """A rank affected by the failure: ``is_dead`` where its GPU is lost, else it falls back to another HCA."""

    rank: int
    node: str
    local_rank: int
    gpu: int
    is_dead: bool
    device: str | None = None
    fallback_device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The parts of the job that the failure affects, and those that still work; ``links`` are pairs of names."""

    failed: tuple[str, ...]
    ranks: tuple[AffectedRank, ...] = ()
    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    works: tuple[str, ...] = ()
    degraded: Predicted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of ``opsk remap``; ``nothing_to_do`` is the reason where no action is needed."""

    damage: Damage
    today: Predicted
    options: tuple[Option, ...] = ()
    refused: tuple[Refusal, ...] = ()
    nothing_to_do: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The job in Slurm, and times [s] of this site.

    Parameters
    ----------
    job
        Its id; ``JOBID`` where it is not known.
    is_running
        False where Slurm has put it back into the queue, or ended it, already.
    optical
        Whether optical circuit switches can put an HCA on another leaf.
    horizon_s
        Losses are counted over this time from now on.
    repair_s
        Until a failed part works again.
    checkpoint_interval_s
        Between two checkpoints; half of it is done again on average.
    detect_s, stop_s, queue_s, start_s, reload_s, optical_s
        Until the failure is noticed; to end the step; in the queue with ``starttime=now``; from the start of the
        processes to the first step; to read the checkpoint; to switch circuits and train the links.
    until_end_s
        Until the job ends at its time limit; ``None`` where that is not known.
    rank_file
        Where the file with one host per rank will be.
    """

    job: str = UNKNOWN_JOB
    site: SlurmSite = NEWEST_SITE
    is_running: bool = True
    optical: bool = False
    horizon_s: float = HORIZON_S
    repair_s: float = REPAIR_S
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S
    detect_s: float = 0.0
    stop_s: float = STOP_S
    queue_s: float = QUEUE_S
    start_s: float = START_S
    reload_s: float = RELOAD_S
    optical_s: float = OPTICAL_S
    until_end_s: float | None = None
    rank_file: str = "opsk-ranks.txt"


def downtime(terms: Terms, way: Way, *, switches: bool = False) -> tuple[CostPart, ...]:
    """Return the non-zero parts of the time without a step."""
    queued = way in {Way.REQUEUE, Way.HOLD}
    parts = [
        CostPart(name="detect", seconds=terms.detect_s, why="--detect-s: until the failure is noticed"),
        CostPart(
            name="stop",
            seconds=terms.stop_s if terms.is_running else 0.0,
            why="--stop-s: Slurm's KillWait, 30 s by default, between SIGTERM and SIGKILL",
        ),
        CostPart(
            name="repair",
            seconds=terms.repair_s if way is Way.HOLD else 0.0,
            why="--repair-s: assumed, the time to repair is the site's own",
        ),
        CostPart(
            name="queue",
            seconds=terms.queue_s if queued else 0.0,
            why="--queue-s: free nodes are at hand; StartTime=now takes the 120 s of a requeue away, measured 1 to 5 s",
        ),
        CostPart(
            name="optical",
            seconds=terms.optical_s if switches else 0.0,
            why="--optical-s: assumed, to switch circuits and train the links",
        ),
        CostPart(
            name="start", seconds=terms.start_s, why="--start-s: assumed, processes and NCCL up to the first step"
        ),
        CostPart(name="reload", seconds=terms.reload_s, why="--reload-s: assumed, to read the last checkpoint"),
    ]
    return tuple(part for part in parts if part.seconds > 0)


def total(parts: Iterable[CostPart]) -> float:
    """Return the sum of parts [s]."""
    return sum(part.seconds for part in parts)


def losses(terms: Terms, down: Iterable[CostPart], loss: float) -> tuple[CostPart, ...]:
    """Return the parts of the expected loss over the horizon [s of today's work].

    Parameters
    ----------
    loss
        Part of today's speed that is missing afterwards.
    """
    away = min(total(down), terms.horizon_s)
    return (
        CostPart(name="downtime", seconds=away, why="no step runs"),
        CostPart(
            name="redo",
            seconds=terms.checkpoint_interval_s / 2.0,
            why="--checkpoint-interval-s: half of it is done again on average",
        ),
        CostPart(
            name="slower",
            seconds=(terms.horizon_s - away) * loss,
            why=f"--horizon-s: {loss:.2%} of today's speed for the rest of the horizon",
        ),
    )
