"""Renders the sections of one job: facts, measured against predicted, history, memory, causes, ranks, log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk_tui.data.feed_port import JobDetails, RankTable
from opsk_tui.data.view import Health, JobView, Metric
from opsk_tui.screens.job_columns import (
    CAUSE_WORDS,
    compute_gap,
    expected_mfu,
    expected_step_s,
    format_plan,
    is_slow,
    measured_mfu,
    measured_step_s,
    speed_key,
    state_key,
)  # fmt: skip
from opsk_tui.text.format import (
    METRIC_TITLES,
    NOT_KNOWN,
    age,
    ago,
    bytes_text,
    compute_run_time_s,
    duration,
    host_list,
    is_known,
    metric_range,
    number,
    percent,
    run_time,
)  # fmt: skip
from opsk_tui.text.glyphs import Glyphs, bar
from opsk_tui.text.safe_text import fit_text, safe, wrap_text
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Line, Section, section
from opsk_tui.widgets.grid_map import ABSENT, UNHEALTHY, UNKNOWN, WATCH, compute_codes

_NOT_STARTED = frozenset({"PENDING", "CONFIGURING"})


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


_NAME = 12
_CHART_HEIGHT = 4


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
        lines.append([(f"as fast as predicted, within the prediction's own error ({percent(gap)} slower)", "ok")])
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
    row_of = None if not expected else int(min(_CHART_HEIGHT - 1, (expected - low) / (high - low) * _CHART_HEIGHT))
    lines: list[Line] = []
    for row in reversed(range(_CHART_HEIGHT)):
        filled = np.clip(heights - row * 8, 0, 8).tolist()
        blank = glyphs.rule if row == row_of else " "
        text = "".join(glyphs.levels[part - 1] if part else blank for part in filled)
        label = high if row == _CHART_HEIGHT - 1 else expected if row == row_of else low if row == 0 else None
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
              UNHEALTHY: (glyphs.sick, "sick")}  # fmt: skip
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
    return section("Advice when it was submitted", [[(safe(line), "text")] for line in lines])


def problems(details: JobDetails | None) -> Section:
    """Return what could not be read."""
    messages: Sequence[str] = details.problems if details is not None else ()
    return section("What could not be had", [[(safe(line), "watch")] for line in messages])
