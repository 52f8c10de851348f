"""Decides whether an interval is fit for calibration: steady steps, and no finding that holds the job up."""

from __future__ import annotations

from opsk.diagnosis.losses.observation import Observation
from opsk.diagnosis.losses.robust import compute_sigma
from opsk.diagnosis.losses.values import Cause, Losses

MIN_STEPS = 20
MAX_SPREAD = 0.05
"""Standard deviation of a step over the median, beyond which a job is not steady [ratio]."""
_ABOUT_THE_PLAN = (Cause.UNKNOWN, Cause.WRONG_PLAN, Cause.RECOMPUTE, Cause.CHECKPOINTING)
"""Causes that leave the median step a valid measure of the job's own plan; above all a gap without explanation.

Fitting to jobs without a gap alone would prove every prediction right.
"""


def list_unfit_reasons(seen: Observation, losses: Losses) -> tuple[str, ...]:
    """Return why an interval is none to fit to; nothing where it is one."""
    why: list[str] = []
    count = sum(step.steps for step in seen.steps)
    if count < MIN_STEPS:
        why.append(f"{count} steps, {MIN_STEPS} are needed")
    elif losses.measured_step_s:
        spread = compute_sigma([step.seconds for step in seen.steps]) / losses.measured_step_s
        if spread > MAX_SPREAD:
            why.append(f"steps differ by {spread:.0%}, {MAX_SPREAD:.0%} at most")
    why += [
        f"{finding.cause.value.replace('_', ' ')}{' at ' if finding.where else ''}{finding.where}"
        for finding in losses.findings
        if finding.cause not in _ABOUT_THE_PLAN
    ]
    return tuple(why)
