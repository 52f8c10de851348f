"""Prints the jobs of the cluster with their predictions as a table of plain text, for ``opsk top --once``.

Names and reasons are text that users wrote: they become plain text here and are never parsed as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord
from opsk.text import escape, format_duration
from opsk.workload.advice_record import AdviceRecord, Verdict

NOT_KNOWN = "–"
NO_JOBS = "No jobs are pending or running."
_VERDICT_TEXT = {Verdict.FITS: "✓ fits", Verdict.TIGHT: "! tight", Verdict.OOM: "✗ oom", Verdict.UNKNOWN: "? unknown"}
_STATE_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 1, "SUSPENDED": 1, "PENDING": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWithAdvice:
    """A job in Slurm's record, and the advice of its record (``None``: there is none)."""

    record: JobRecord
    advice: AdviceRecord | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the job table.

    Parameters
    ----------
    key, title
        Its name in the code and on the screen.
    width
        Terminal cells that it takes.
    rank
        Columns of a higher rank are left out first when the window is narrow.
    text
        Returns the text of a job's cell.
    right
        True for numbers.
    """

    key: str
    title: str
    width: int
    rank: int
    text: Callable[[JobWithAdvice], str]
    right: bool = False


def read_jobs(client: SlurmClient) -> list[JobWithAdvice]:
    """Return the pending and active jobs of a cluster: running before pending ones, the newest first."""
    jobs = [JobWithAdvice(record=job, advice=parse_advice(job)) for job in client.jobs(details=True)]
    return sorted(jobs, key=lambda job: (_STATE_ORDER.get(job.record.state, 3), -job.record.id))


def parse_advice(job: JobRecord) -> AdviceRecord | None:
    """Return the advice in a job's ``admin_comment``; its ``comment`` is its user's own, who may write anything."""
    return AdviceRecord.parse(job.admin_comment or "")


def select_columns(width: int, gap: int = 2) -> tuple[Column, ...]:
    """Return the columns that fit into ``width`` cells with ``gap`` cells between them: the lowest ranks first.

    Columns of rank 0 are always there.
    """
    for rank in sorted({column.rank for column in COLUMNS}, reverse=True):
        chosen = tuple(column for column in COLUMNS if column.rank <= rank)
        if sum(column.width + gap for column in chosen) <= width:
            return chosen
    return tuple(column for column in COLUMNS if column.rank == 0)


def render_table(jobs: Sequence[JobWithAdvice], columns: Sequence[Column]) -> str:
    """Return the jobs as lines of plain text, one a job, each column as wide as it needs."""
    if not jobs:
        return NO_JOBS
    rows = [[column.title for column in columns], *([column.text(job) for column in columns] for job in jobs)]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(columns))]
    lines = []
    for row in rows:
        padded = [
            " " * (width - cell_len(text)) + text if column.right else set_cell_size(text, width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _from_advice(show: Callable[[AdviceRecord], str | None]) -> Callable[[JobWithAdvice], str]:
    """Return the cell function of a value in the advice."""
    return lambda job: (show(job.advice) if job.advice else None) or NOT_KNOWN


def _build_escaped_cell(read: Callable[[JobWithAdvice], str | None]) -> Callable[[JobWithAdvice], str]:
    """Return the cell function of a text that users wrote."""
    return lambda job: escape(read(job) or "")


def _format_percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio * 100:.0f} %"


def _format_step(advice: AdviceRecord) -> str | None:
    return None if advice.step_s is None else format_duration(advice.step_s)


def _format_speed(advice: AdviceRecord) -> str | None:
    return None if advice.tflops is None else f"{advice.tflops:.0f}"


def _format_plan(advice: AdviceRecord) -> str | None:
    """Return the plan in short, ``TP4 PP2 DP8``; ``None`` when the advice names none."""
    axes = (("TP", advice.tp), ("PP", advice.pp), ("CP", advice.cp), ("EP", advice.ep), ("DP", advice.dp))
    return " ".join(f"{name}{size}" for name, size in axes if size) or None


def _format_run_time(job: JobWithAdvice) -> str:
    """Return how long a job has been running."""
    seconds = job.record.run_time_s
    if not seconds:
        return NOT_KNOWN
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return f"{days}-{hours:02}:{minutes:02}" if days else f"{hours}:{minutes:02}:{rest % 60:02}"


COLUMNS = (
    Column("job", "JOB", 7, 0, _build_escaped_cell(lambda job: job.record.label)),
    Column("user", "USER", 8, 1, _build_escaped_cell(lambda job: job.record.user)),
    Column("name", "NAME", 12, 0, _build_escaped_cell(lambda job: job.record.name)),
    Column("state", "STATE", 9, 0, _build_escaped_cell(lambda job: job.record.state)),
    Column("time", "TIME", 9, 4, _format_run_time, right=True),
    Column("partition", "PARTITION", 10, 8, _build_escaped_cell(lambda job: job.record.partition)),
    Column("nodes", "NODES", 5, 3, lambda job: str(job.record.node_count), right=True),
    Column("gpus", "GPUS", 5, 2, lambda job: str(job.record.gpus), right=True),
    Column("verdict", "MEMORY", 9, 0, _from_advice(lambda advice: _VERDICT_TEXT[advice.verdict])),
    Column("memory", "USED", 5, 2, _from_advice(lambda advice: _format_percent(advice.mem_ratio)), right=True),
    Column("step", "STEP", 8, 5, _from_advice(_format_step), right=True),
    Column("tflops", "TFLOP/s", 7, 2, _from_advice(_format_speed), right=True),
    Column("mfu", "MFU", 5, 4, _from_advice(lambda advice: _format_percent(advice.mfu)), right=True),
    Column("plan", "PLAN", 18, 6, _from_advice(_format_plan)),
    Column("reason", "REASON", 18, 7, _build_escaped_cell(lambda job: job.record.reason)),
)
"""All columns, from left to right. USED, STEP, TFLOP/s (of one GPU) and MFU are predictions."""
