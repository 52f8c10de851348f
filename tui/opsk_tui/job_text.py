"""Formats jobs as plain text, for ``opsk top --once``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from opsk.slurm.records import JobRecord
from opsk.text import escape, format_bytes, format_duration
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.values import FeedState, JobView
from opsk_tui.screens.columns import Column, format_plan, percent

NO_JOBS = "No jobs are pending or running."
NO_JOBS_HINT = "What opsk predicts for a job shows here as soon as one is submitted."
_MAX_NODES_SHOWN = 64


def headline(state: FeedState, shown: int | None = None) -> str:
    """Return the jobs in one line: how many, by state, on how many GPUs, and how many of them with a prediction."""
    if state.taken_at is None:
        return "asking Slurm …"
    running = [job for job in state.jobs if job.record.is_active]
    pending = sum(job.record.state == "PENDING" for job in state.jobs)
    advised = sum(job.advice is not None for job in state.jobs)
    gpus = sum(job.record.gpus for job in running)
    parts = [f"{len(running)} running on {gpus} GPUs", f"{pending} pending", f"{advised} with a prediction"]
    if shown is not None and shown != len(state.jobs):
        parts.insert(0, f"{shown} of {len(state.jobs)} shown")
    return " · ".join(parts)


def format_age(age_s: float | None) -> str:
    """Return the age of the data, ``now`` below two seconds."""
    if age_s is None:
        return "no data yet"
    return "now" if age_s < 2 else f"{format_duration(float(int(age_s)))} ago"


def format_problem(state: FeedState, age_s: float | None) -> str:
    """Return why Slurm did not answer, and the age of the shown data."""
    old = "nothing to show yet" if age_s is None else f"what is shown is of {format_age(age_s)}"
    hint = f" ({escape(state.hint)})" if state.hint else ""
    return f"Slurm does not answer: {escape(state.problem)}{hint}; {old}"


def advice_lines(job: JobView) -> list[tuple[str, str]]:
    """Return the prediction as pairs of a name and a value; one line says so when there is none."""
    advice = job.advice
    if advice is None:
        return [("prediction", "none: the job's comment carries no advice of opsk")]
    lines = [
        ("verdict", advice.verdict.value),
        ("chance to fit", advice.fit if advice.fit is None else percent(advice.fit)),
        ("memory", _format_memory(advice)),
        ("step time", None if advice.step_s is None else format_duration(advice.step_s)),
        ("tokens/s per GPU", advice.tokens_per_s_per_gpu),
        ("TFLOP/s per GPU", advice.tflops),
        ("MFU", advice.mfu if advice.mfu is None else percent(advice.mfu)),
        ("plan", format_plan(advice)),
        ("script hash", advice.hash),
    ]
    return [(name, f"{value:g}" if isinstance(value, float) else value) for name, value in lines if value is not None]


def _format_memory(advice: AdviceRecord) -> str | None:
    """Return the predicted memory and the capacity."""
    if advice.mem_bytes is None:
        return None
    used = format_bytes(advice.mem_bytes)
    if advice.mem_ratio is None or advice.capacity_bytes is None:
        return used
    return f"{used} of {format_bytes(advice.capacity_bytes)} per GPU ({percent(advice.mem_ratio)})"


def record_lines(job: JobRecord) -> list[tuple[str, str]]:
    """Return the fields of a job's record as pairs of a name and a value, without empty fields."""
    lines = []
    for field in fields(job):
        value = getattr(job, field.name)
        if value not in (None, "", (), {}):
            is_duration = field.name.endswith("_s")
            shown = format_duration(float(value)) if is_duration else _format_value(value)
            lines.append((field.name.removesuffix("_s").replace("_", " "), escape(shown)))
    return lines


def _format_value(value: object) -> str:
    """Return one value of a record as text."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, tuple):
        more = f" and {len(value) - _MAX_NODES_SHOWN} more" if len(value) > _MAX_NODES_SHOWN else ""
        return ", ".join(map(str, value[:_MAX_NODES_SHOWN])) + more
    return str(value)


def render_table(jobs: Sequence[JobView], columns: Sequence[Column]) -> str:
    """Return the jobs as lines of plain text, one a job, each column as wide as it needs."""
    if not jobs:
        return NO_JOBS
    rows = [[column.title for column in columns], *([column.cell(job).text for column in columns] for job in jobs)]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(columns))]
    lines = []
    for row in rows:
        padded = [
            " " * (width - cell_len(text)) + text if column.right else set_cell_size(text, width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
