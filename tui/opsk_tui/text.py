r"""Formats values and makes foreign text safe for the screen, in Unicode or in ASCII.

Unknown values are shown as a dash, never as 0. Text of users, logs and vendors is never parsed as markup: widgets get
it as plain segments, with control characters, direction marks and lone surrogates shown as ``\xNN``. Every state has a
glyph of its own, so that no information depends on colour alone.
"""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from opsk.errors import InputError
from opsk.hostlist import fold
from opsk.slurm.records import JobRecord
from opsk.text import escape, format_bytes, format_duration
from opsk_tui.data.view import Health, Metric

_STACKED = 2
_MAX_CHARS = 4096
"""Characters of one text that are processed: a log line of megabytes must not delay a key."""
_ASCII_SUBSTITUTES = {
    "–": "-", "—": "-", "…": ".", "·": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "✗": "X", "✓": "+",
    "─": "-", "│": "|", "█": "#", "▌": "#", "▁": "0", "▂": "1", "▃": "2", "▄": "4", "▅": "5", "▆": "6", "▇": "7",
    "°": "'", "±": "~", "≤": "<", "≥": ">", "▲": "^", "▼": "v", "●": "*", "░": ".", "▒": ":", "▓": "%", "┃": "#",
}  # fmt: skip
NOT_KNOWN = "–"
HEALTH_WORDS = {Health.UNKNOWN: "unknown", Health.OK: "ok", Health.WATCH: "watch", Health.UNHEALTHY: "sick"}
METRIC_TITLES = {
    Metric.UTILISATION: "utilisation", Metric.TENSOR: "tensor cores", Metric.MEMORY: "memory", Metric.POWER: "power",
    Metric.TEMPERATURE: "temperature", Metric.CLOCK: "clock", Metric.THROTTLE: "held down", Metric.ERRORS: "errors",
}  # fmt: skip
_RATIOS = frozenset({Metric.UTILISATION, Metric.TENSOR, Metric.MEMORY, Metric.CLOCK, Metric.THROTTLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of glyphs; each is one cell wide.

    ``levels`` are eight heights from low to high, used for maps and sparklines.
    """

    is_ascii: bool
    levels: str
    unhealthy: str
    watch: str
    unknown: str
    ok: str
    full: str
    empty: str
    thumb: str
    track: str
    rule: str
    ellipsis: str


UNICODE = Glyphs(
    is_ascii=False, levels="▁▂▃▄▅▆▇█", unhealthy="✗", watch="!", unknown="·", ok="✓", full="█", empty="░", thumb="┃",
    track="│", rule="─", ellipsis="…",
)  # fmt: skip
ASCII = Glyphs(
    is_ascii=True, levels="01234567", unhealthy="X", watch="!", unknown="?", ok="+", full="#", empty=".", thumb="#",
    track="|", rule="-", ellipsis="~",
)  # fmt: skip


def glyphs_for(environ: Mapping[str, str], encoding: str | None) -> Glyphs:
    """Return the glyphs that the terminal can show: ``OPSK_ASCII`` selects ASCII, as does an encoding without them."""
    if environ.get("OPSK_ASCII", "") not in ("", "0") or environ.get("TERM") in ("linux", "vt100", "vt220", "dumb"):
        return ASCII
    return UNICODE if "utf" in (encoding or "").lower() else ASCII


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """Return the latest values as one line of heights, lowest at the bottom; constant values are in the middle.

    Each glyph is the mean of equally many values.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known or width <= 0:
        return ""
    size = -(-len(known) // width)
    means = [sum(part) / len(part) for part in (known[start : start + size] for start in range(0, len(known), size))]
    low, high = min(means), max(means)
    if high - low < 0.02 * abs(high):
        low, high = low - 0.04 * abs(high or 1), high + 0.04 * abs(high or 1)
    return "".join(glyphs.levels[min(7, int((mean - low) / (high - low) * 8))] for mean in means)


def bar(ratio: float, width: int, glyphs: Glyphs) -> str:
    """Return a bar that is filled by ``ratio`` [0 to 1]."""
    filled = round(min(1.0, max(0.0, ratio)) * width)
    return glyphs.full * filled + glyphs.empty * (width - filled)


@lru_cache(maxsize=16384)
def safe(text: str) -> str:
    """Return hostile text made safe for display: one line, no controls, no markup, no stacks of combining marks."""
    if len(text) > _MAX_CHARS:
        text = text[:_MAX_CHARS] + "…"
    shown = escape(text)
    return shown if shown.isascii() else _without_stacks(shown)


def _without_stacks(text: str) -> str:
    """Return text without combining marks beyond the second on one letter."""
    chars: list[str] = []
    stacked = 0
    for char in text:
        stacked = stacked + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if stacked <= _STACKED:
            chars.append(char)
    return "".join(chars)


def fit_text(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Return safe text in exactly ``width`` cells: cut with an ellipsis, or padded."""
    if text.isascii():
        length = len(text)
        if length <= width:
            return text.rjust(width) if right else text.ljust(width)
        return text[: width - 1] + ellipsis if width > 0 else ""
    length = cell_len(text)
    if length <= width:
        blank = " " * (width - length)
        return blank + text if right else text + blank
    return set_cell_size(text, width - 1) + ellipsis if width > 0 else ""


def wrap_text(text: str, width: int) -> list[str]:
    """Return a text wrapped at blanks; words longer than the width are split."""
    lines, line = [], ""
    for word in text.split(" "):
        rest = word
        while len(rest) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(rest[:width])
            rest = rest[width:]
        if line and len(line) + 1 + len(rest) > width:
            lines.append(line)
            line = rest
        else:
            line = f"{line} {rest}" if line else rest
    return [*lines, line] if line or not lines else lines


def ascii_text(text: str) -> str:
    """Return text for an ASCII-only terminal: known characters have substitutes, others become question marks."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII_SUBSTITUTES.get(char) or "?" * cell_len(char) for char in text)


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
