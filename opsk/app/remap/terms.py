"""On which terms is a job remapped: its name, this site's Slurm, how long it still has?"""

from __future__ import annotations

from typing import Any

from opsk.app.remap.inputs import NO_JOB, Gathered
from opsk.planning.remap.terms import Terms
from opsk.slurm.commands.remap_commands import UNKNOWN_JOB


def until_end_s_of(found: Gathered) -> float | None:
    """Return how long the job has until its time limit [s]."""
    job = found.job
    if job is None or job.time_limit_s is None or job.run_time_s is None or not job.is_active:
        return None
    return float(max(job.time_limit_s - job.run_time_s, 0))


def terms_of(found: Gathered, job: str | None, **given: Any) -> Terms:
    """Return the job and the times of this site."""
    name = str(found.job.id) if found.job is not None else job if job not in {None, NO_JOB} else UNKNOWN_JOB
    return Terms(job=name or UNKNOWN_JOB, site=found.site, is_running=found.is_running, **given)
