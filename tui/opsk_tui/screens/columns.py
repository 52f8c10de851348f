"""Defines the columns of the job table of ``opsk top --once``, and selects those that fit into a width.

Names and reasons are text that users wrote: they become plain text here and are never parsed as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsk.text import escape, format_duration
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.values import JobView

NOT_KNOWN = "–"
_SIGNS = {Verdict.FITS: "✓ fits", Verdict.TIGHT: "! tight", Verdict.OOM: "✗ oom", Verdict.UNKNOWN: "? unknown"}
_VERDICT_STYLES = {Verdict.FITS: "green", Verdict.TIGHT: "yellow", Verdict.OOM: "bold red", Verdict.UNKNOWN: ""}
_STATE_STYLES = {"RUNNING": "green", "PENDING": "yellow", "COMPLETING": "cyan", "CONFIGURING": "cyan"}
_BAD_STATES = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE"})
_STATE_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 1, "SUSPENDED": 1, "PENDING": 2}


@dataclass(frozen=True, slots=True)
class Cell:
    """One plain text, and a colour that repeats its meaning."""

    text: str
    style: str = ""


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
    cell
        Returns its content.
    right
        True for numbers.
    """

    key: str
    title: str
    width: int
    rank: int
    cell: Callable[[JobView], Cell]
    right: bool = False


def _advice(show: Callable[[AdviceRecord], str | None]) -> Callable[[JobView], Cell]:
    """Return the cell function of a number in the advice."""

    def cell(job: JobView) -> Cell:
        text = show(job.advice) if job.advice else None
        return Cell(text) if text else Cell(NOT_KNOWN, "dim")

    return cell


def _verdict(job: JobView) -> Cell:
    """Return the verdict: its symbol and word carry the meaning, the colour repeats it."""
    if job.advice is None:
        return Cell(NOT_KNOWN, "dim")
    return Cell(_SIGNS[job.advice.verdict], _VERDICT_STYLES[job.advice.verdict])


def _state(job: JobView) -> Cell:
    """Return the state of a job."""
    state = job.record.state
    return Cell(escape(state), "bold red" if state in _BAD_STATES else _STATE_STYLES.get(state, ""))


def _text(read: Callable[[JobView], str | None]) -> Callable[[JobView], Cell]:
    """Return the cell function of a text that users wrote."""
    return lambda job: Cell(escape(read(job) or ""))


def _memory(advice: AdviceRecord) -> str | None:
    return None if advice.mem_ratio is None else percent(advice.mem_ratio)


def _step(advice: AdviceRecord) -> str | None:
    return None if advice.step_s is None else format_duration(advice.step_s)


def _speed(advice: AdviceRecord) -> str | None:
    return None if advice.tflops is None else f"{advice.tflops:.0f}"


def _mfu(advice: AdviceRecord) -> str | None:
    return None if advice.mfu is None else percent(advice.mfu)


def format_plan(advice: AdviceRecord) -> str | None:
    """Return the plan in short, ``TP4 PP2 DP8``; ``None`` when the advice names none."""
    axes = (("TP", advice.tp), ("PP", advice.pp), ("CP", advice.cp), ("EP", advice.ep), ("DP", advice.dp))
    return " ".join(f"{name}{size}" for name, size in axes if size) or None


def percent(ratio: float) -> str:
    """Return a ratio as people read it."""
    return f"{ratio * 100:.0f} %"


def _run_time(job: JobView) -> Cell:
    """Return how long a job has been running."""
    seconds = job.record.run_time_s
    if not seconds:
        return Cell(NOT_KNOWN, "dim")
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return Cell(f"{days}-{hours:02}:{minutes:02}" if days else f"{hours}:{minutes:02}:{rest % 60:02}")


COLUMNS = (
    Column("job", "JOB", 7, 0, _text(lambda job: job.record.label)),
    Column("user", "USER", 8, 1, _text(lambda job: job.record.user)),
    Column("name", "NAME", 12, 0, _text(lambda job: job.record.name)),
    Column("state", "STATE", 9, 0, _state),
    Column("time", "TIME", 9, 4, _run_time, right=True),
    Column("partition", "PARTITION", 10, 8, _text(lambda job: job.record.partition)),
    Column("nodes", "NODES", 5, 3, lambda job: Cell(str(job.record.node_count)), right=True),
    Column("gpus", "GPUS", 5, 2, lambda job: Cell(str(job.record.gpus)), right=True),
    Column("verdict", "MEMORY", 9, 0, _verdict),
    Column("memory", "USED", 5, 2, _advice(_memory), right=True),
    Column("step", "STEP", 8, 5, _advice(_step), right=True),
    Column("tflops", "TFLOP/s", 7, 2, _advice(_speed), right=True),
    Column("mfu", "MFU", 5, 4, _advice(_mfu), right=True),
    Column("plan", "PLAN", 18, 6, _advice(format_plan)),
    Column("reason", "REASON", 18, 7, _text(lambda job: job.record.reason)),
)
"""All columns, from left to right. USED, STEP, TFLOP/s (of one GPU) and MFU are predictions."""


def fitting(width: int, gap: int = 2) -> tuple[Column, ...]:
    """Return the columns that fit into ``width`` cells with ``gap`` cells between them: the lowest ranks first.

    Columns of rank 0 are always there.
    """
    for rank in sorted({column.rank for column in COLUMNS}, reverse=True):
        chosen = tuple(column for column in COLUMNS if column.rank <= rank)
        if sum(column.width + gap for column in chosen) <= width:
            return chosen
    return tuple(column for column in COLUMNS if column.rank == 0)


def ordered(jobs: Sequence[JobView]) -> list[JobView]:
    """Return running jobs before pending ones, the newest first."""
    return sorted(jobs, key=lambda job: (_STATE_ORDER.get(job.record.state, 3), -job.record.id))


def matching(jobs: Sequence[JobView], query: str) -> list[JobView]:
    """Return the jobs in which every word of ``query`` occurs: id, user, name, state, plan, reason, ..."""
    terms = query.casefold().split()
    return [job for job in jobs if all(word in _searched(job) for word in terms)]


def _searched(job: JobView) -> str:
    """Return all text that a filter searches."""
    return " ".join([*(column.cell(job).text for column in COLUMNS), *job.record.nodes[:1]]).casefold()
