"""Summarises an audit log in a screenful: counts of requests, answers and enforced actions, and response times."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.text import escape

MAX_LINE_CHARS = 1 << 20
MAX_LOST = 1 << 40
MAX_NAMES = 64
"""Number of different values of one kind that are counted; the rest is ``other``."""
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
COUNTED = ("kinds", "statuses", "verdicts", "actions", "enforced")
TIMES = ("took_ms", "queue_ms", "think_ms")


def audit_summary(path: Path) -> dict[str, Any]:
    """Return the counts and times of an audit log.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return summarise_records(iter(partial(stream.readline, MAX_LINE_CHARS + 1), ""))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{path}: {why}"), hint="name the file of audit_log in opsk.toml") from error


def summarise_records(lines: Iterable[str]) -> dict[str, Any]:
    """Return the counts and times of audit records; lines that are no records are counted as unreadable."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    totals: Counter[str] = Counter()
    users: set[int] = set()
    first = last = None
    for record in _parse_records(lines, totals):
        time = str(record.get("time", ""))[:40]
        first, last = min(first or time, time), max(last or time, time)
        uid = record.get("for_uid", record.get("uid"))
        if isinstance(uid, int):
            users.add(uid)
        kind = str(record.get("kind", "refused"))[:40]
        if kind not in times and len(times) >= MAX_NAMES:
            kind = "other"
        for name, word in _list_counted_values(record, kind):
            counter = counts[name]
            counter[word if word in counter or len(counter) < MAX_NAMES else "other"] += 1
        for name in TIMES:
            value = record.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12:
                times[kind][name].append(float(value))
        lost = record.get("lost_before")
        totals["lost"] += lost if isinstance(lost, int) and 0 <= lost < MAX_LOST else 0
    return {
        "first": first,
        "last": last,
        "records": totals["records"],
        "unreadable": totals["unreadable"],
        "lost": totals["lost"],
        "users": len(users),
        **{name: dict(counts[name].most_common()) for name in COUNTED},
        "times": {
            kind: {name: _compute_quantiles(values) for name, values in sorted(durations.items())}
            for kind, durations in times.items()
        },
    }


def render_summary(summary: dict[str, Any]) -> tuple[str, ...]:
    """Return the summary as lines of text."""
    span = f"{summary['first'] or '-'} to {summary['last'] or '-'}"
    head = f"{summary['records']} records of {summary['users']} users, {span}"
    bad = [f"{summary[name]} {name}" for name in ("unreadable", "lost") if summary[name]]
    rows = [head + "".join(f", {part}" for part in bad)]
    rows += [
        f"{name:9} " + ", ".join(f"{word} {count}" for word, count in summary[name].items())
        for name in COUNTED
        if summary[name]
    ]
    for kind, durations in summary["times"].items():
        for name, values in durations.items():
            shown = ", ".join(f"{label} {value:.1f}" for label, value in values.items())
            rows.append(f"{kind:9} {name.removesuffix('_ms')} [ms]: {shown}")
    return tuple(escape(row) for row in rows)


def _parse_records(lines: Iterable[str], totals: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the records, and count unreadable lines."""
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line) if len(line) <= MAX_LINE_CHARS else None
        except (ValueError, RecursionError):
            record = None
        is_record = isinstance(record, dict) and "time" in record
        totals["records" if is_record else "unreadable"] += 1
        if is_record and isinstance(record, dict):
            yield record


def _list_counted_values(record: dict[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the values of one record that are counted."""
    yield "kinds", kind
    policy = record.get("policy")
    action = policy.get("action") if isinstance(policy, dict) else None
    values = {"statuses": record.get("status"), "verdicts": record.get("verdict"), "enforced": record.get("enforced")}
    for name, value in {**values, "actions": action}.items():
        if isinstance(value, str) and value:
            yield name, value[:40]


def _compute_quantiles(values: list[float]) -> dict[str, float]:
    """Return the nearest-rank quantiles."""
    ordered = sorted(values)
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in QUANTILES.items()}
