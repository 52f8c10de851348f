"""Is an interval good enough to fit the cost model to? Steady steps, and nothing found that holds the job up."""

from __future__ import annotations

from opsk.diagnosis.losses.observation import Observation
from opsk.diagnosis.losses.robust import sigma
from opsk.diagnosis.losses.values import Cause, Losses

FEWEST_STEPS = 20
MOST_SPREAD = 0.05
"""Standard deviation of a step over the median, beyond which a job is not steady [ratio]."""
_ABOUT_THE_PLAN = (Cause.UNKNOWN, Cause.WRONG_PLAN, Cause.RECOMPUTE, Cause.CHECKPOINTING)
"""What does not make the median step a wrong measure of the job's own plan; a gap that nothing explains least of all.

Fitting to jobs without a gap alone would prove every prediction right.
"""


def unfit(seen: Observation, losses: Losses) -> tuple[str, ...]:
    """Return why an interval is none to fit to; nothing where it is one."""
    why: list[str] = []
    count = sum(step.steps for step in seen.steps)
    if count < FEWEST_STEPS:
        why.append(f"{count} steps, {FEWEST_STEPS} are needed")
    elif losses.measured_step_s:
        spread = sigma([step.seconds for step in seen.steps]) / losses.measured_step_s
        if spread > MOST_SPREAD:
            why.append(f"steps differ by {spread:.0%}, {MOST_SPREAD:.0%} at most")
    why += [
        f"{finding.cause.value.replace('_', ' ')}{' at ' if finding.where else ''}{finding.where}"
        for finding in losses.findings
        if finding.cause not in _ABOUT_THE_PLAN
    ]
    return tuple(why)
