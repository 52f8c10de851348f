"""Reads steps and pauses from a job's log, without the warm-up of its last start."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from opsk.diagnosis.losses.observation import MeasuredStep, Pause
from opsk.errors import InputError
from opsk.slurm.records import JobRecord
from opsk.telemetry.jobs.job_files import JobFile
from opsk.telemetry.jobs.job_logs import resolve_log_paths
from opsk.telemetry.progress.records import EventKind, StepRecord
from opsk.telemetry.progress.runs import Run
from opsk.telemetry.progress.runs import SLOW_START

MAX_STEPS = 2_000
"""Number of last lines that are used: older steps say little of the current state."""
_WARM_UP_SHARE = 0.25


def read_steps(run: Run) -> tuple[MeasuredStep, ...]:
    """Return the steady steps of the last start."""
    records = [record for record in run.records if record.step_s]
    last = max((record.generation for record in records), default=0)
    steady = _skip_warm_up([record for record in records if record.generation == last])
    return tuple(_build_step(record, before) for before, record in zip([None, *steady], steady, strict=False))[
        -MAX_STEPS:
    ]


def _skip_warm_up(records: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the lines without the first one and the slow ones right after it, at most a quarter."""
    if len(records) < 2:
        return records
    usual = median(record.step_s or 0.0 for record in records)
    start, limit = 1, max(1, int(_WARM_UP_SHARE * len(records)))
    while start < limit and (records[start].step_s or 0.0) > SLOW_START * usual:
        start += 1
    return records[start:]


def _build_step(record: StepRecord, before: StepRecord | None) -> MeasuredStep:
    """Return a log line as steps; their number is the difference to the line before."""
    known = before is not None and before.iteration is not None and record.iteration is not None
    count = record.iteration - before.iteration if known else 1  # type: ignore[operator, union-attr]
    return MeasuredStep(
        iteration=record.iteration, seconds=record.step_s or 0.0, at_s=record.at_unix_s, steps=max(count, 1)
    )


def read_pauses(run: Run, kind: EventKind, steps: Sequence[MeasuredStep]) -> tuple[Pause, ...]:
    """Return the checkpoints, or validations, during some steps."""
    numbers = [step.iteration for step in steps if step.iteration is not None]
    if not numbers:
        return ()
    first, last = numbers[0] - steps[0].steps, numbers[-1]
    return tuple(
        Pause(iteration=event.iteration, seconds=event.seconds)
        for log in run.logs
        for event in log.events
        if event.kind is kind and event.iteration is not None and first <= event.iteration <= last
    )


def find_job_log(job: JobRecord) -> Path:
    """Return the log of a job from Slurm's record.

    The user chooses the path: only a regular file is read, by root only one that the user owns.

    Raises
    ------
    InputError
        Slurm has none, or it must not be read.
    """
    file = JobFile(
        job_id=str(job.id),
        user=job.user,
        name=job.name,
        node=job.nodes[0] if job.nodes else None,
        work_dir=job.work_dir,
        stdout=job.std_out,
        stderr=job.std_err,
        written_unix_s=0.0,
    )
    path = next(iter(resolve_log_paths(file, job.label, job.name)), None)
    if path is None:
        raise InputError(f"job {job.label}: Slurm does not tell its log", hint="give --log FILE")
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="give --log FILE that can be read here") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: no regular file", hint="give --log FILE")
    if os.geteuid() == 0 and status.st_uid != _find_uid(job.user):
        raise InputError(f"{path}: not a file of {job.user}'s own", hint="give --log FILE if it is to be read")
    return path


def _find_uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
