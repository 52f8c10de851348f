"""Defines the columns of the job list, and summarises a job's speed in a few words."""

from __future__ import annotations

from opsk.diagnosis.losses.values import Cause
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.view import JobView
from opsk_tui.text.format import NOT_KNOWN, compute_run_time_s, percent, run_time
from opsk_tui.text.glyphs import Glyphs, sparkline
from opsk_tui.text.safe_text import safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.table import Column

_SHORT = {"RUNNING": "R", "PENDING": "PD", "COMPLETING": "CG", "CONFIGURING": "CF", "SUSPENDED": "S", "STOPPED": "ST",
          "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F", "NODE_FAIL": "NF", "OUT_OF_MEMORY": "OOM",
          "TIMEOUT": "TO", "PREEMPTED": "PR", "REQUEUED": "RQ"}  # fmt: skip
_STATE_KEYS = {"RUNNING": "ok", "PENDING": "dim", "COMPLETING": "accent", "CONFIGURING": "accent"}
_STATE_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 1, "SUSPENDED": 1, "PENDING": 2}
_VERDICTS = {Verdict.FITS: ("fits", "ok"), Verdict.TIGHT: ("! tight", "watch"), Verdict.OOM: ("✗ oom", "bad"),
             Verdict.UNKNOWN: ("?", "dim")}  # fmt: skip
CAUSE_WORDS = {Cause.THERMAL_CAP: "heat", Cause.POWER_CAP: "power cap", Cause.CONGESTED_LINK: "congestion",
               Cause.WRONG_PLAN: "plan", Cause.DATA_LOADING: "data loading", Cause.CHECKPOINTING: "checkpoints",
               Cause.UNKNOWN: "not explained"}  # fmt: skip
SERIOUS_GAP = 0.2
SPARK = 10


def state_key(state: str) -> str:
    """Return the style of a state of a job."""
    return _STATE_KEYS.get(state, "watch")


def job_order(job: JobView) -> tuple[int, int]:
    """Return the order in which jobs are listed: those that run before those that wait, new before old."""
    return (_STATE_ORDER.get(job.record.state, 3), -job.record.id)


def format_plan(advice: AdviceRecord | None) -> str:
    """Return the plan in short, ``TP4 PP2 DP8``."""
    if advice is None:
        return NOT_KNOWN
    axes = (("TP", advice.tp), ("PP", advice.pp), ("CP", advice.cp), ("EP", advice.ep), ("DP", advice.dp))
    return " ".join(f"{name}{size}" for name, size in axes if size and (size > 1 or name == "DP")) or NOT_KNOWN


def expected_mfu(job: JobView) -> float | None:
    """Return the predicted MFU."""
    if job.losses is not None and job.losses.expected_mfu is not None:
        return job.losses.expected_mfu
    return job.advice.mfu if job.advice is not None else None


def measured_mfu(job: JobView) -> float | None:
    """Return the measured MFU."""
    if job.losses is not None and job.losses.measured_mfu is not None:
        return job.losses.measured_mfu
    return job.measured.mfu if job.measured is not None else None


def expected_step_s(job: JobView) -> float | None:
    """Return the predicted step time [s]."""
    if job.losses is not None and job.losses.expected_step_s is not None:
        return job.losses.expected_step_s
    return job.advice.step_s if job.advice is not None else None


def measured_step_s(job: JobView) -> float | None:
    """Return the measured step time [s]."""
    if job.losses is not None and job.losses.measured_step_s is not None:
        return job.losses.measured_step_s
    return job.measured.step_s if job.measured is not None else None


def compute_gap(job: JobView) -> float | None:
    """Return the part of a step beyond the prediction [ratio]; ``None`` where it is unknown."""
    if job.losses is not None and job.losses.gap is not None:
        return job.losses.gap
    expected, measured = expected_step_s(job), measured_step_s(job)
    if not expected or not measured:
        return None
    return max(0.0, 1 - expected / measured)


def is_slow(job: JobView) -> bool:
    """Return whether a job loses more than its prediction's own error."""
    if job.losses is not None:
        return not job.losses.is_within_error
    gap = compute_gap(job)
    return gap is not None and gap > SERIOUS_GAP / 2


def speed_key(job: JobView) -> str:
    """Return the style of a measured speed."""
    gap = compute_gap(job)
    if gap is None:
        return "dim"
    return ("bad" if gap >= SERIOUS_GAP else "watch") if is_slow(job) else "ok"


def _mfu(job: JobView) -> Cell:
    measured, expected = measured_mfu(job), expected_mfu(job)
    if measured is None and expected is None:
        return NOT_KNOWN, "dim"
    first = "–" if measured is None else f"{measured * 100:.0f}"
    second = "–" if expected is None else f"{expected * 100:.0f}"
    return f"{first}/{second} %", speed_key(job) if measured is not None else "dim"


def format_loss(job: JobView) -> Cell:
    """Return the largest cause of lost time, or why a job waits."""
    if not job.record.is_active:
        return safe(job.record.reason or NOT_KNOWN), "dim"
    if job.losses is None or compute_gap(job) is None:
        return NOT_KNOWN, "dim"
    if expected_step_s(job) is None and not job.losses.findings:
        return NOT_KNOWN, "dim"
    if expected_step_s(job) is not None and not is_slow(job):
        return "as predicted", "dim"
    if not job.losses.findings:
        return f"{percent(compute_gap(job))} not explained", "watch"
    first = job.losses.findings[0]
    where = f" {safe(first.where)}" if first.where else ""
    return f"{CAUSE_WORDS.get(first.cause, first.cause.value)} {first.share * 100:.0f}%{where}", speed_key(job)


def _memory(job: JobView) -> Cell:
    if job.advice is None:
        return NOT_KNOWN, "dim"
    words, key = _VERDICTS[job.advice.verdict]
    ratio = job.advice.mem_ratio
    return f"{words} {ratio * 100:.0f}%" if ratio is not None else words, key


def job_columns(glyphs: Glyphs) -> tuple[Column[JobView], ...]:
    """Return the columns; sparklines show speed, so higher is better."""

    def spark(job: JobView) -> Cell:
        if job.measured is None or not job.measured.history:
            return "", "dim"
        speeds = [1 / step_s if step_s > 0 else 0.0 for _, step_s in job.measured.history[-SPARK * 4 :]]
        return sparkline(speeds, SPARK - 2, glyphs), speed_key(job)

    def state(job: JobView) -> Cell:
        return safe(_SHORT.get(job.record.state, job.record.state[:3])), state_key(job.record.state)

    return (
        Column(key="job", title="JOB", width=7, rank=0, cell=lambda job: (safe(job.record.label), "strong"),
               order=lambda job: job.record.id, descending=True),
        Column(key="user", title="USER", width=8, rank=1, cell=lambda job: (safe(job.record.user), "text"),
               order=lambda job: job.record.user),
        Column(key="name", title="NAME", width=11, rank=0, cell=lambda job: (safe(job.record.name), "text"),
               order=lambda job: job.record.name, grows=2),
        Column(key="state", title="ST", width=3, rank=0, cell=state, order=job_order),
        Column(key="time", title="TIME", width=9, rank=4,
               cell=lambda job: (run_time(compute_run_time_s(job.record)), "text"),
               right=True, order=lambda job: compute_run_time_s(job.record) or 0, descending=True),
        Column(key="partition", title="PARTITION", width=9, rank=8,
               cell=lambda job: (safe(job.record.partition), "dim"), order=lambda job: job.record.partition),
        Column(key="nodes", title="NODES", width=5, rank=5, cell=lambda job: (str(job.record.node_count), "text"),
               right=True, order=lambda job: job.record.node_count, descending=True),
        Column(key="gpus", title="GPUS", width=5, rank=1, cell=lambda job: (str(job.record.gpus), "text"), right=True,
               order=lambda job: job.record.gpus, descending=True),
        Column(key="plan", title="PLAN", width=18, rank=6, cell=lambda job: (format_plan(job.advice), "text"),
               order=lambda job: format_plan(job.advice)),
        Column(key="memory", title="MEMORY", width=12, rank=5, cell=_memory,
               order=lambda job: (job.advice.mem_ratio if job.advice else None) or 0.0, descending=True),
        Column(key="step", title="STEP", width=8, rank=7, right=True, cell=_step,
               order=lambda job: measured_step_s(job) or 0.0, descending=True),
        Column(key="mfu", title="MFU", width=7, rank=0, cell=_mfu, right=True,
               order=lambda job: measured_mfu(job) or 0.0, descending=True),
        Column(key="speed", title="SPEED", width=SPARK - 2, rank=1, cell=spark),
        Column(key="loss", title="LOSES BY", width=15, rank=0, cell=format_loss,
               order=lambda job: (compute_gap(job) or 0.0) if is_slow(job) else 0.0, descending=True, grows=3),
    )  # fmt: skip


def _step(job: JobView) -> Cell:
    step_s = measured_step_s(job)
    if step_s is None:
        return NOT_KNOWN, "dim"
    return f"{step_s:.3g} s", speed_key(job)
