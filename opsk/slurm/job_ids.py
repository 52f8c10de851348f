"""Parses job ids (``4711``, ``4711_3``, ``4711+1``) and selects the job that an id names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsk.errors import InputError
from opsk.slurm.records import JobRecord

_JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,6})?")
_LABELS_SHOWN = 8


def parse_base_number(job_id: str) -> str:
    """Return the part of an id that Slurm is queried with: it answers with the whole array or heterogeneous job.

    Raises
    ------
    InputError
        ``job_id`` is no job id.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise InputError(f"{job_id[:40]!r} is no job id", hint="write it as 4711, 4711_3 or 4711+1")
    return re.split(r"[_+]", job_id)[0]


def select_job(jobs: Sequence[JobRecord], job_id: str) -> JobRecord:
    """Return the job that the id names, of those that Slurm answered with.

    Raises
    ------
    InputError
        There is none, or there are several.
    """
    matches = _find_matching(jobs, job_id)
    if not matches:
        raise unknown_job_error(job_id)
    if len(matches) > 1:
        labels = ", ".join(job.label for job in matches[:_LABELS_SHOWN])
        raise InputError(f"job {job_id} stands for {len(matches)} jobs ({labels})", hint="name one of them")
    return matches[0]


def _find_matching(jobs: Sequence[JobRecord], job_id: str) -> list[JobRecord]:
    if "+" in job_id:
        offset = int(job_id.partition("+")[2])
        return [job for job in jobs if job.het_offset == offset]
    if "_" in job_id:
        return [job for job in jobs if job.label == job_id]
    return list(jobs)


def unknown_job_error(job_id: str) -> InputError:
    """Return the error for a job that Slurm does not know."""
    return InputError(
        f"Slurm knows no job {job_id}", hint="it may have ended: Slurm forgets jobs after MinJobAge, see sacct"
    )
