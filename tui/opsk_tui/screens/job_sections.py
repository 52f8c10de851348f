"""Renders the speed of jobs: columns of the job list, and the sections of one job from facts to its log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.diagnosis.losses.values import Cause
from opsk.text import format_change
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.feed_port import JobDetails, RankTable
from opsk_tui.data.view import Health, JobView, Metric
from opsk_tui.text import (
    METRIC_TITLES,
    NOT_KNOWN,
    Glyphs,
    age,
    ago,
    bar,
    bytes_text,
    compute_run_time_s,
    duration,
    fit_text,
    host_list,
    is_known,
    metric_range,
    number,
    percent,
    run_time,
    safe,
    sparkline,
    wrap_text,
)  # fmt: skip
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Line, Section, section
from opsk_tui.widgets.grid_map import ABSENT, UNHEALTHY, UNKNOWN, WATCH, compute_codes
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
_NOT_STARTED = frozenset({"PENDING", "CONFIGURING"})
_NAME = 12
_CHART_HEIGHT = 4


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
        Column(key="loss", title="LOST TO", width=15, rank=0, cell=format_loss,
               order=lambda job: (compute_gap(job) or 0.0) if is_slow(job) else 0.0, descending=True, grows=3),
    )  # fmt: skip


def _step(job: JobView) -> Cell:
    step_s = measured_step_s(job)
    if step_s is None:
        return NOT_KNOWN, "dim"
    return f"{step_s:.3g} s", speed_key(job)


def explain_missing(job: JobView) -> str | None:
    """Return in a line why a job has no comparison with its prediction; ``None`` where it has one."""
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
    if step_times >= MIN_STEPS:
        return "measured: it is looked at next"
    return f"measuring: {step_times} of {MIN_STEPS} step times, one a scrape"


def _render_fact(name: str, value: str, key: str = "text") -> Line:
    return [(f"{name:<{_NAME}}", "dim"), (value, key)]


def facts(job: JobView) -> Section:
    """Return the facts of Slurm's record."""
    record = job.record
    lines = [
        _render_fact("state", safe("+".join((record.state, *record.state_flags))), state_key(record.state)),
        _render_fact("user", f"{safe(record.user)}  account {safe(record.account or NOT_KNOWN)}"),
        _render_fact("partition", safe(record.partition)),
        _render_fact(
            "nodes", f"{record.node_count}: {host_list(record.nodes)}" if record.nodes else str(record.node_count)
        ),
        _render_fact("GPUs", f"{record.gpus} {safe(record.gpu_type or '')}"),
        _render_fact("time", f"{run_time(compute_run_time_s(record))} of {run_time(record.time_limit_s)}"),
        _render_fact("plan", format_plan(job.advice)),
    ]
    if record.reason:
        lines.append(_render_fact("reason", safe(record.reason), "watch"))
    return section(f"Job {safe(record.label)}  {safe(record.name)}", lines)


def comparison(job: JobView) -> Section:
    """Return measured beside predicted."""
    advice, measured = job.advice, job.measured
    peak = None if measured is None else measured.memory_peak_bytes
    tokens_per_s = None if measured is None else measured.tokens_per_s
    speed = None if tokens_per_s is None else tokens_per_s / max(1, job.record.gpus)
    rows = [
        ("MFU", percent(expected_mfu(job)), percent(measured_mfu(job))),
        ("step", duration(expected_step_s(job)), duration(measured_step_s(job))),
        ("TFLOP/s·GPU", number(advice.tflops if advice else None),
         number(measured.tflops_per_gpu if measured else None)),
        ("tokens/s·GPU", number(advice.tokens_per_s_per_gpu if advice else None), number(speed)),
        ("memory", bytes_text(advice.mem_bytes if advice else None), bytes_text(peak)),
    ]  # fmt: skip
    lines: list[Line] = [[(f"{'':<{_NAME + 1}}{'predicted':>11}{'measured':>12}", "dim")]]
    for name, first, second in rows:
        key = speed_key(job) if name in ("MFU", "step") else "text"
        lines.append([(f"{name:<{_NAME + 1}}", "dim"), (f"{first:>11}", "text"), (f"{second:>12}", key)])
    if measured is not None and not measured.source and measured.iteration is None:
        lines.append([("nobody tells of its steps: neither a log that can be read, nor counters", "dim")])
    elif measured is not None:
        words = f"step {measured.iteration:,}" if measured.iteration is not None else "measured"
        old = f", {ago(measured.age_s)}" if measured.age_s is not None else ""
        lines.append([(f"{words}{old}, from {safe(measured.source) or 'an unknown source'}", "dim")])
    return section("Measured against predicted", lines)


def findings(job: JobView, glyphs: Glyphs, width: int) -> Section:
    """Return where the time goes, each cause with its share and its text, or what the diagnosis waits for."""
    losses, gap, waits_for = job.losses, compute_gap(job), explain_missing(job)
    lines: list[Line] = [] if waits_for is None else [[(waits_for, "dim")]]
    if losses is None or losses.gap is None or gap is None:
        return section("Where the time goes", lines)
    if waits_for is None and not is_slow(job):
        change = format_change(gap, more="slower", less="faster", same="no difference", digits=0)
        lines.append([(f"as fast as predicted, within the prediction's own error ({change})", "ok")])
    for finding in losses.findings:
        cause = CAUSE_WORDS.get(finding.cause, finding.cause.value)
        where = f"  {safe(finding.where)}" if finding.where else ""
        lines.append(
            [(bar(finding.share / max(gap, 1e-9), 10, glyphs), "accent"), (f" {percent(finding.share):>5} ", "strong"),
             (cause, "watch"), (where, "text"), (f"  sure {percent(finding.confidence)}", "dim")]
        )  # fmt: skip
        lines += [[("  " + part, "text")] for part in wrap_text(safe(finding.text), max(20, width - 4)) if finding.text]
    return section("Where the time goes", lines)


def history(job: JobView, glyphs: Glyphs, width: int) -> Section:
    """Return step times over time as a chart; the dashed line is the prediction."""
    points = job.measured.history if job.measured is not None else ()
    known = [(time_s, step_s) for time_s, step_s in points if math.isfinite(step_s)]
    if len(known) < 2:
        return section("Step time", [])
    columns = min(max(8, width - 12), len(known))
    steps = np.array([step_s for _, step_s in known])
    means = np.array([part.max() for part in np.array_split(steps, columns)])
    expected = expected_step_s(job)
    low, high = float(min(means.min(), expected or math.inf)) * 0.95, float(means.max())
    if high - low < 1e-9:
        high = low + 1.0
    heights = np.clip(np.ceil((means - low) / (high - low) * _CHART_HEIGHT * 8), 1, _CHART_HEIGHT * 8).astype(int)
    target = None if not expected else int(min(_CHART_HEIGHT - 1, (expected - low) / (high - low) * _CHART_HEIGHT))
    lines: list[Line] = []
    for row in reversed(range(_CHART_HEIGHT)):
        filled = np.clip(heights - row * 8, 0, 8).tolist()
        blank = glyphs.rule if row == target else " "
        text = "".join(glyphs.levels[part - 1] if part else blank for part in filled)
        label = high if row == _CHART_HEIGHT - 1 else expected if row == target else low if row == 0 else None
        lines.append([(f"{duration(label) if label else '':>9} ", "dim"), (text, speed_key(job))])
    span = f"{age(known[-1][0] - known[0][0])}, slowest of each column"
    lines.append([(" " * 10 + span + (f", {glyphs.rule} predicted" if expected else ""), "dim")])
    return section("Step time", lines)


def memory(job: JobView, parts_bytes: Mapping[str, float], ranks: RankTable | None, glyphs: Glyphs) -> Section:
    """Return the memory of the fullest GPU against its prediction."""
    advice = job.advice
    capacity = advice.capacity_bytes if advice is not None else None
    peak = job.measured.memory_peak_bytes if job.measured is not None else None
    if peak is None and ranks is not None and ranks.memory_bytes is not None and len(ranks.memory_bytes):
        peak = float(np.nanmax(ranks.memory_bytes))
    rows = [("predicted", advice.mem_bytes if advice is not None else None), ("measured", peak)]
    lines: list[Line] = []
    for name, value in rows:
        if is_known(value) and value is not None:
            share = value / capacity if capacity else None
            shown = [(bar(share, 30, glyphs), "accent" if share < 0.95 else "watch")] if share is not None else []
            lines.append(
                [(f"{name:<{_NAME}}", "dim"), *shown, (f" {bytes_text(value)}", "strong"),
                 (f" of {bytes_text(capacity)}" if capacity else "", "dim")]
            )  # fmt: skip
    total = sum(parts_bytes.values())
    lines += [
        [(f"  {safe(name):<22}", "dim"), (f"{bytes_text(value):>10}", "text"), (f"{percent(value / total):>7}", "dim")]
        for name, value in sorted(parts_bytes.items(), key=lambda item: -item[1])
        if total > 0
    ]
    return section("Memory of the fullest GPU", lines)


def rank_matrix(ranks: RankTable | None, metric: Metric, glyphs: Glyphs) -> Section:
    """Return one line per node and one glyph per rank; the slowest are named."""
    if ranks is None or not ranks.nodes:
        return section("Ranks", [])
    values = ranks.values.get(metric)
    count = len(ranks.nodes)
    starts = [rank for rank in range(count) if rank == 0 or ranks.nodes[rank] != ranks.nodes[rank - 1]]
    ends = [*starts[1:], count]
    health = np.full(count, Health.OK, dtype=np.int8)
    slow = slowest(ranks)
    health[slow] = Health.WATCH
    high = float(np.nanmax(values)) if values is not None and not np.isnan(values).all() else 0.0
    codes = compute_codes(values, health, None, metric_range(metric, high)).tolist()
    glyph_set: dict[int, Cell] = {level: (glyphs.levels[level], f"heat{level}") for level in range(8)}
    glyph_set |= {UNKNOWN: (glyphs.unknown, "dim"), ABSENT: (" ", "text"), WATCH: (glyphs.watch, "watch"),
              UNHEALTHY: (glyphs.unhealthy, "sick")}  # fmt: skip
    size = min(16, max(len(name) for name in ranks.nodes))

    def make(line: int) -> Line:
        first, last = starts[line], ends[line]
        position = f"  {safe(ranks.places[first])}" if ranks.places else ""
        return [
            (fit_text(safe(ranks.nodes[first]), size) + " ", "text"), *(glyph_set[code] for code in codes[first:last]),
            (f"  {first}–{last - 1}" if last - first > 1 else f"  {first}", "dim"), (position, "dim"),
        ]  # fmt: skip

    title = f"Ranks by {METRIC_TITLES[metric]}"
    if len(slow):
        title += f"  ({glyphs.watch} slower than the others: {', '.join(map(str, slow[:6]))})"
    return Section(title=title, count=len(starts), make=make)


def slowest(ranks: RankTable) -> list[int]:
    """Return the ranks whose own step takes 10 % longer than the median."""
    if ranks.step_s is None or np.isnan(ranks.step_s).all():
        return []
    median = float(np.nanmedian(ranks.step_s))
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(ranks.step_s > 1.1 * median).tolist()


def log_tail(details: JobDetails | None) -> Section:
    """Return the last lines of the log."""
    if details is None or not (details.log or details.log_path):
        return section("Log", [])
    lines = details.log
    return Section(
        title=f"Log  {safe(details.log_path)}", count=max(1, len(lines)),
        make=lambda row: [(safe(lines[row].rstrip("\r\n")), _log_key(lines[row]))] if lines else [("empty", "dim")],
    )  # fmt: skip


def _log_key(line: str) -> str:
    lowered = line[:400].lower()
    return "watch" if "error" in lowered or "traceback" in lowered or "fatal" in lowered else "text"


def advice_text(details: JobDetails | None) -> Section:
    """Return the advice as sbatch printed it."""
    lines = details.advice if details is not None else ()
    return section("Advice at submission", [[(safe(line), "text")] for line in lines])


def problems(details: JobDetails | None) -> Section:
    """Return what could not be read."""
    messages: Sequence[str] = details.problems if details is not None else ()
    return section("Not available", [[(safe(line), "watch")] for line in messages])
