"""Builds the terms of a remap: the job's name, the site's Slurm, and the remaining time."""

from __future__ import annotations

from typing import Any

from opsk.app.remap.inputs import NO_JOB, RemapInputs
from opsk.planning.remap.values import Terms
from opsk.slurm.commands.remap_commands import UNKNOWN_JOB


def compute_remaining_s(inputs: RemapInputs) -> float | None:
    """Return the time until the job's time limit [s]."""
    job = inputs.job
    if job is None or job.time_limit_s is None or job.run_time_s is None or not job.is_active:
        return None
    return float(max(job.time_limit_s - job.run_time_s, 0))


def build_terms(inputs: RemapInputs, job: str | None, **given: Any) -> Terms:
    """Return the terms: the job and the times of this site."""
    name = str(inputs.job.id) if inputs.job is not None else job if job not in {None, NO_JOB} else UNKNOWN_JOB
    return Terms(job=name or UNKNOWN_JOB, site=inputs.site, is_running=inputs.is_running, **given)
