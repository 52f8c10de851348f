"""Reads what a running job measures from its logs and its nodes' scrapes, and builds the document of its losses."""

from __future__ import annotations

import math
import os
import pwd
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.plan_file import PlanFile
from opsk.diagnosis.losses.observation import MeasuredStep, Observation, Pause, Prediction
from opsk.diagnosis.losses.predicted import assign_stages
from opsk.diagnosis.losses.scrapes import Activities, Scrape, Series
from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.diagnosis.losses.values import Losses
from opsk.errors import InputError
from opsk.metrics.exposition import read_stamped_samples
from opsk.slurm.records import JobRecord
from opsk.telemetry.jobs.job_files import JobFile, resolve_log_paths
from opsk.telemetry.progress.records import EventKind, StepRecord
from opsk.telemetry.progress.runs import Run, skip_warm_up
from opsk.text import escape, to_json_values
from opsk.units import MIB

MAX_BYTES = 32 * MIB
_MAX_LINE_BYTES = 8192
MAX_STEPS = 2_000
"""Number of last lines that are used: older steps say little of the current state."""


def read_scrape(argument: str) -> Scrape:
    """Read one scrape; its time is the file's where samples have no time stamps.

    Raises
    ------
    InputError
        The file cannot be read, or has no series of opsk's exporters.
    """
    node, sign, name = argument.partition("=")
    path = Path(name if sign else argument)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        at_s = path.stat().st_mtime
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="give a scrape: NODE=FILE") from error
    if len(data) > MAX_BYTES:
        raise InputError(escape(f"{path}: larger than {MAX_BYTES} bytes"), hint="is this a scrape?")
    values, stamped_s = parse_scrape(data)
    if not values:
        raise InputError(escape(f"{path}: no series of opsk's exporters"), hint="write one with opsk exporter --once")
    return Scrape(node=node if sign else re.split(r"[.@]", path.name)[0], values=values, at_s=stamped_s or at_s)


def parse_scrape(page: bytes) -> tuple[dict[Series, float], float | None]:
    """Return the series of a page in Prometheus's format, and the time that its samples have [s since 1970]."""
    values: dict[Series, float] = {}
    stamped: float | None = None
    lines = (line for line in page.splitlines() if len(line) <= _MAX_LINE_BYTES)
    for (name, labels, value), at_s in read_stamped_samples(lines, "opsk_"):
        if math.isfinite(value):
            values[name, frozenset(labels.items())] = value
        stamped = at_s or stamped
    return values, stamped


def read_steps(run: Run) -> tuple[MeasuredStep, ...]:
    """Return the steady steps of the last start."""
    records = [record for record in run.records if record.step_s]
    last = max((record.generation for record in records), default=0)
    steady = skip_warm_up([record for record in records if record.generation == last])
    return tuple(_build_step(record, before) for before, record in zip([None, *steady], steady, strict=False))[
        -MAX_STEPS:
    ]


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
        raise InputError(f"job {job.label}: Slurm does not report its log", hint="give --log FILE")
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="give --log FILE that can be read here") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file", hint="give --log FILE")
    if os.geteuid() == 0 and status.st_uid != _find_uid(job.user):
        raise InputError(f"{path}: not owned by {job.user}", hint="give --log FILE to read it anyway")
    return path


def _find_uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def observe_job(run: Run, predicted: Prediction | None, active: Activities, plan_input: PlanFile | None) -> Observation:
    """Return all observations of the job."""
    steps = read_steps(run)
    gpus = active.gpus if plan_input is None else assign_stages(active.gpus, plan_input.plan)
    return Observation(
        prediction=predicted,
        steps=steps,
        checkpoints=read_pauses(run, EventKind.CHECKPOINT, steps),
        validations=read_pauses(run, EventKind.VALIDATION, steps),
        gpus=gpus,
        ports=active.ports,
        hosts=active.hosts,
    )


def build_losses_document(observation: Observation, result: Losses, reasons: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer as plain values."""
    predicted = observation.prediction
    document: dict[str, Any] = to_json_values(replace(result, findings=()))
    return {
        **document,
        "expected_range_s": None if predicted is None else [predicted.low_s, predicted.high_s],
        "awaits": _count_awaited(observation),
        "findings": [to_json_values(finding) for finding in result.findings],
        "seen": {
            "steps": sum(step.steps for step in observation.steps),
            "gpus": len(observation.gpus),
            "ports": len(observation.ports),
            "hosts": len(observation.hosts),
        },
        "fit_to_calibrate": not reasons,
        "unfit": list(reasons),
    }


def _count_awaited(observation: Observation) -> dict[str, int] | None:
    """Return the number of step times and the required number; ``None`` where there are enough."""
    if len(observation.steps) >= MIN_STEPS:
        return None
    return {"step_times": len(observation.steps), "needed": MIN_STEPS}
