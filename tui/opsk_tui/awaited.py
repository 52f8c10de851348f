"""Tell what the answer to where a job's time goes waits for: a prediction, a first step, or more steps."""

from __future__ import annotations

from opsk.planner.losses.step_times import FEWEST_STEPS
from opsk_tui.job_columns import expected_step_s
from opsk_tui.view import JobView

_NOT_STARTED = frozenset({"PENDING", "CONFIGURING"})


def awaited(job: JobView) -> str | None:
    """Return in a line what stands between a job and measured against predicted; ``None`` where nothing does."""
    if expected_step_s(job) is None:
        if job.advice is None:
            return "no prediction: opsk left none when it was submitted"
        return "no prediction: the plan in its script is not known"
    if job.losses is not None and job.losses.gap is not None:
        return None
    if job.record.state in _NOT_STARTED:
        return "the job has not started"
    if job.measured is None or job.measured.step_s is None:
        return "waits for the first progress line" if job.record.is_active else "not measured: the job has ended"
    step_times = len(job.measured.history)
    if step_times >= FEWEST_STEPS:
        return "measured: it is looked at next"
    return f"measuring: {step_times} of {FEWEST_STEPS} step times, one a scrape"
