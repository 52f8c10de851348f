"""Defines the findings on a job that is slower than predicted, for the TUI, the exporter, programs and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """A cause of lost time; programs rely on these values."""

    STRAGGLER = "straggler"
    """One rank, GPU or node is slower than its equals, and all wait for it."""
    THERMAL_CAP = "thermal_cap"
    """Clocks are held down by heat."""
    POWER_CAP = "power_cap"
    """Clocks are held down by a power limit."""
    CONGESTED_LINK = "congested_link"
    """Packets wait at a port, or a link runs below its rate."""
    WRONG_PLAN = "wrong_plan"
    """Another plan is predicted to be faster by more than the error of the prediction."""
    DATA_LOADING = "data_loading"
    """GPUs wait for input: idle gaps while processors or storage are busy."""
    CHECKPOINTING = "checkpointing"
    """Steps at regular intervals take much longer than the others."""
    RECOMPUTE = "recompute"
    """Activations are computed twice though memory would do without."""
    UNKNOWN = "unknown"
    """The rest: nothing that is known explains it."""


FAULTS_OF_A_RUN = frozenset({Cause.STRAGGLER, Cause.THERMAL_CAP, Cause.CONGESTED_LINK, Cause.DATA_LOADING})
"""Causes that hold up one run; the others (a power limit, a plan) belong to what is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause with its numbers.

    Parameters
    ----------
    share
        Part of the measured step time that it explains [ratio, 0 to 1].
    confidence
        How sure that is [ratio].
    where
        The node, GPU, rank or link, as text (``n17 gpu 3``, ``rank 131``); empty for the job.
    text
        One sentence with the numbers; plain text, hostile parts not yet escaped.
    numbers
        The same numbers by name, with the unit in the name.
    """

    cause: Cause
    share: float
    confidence: float
    where: str = ""
    text: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Measured against predicted, and where the difference goes.

    Parameters
    ----------
    expected_mfu, measured_mfu
        Model FLOP utilisation [ratio]; ``None`` where it is unknown.
    expected_step_s, measured_step_s
        Time of one optimizer step [s]: as predicted, and the median of the latest measured ones.
    mean_step_s
        Measured time of one step with all that happens between steps, checkpoints and stalls too [s].
    reachable_step_s
        Time of a step without the findings [s]: the prediction, or less where evidence or a better plan implies it.
    gap
        Part of ``mean_step_s`` beyond ``reachable_step_s`` [ratio]; 0 when the job is as fast as predicted or faster,
        and nothing was found.
    is_within_error
        True where the measured time is no longer than the prediction's own error allows.
    findings
        Causes, the largest share first, and then the rest as ``Cause.UNKNOWN``; shares add up to the gap.
    """

    expected_mfu: float | None = None
    measured_mfu: float | None = None
    expected_step_s: float | None = None
    measured_step_s: float | None = None
    mean_step_s: float | None = None
    reachable_step_s: float | None = None
    gap: float | None = None
    is_within_error: bool = True
    findings: tuple[Finding, ...] = ()
