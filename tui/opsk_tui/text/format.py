"""Formats numbers for table cells; unknown values are shown as a dash, never as 0."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from opsk.errors import InputError
from opsk.hostlist import fold
from opsk.slurm.records import JobRecord
from opsk.text import format_bytes, format_duration
from opsk_tui.data.view import Health, Metric
from opsk_tui.text.safe_text import safe

NOT_KNOWN = "–"
HEALTH_WORDS = {Health.UNKNOWN: "unknown", Health.OK: "ok", Health.WATCH: "watch", Health.UNHEALTHY: "sick"}
METRIC_TITLES = {
    Metric.UTILISATION: "utilisation", Metric.TENSOR: "tensor cores", Metric.MEMORY: "memory", Metric.POWER: "power",
    Metric.TEMPERATURE: "temperature", Metric.CLOCK: "clock", Metric.THROTTLE: "held down", Metric.ERRORS: "errors",
}  # fmt: skip
_RATIOS = frozenset({Metric.UTILISATION, Metric.TENSOR, Metric.MEMORY, Metric.CLOCK, Metric.THROTTLE})


def is_known(value: float | None) -> bool:
    """Return whether there is a number."""
    return value is not None and math.isfinite(value)


def percent(ratio: float | None) -> str:
    """Return a ratio as a percentage."""
    return NOT_KNOWN if ratio is None or not math.isfinite(ratio) else f"{ratio * 100:.0f} %"


def metric_text(metric: Metric, value: float) -> str:
    """Return a value with its unit."""
    if not math.isfinite(value):
        return NOT_KNOWN
    if metric in _RATIOS:
        return f"{value * 100:.0f} %"
    unit = {Metric.POWER: " W", Metric.TEMPERATURE: " °C"}.get(metric, "")
    return f"{value:.0f}{unit}"


def metric_number(metric: Metric, value: float) -> str:
    """Return a value without its unit, in at most four cells."""
    if not math.isfinite(value):
        return NOT_KNOWN
    number = value * 100 if metric in _RATIOS else value
    return f"{number:.0f}" if number < 10_000 else f"{number / 1000:.0f}k"


def metric_range(metric: Metric, highest: float) -> tuple[float, float]:
    """Return the values of the lowest and the highest colour; power ends at the highest value, in 100 W."""
    if metric in _RATIOS:
        return 0.0, 1.0
    if metric is Metric.TEMPERATURE:
        return 20.0, 100.0
    if metric is Metric.ERRORS:
        return 0.0, 8.0
    top = highest if math.isfinite(highest) else 0.0
    return 0.0, max(100.0, math.ceil(top / 100.0) * 100.0)


def duration(seconds: float | None) -> str:
    """Return a duration."""
    return NOT_KNOWN if seconds is None or not math.isfinite(seconds) else format_duration(float(seconds))


def age(seconds: float | None) -> str:
    """Return an age in few cells; coarse, so that it changes seldom."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 2:
        return "now"
    for limit, divisor, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // divisor)} {unit}"
    return f"{int(seconds // 86400)} d"


def ago(seconds: float | None) -> str:
    """Return an age as text: ``now``, ``5 s ago``."""
    text = age(seconds)
    return f"{text} ago" if text[:1].isdigit() else text


def compute_run_time_s(job: JobRecord) -> float | None:
    """Return how long a job runs [s]: a shared snapshot holds its start, which does not change."""
    if job.run_time_s is not None or job.state != "RUNNING" or job.start_time is None:
        return job.run_time_s
    return max(0.0, time.time() - job.start_time.timestamp())


def run_time(seconds: float | None) -> str:
    """Return a run time as squeue prints it."""
    if not seconds:
        return NOT_KNOWN
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return f"{days}-{hours:02}:{minutes:02}" if days else f"{hours}:{minutes:02}:{rest % 60:02}"


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separators."""
    return NOT_KNOWN if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def bytes_text(value: float | None) -> str:
    """Return a size."""
    return NOT_KNOWN if value is None or not math.isfinite(value) else format_bytes(float(value))


def host_list(names: Sequence[str]) -> str:
    """Return node names in short form; one by one where a name is no valid Slurm name."""
    try:
        return fold(names)
    except InputError:
        return safe(", ".join(names[:8]) + (" …" if len(names) > 8 else ""))
