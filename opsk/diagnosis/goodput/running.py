"""Computes which part of the time gives new training while there are enough nodes, and where the rest goes.

Interruptions come at a constant rate, also while the job restarts; each costs a restart and the work since the last
checkpoint. The share of useful time is `opsk.costmodel.estimates.checkpoint.lost_fraction` (Daly 2006); this module
splits what is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from opsk.costmodel.estimates.checkpoint import Checkpoint, CheckpointOptions, compute_checkpoint, lost_fraction
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How a job saves its state.

    Parameters
    ----------
    size_bytes, write_s, stall_s
        One checkpoint; until it is safe; for how long it holds up training.
    interval_s, interval_steps
        Training between two checkpoints; infinite, and ``None``, where nothing ever fails and no interval is set.
    best_interval_s
        The interval that loses least, not rounded to steps.
    restart_s
        From an interruption until training continues.
    """

    asynchronous: bool
    size_bytes: float
    write_s: float
    stall_s: float
    interval_s: float
    interval_steps: int | None
    best_interval_s: float
    restart_s: float

    @property
    def pending_s(self) -> float:
        """Time for which a checkpoint is not safe yet while training continues [s]."""
        return self.write_s if self.asynchronous else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Where the time goes [ratio]; the parts add up to 1.

    Parameters
    ----------
    useful
        New training.
    saving
        Training stands still for a checkpoint that is useful.
    again
        Work, and checkpoints, that an interruption made void.
    restart
        From an interruption until training continues.
    waiting
        Too few nodes are in order, or a leaf is out.
    """

    useful: float
    saving: float = 0.0
    again: float = 0.0
    restart: float = 0.0
    waiting: float = 0.0


def plan_saving(
    model: ModelShape,
    plan: Plan,
    cluster: ClusterSpec,
    options: CheckpointOptions,
    *,
    mtbf_s: float,
    step_s: float,
) -> Saving:
    """Return how the plan saves its state, with the best interval in whole steps unless ``options`` state one.

    An asynchronous checkpoint must be written before the next one begins.
    """
    known = None if math.isinf(mtbf_s) else mtbf_s
    checkpoint = compute_checkpoint(model, plan, cluster, replace(options, mtbf_s=known))
    best_s = checkpoint.best_interval_s if known else math.inf
    interval_s, steps = _round_to_steps(checkpoint, options, best_s, step_s)
    return Saving(
        asynchronous=options.asynchronous,
        size_bytes=checkpoint.size_bytes,
        write_s=checkpoint.write_s,
        stall_s=checkpoint.stall_s,
        interval_s=interval_s,
        interval_steps=steps,
        best_interval_s=best_s,
        restart_s=options.restart_s,
    )


def _round_to_steps(
    checkpoint: Checkpoint, options: CheckpointOptions, best_s: float, step_s: float
) -> tuple[float, int | None]:
    """Return the interval and its steps."""
    if options.interval_s is not None:
        return options.interval_s, max(round(options.interval_s / step_s), 1)
    if math.isinf(best_s):
        return math.inf, None
    min_steps = math.ceil(checkpoint.write_s / step_s) if options.asynchronous else 1
    steps = max(round(best_s / step_s), min_steps, 1)
    return steps * step_s, steps


def compute_running_shares(saving: Saving, mtbf_s: float) -> TimeShares:
    """Return where the time goes while there are enough nodes.

    A moment is in a restart when the last interruption is less than ``restart_s`` ago: 1 - e^(-R/M). Of each interval
    that is not lost, C / (t + C) is saving. The rest is work that was lost.
    """
    if math.isinf(mtbf_s):
        useful = 1.0 if math.isinf(saving.interval_s) else saving.interval_s / (saving.interval_s + saving.stall_s)
        return TimeShares(useful=useful, saving=1.0 - useful)
    useful = compute_useful_share(saving, mtbf_s, saving.interval_s)
    stalls = useful * saving.stall_s / saving.interval_s
    restart = -math.expm1(-saving.restart_s / mtbf_s)
    return TimeShares(useful=useful, saving=stalls, again=max(1.0 - restart - useful - stalls, 0.0), restart=restart)


def compute_useful_share(saving: Saving, mtbf_s: float, interval_s: float) -> float:
    """Return the share of useful time if a checkpoint were written after each ``interval_s`` of training."""
    return 1.0 - lost_fraction(interval_s, saving.stall_s, mtbf_s, saving.restart_s + saving.pending_s)
