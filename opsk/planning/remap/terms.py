"""Defines the durations that a site assumes, and the time over which losses are counted; flags override them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opsk.planning.remap.values import Part, Way
from opsk.slurm.commands.remap_commands import UNKNOWN_JOB, SlurmSite

HORIZON_S = 86_400.0
REPAIR_S = 14_400.0
CHECKPOINT_INTERVAL_S = 1_800.0
STOP_S = 30.0
START_S = 120.0
RELOAD_S = 120.0
QUEUE_S = 5.0
OPTICAL_S = 30.0
NEWEST_SITE = SlurmSite(release=(26, 5))


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


def downtime(terms: Terms, way: Way, *, switches: bool = False) -> tuple[Part, ...]:
    """Return the non-zero parts of the time without a step."""
    queued = way in {Way.REQUEUE, Way.HOLD}
    parts = [
        Part(name="detect", seconds=terms.detect_s, why="--detect-s: until the failure is noticed"),
        Part(
            name="stop",
            seconds=terms.stop_s if terms.is_running else 0.0,
            why="--stop-s: Slurm's KillWait, 30 s by default, between SIGTERM and SIGKILL",
        ),
        Part(
            name="repair",
            seconds=terms.repair_s if way is Way.HOLD else 0.0,
            why="--repair-s: assumed, the time to repair is the site's own",
        ),
        Part(
            name="queue",
            seconds=terms.queue_s if queued else 0.0,
            why="--queue-s: free nodes are at hand; StartTime=now takes the 120 s of a requeue away, measured 1 to 5 s",
        ),
        Part(
            name="optical",
            seconds=terms.optical_s if switches else 0.0,
            why="--optical-s: assumed, to switch circuits and train the links",
        ),
        Part(name="start", seconds=terms.start_s, why="--start-s: assumed, processes and NCCL up to the first step"),
        Part(name="reload", seconds=terms.reload_s, why="--reload-s: assumed, to read the last checkpoint"),
    ]
    return tuple(part for part in parts if part.seconds > 0)


def total(parts: Iterable[Part]) -> float:
    """Return the sum of parts [s]."""
    return sum(part.seconds for part in parts)


def losses(terms: Terms, down: Iterable[Part], loss: float) -> tuple[Part, ...]:
    """Return the parts of the expected loss over the horizon [s of today's work].

    Parameters
    ----------
    loss
        Part of today's speed that is missing afterwards.
    """
    away = min(total(down), terms.horizon_s)
    return (
        Part(name="downtime", seconds=away, why="no step runs"),
        Part(
            name="redo",
            seconds=terms.checkpoint_interval_s / 2.0,
            why="--checkpoint-interval-s: half of it is done again on average",
        ),
        Part(
            name="slower",
            seconds=(terms.horizon_s - away) * loss,
            why=f"--horizon-s: {loss:.2%} of today's speed for the rest of the horizon",
        ),
    )
