"""Writes the audit log, one JSON line per request with the answer and the time that it took, and summarises it.

A script's text is never in the log, only its hash. A thread of its own writes the records of one moment together: a
full or hanging disk loses lines (and counts them), and never delays an answer.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.text import escape
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest

MAX_LINE_CHARS = 1 << 20
MAX_LOST = 1 << 40
MAX_NAMES = 64
"""Number of different values of one kind that are counted; the rest is ``other``."""
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
COUNTED = ("kinds", "statuses", "verdicts", "actions", "enforced")
TIMES = ("took_ms", "queue_ms", "think_ms")
AUDITED = (
    *("nodes", "gpus", "gpus_per_node", "gpus_per_task", "gpu_type", "partition", "account", "qos", "time_limit_s"),
    *("is_heterogeneous", "is_crontab", "is_array", "is_exclusive"),
)
"""Parts of a request that the audit log records."""
MAX_QUEUED = 4096
TOGETHER_S = 0.1
"""Pause between writes [s]: waking the thread for each record takes longer than writing."""
_STDERR = 2
_STOP, _REOPEN = "stop", "reopen"


class AuditLog:
    """Appends records to a file, or to stderr when there is none.

    Parameters
    ----------
    path
        The file, created with mode 0640; ``reopen`` opens it again after it was rotated away.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._queue: queue.Queue[dict[str, Any] | str] = queue.Queue(MAX_QUEUED)
        self._lost = 0
        self._has_warned = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()

    def write(self, **fields: Any) -> None:
        """Queue one record; the time is added. Never blocks, never raises."""
        record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._lost += 1

    def reopen(self, path: Path | None) -> None:
        """Open the file again, or another one."""
        self._path = path
        self._queue.put(_REOPEN)

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued and stop, for at most ``timeout_s`` [s]."""
        self._closing.set()
        try:
            self._queue.put(_STOP, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _open(self) -> int | None:
        """Open the file for appending; warn once when that fails."""
        if self._path is None:
            return _STDERR
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if not self._has_warned:
                sys.stderr.write(f"opsk advisor: no audit log: {self._path}: {error.strerror}\n")
            self._has_warned = True
            return None
        self._has_warned = False
        return descriptor

    def _write_all(self) -> None:
        """Write until stopped; runs in the thread."""
        file = self._open()
        while True:
            queued = [self._queue.get()]
            with suppress(queue.Empty):
                while True:
                    queued.append(self._queue.get_nowait())
            records: list[dict[str, Any]] = []
            for item in queued:
                if isinstance(item, dict):
                    records.append(item)
                    continue
                file = self._write_records(file, records)
                records = []
                self._close(file)
                if item == _STOP:
                    return
                file = self._open()
            file = self._write_records(file, records)
            self._closing.wait(TOGETHER_S)

    def _write_records(self, file: int | None, records: Sequence[dict[str, Any]]) -> int | None:
        """Write records and return the file; ``None`` when it failed, and must be opened again."""
        if not records:
            return file
        file = self._open() if file is None else file
        if file is None:
            self._lost += len(records)
            return None
        lost = self._lost
        first = records[0] | ({"lost_before": lost} if lost else {})
        lines = [json.dumps(record) + "\n" for record in (first, *records[1:])]
        whole = self._write_lines(file, "".join(lines).encode("ascii"))
        self._lost += len(records) - whole - (lost if whole else 0)
        if whole == len(records):
            return file
        self._close(file)
        return None

    def _write_lines(self, file: int, data: bytes) -> int:
        """Write lines and return how many were written completely; a line that a full disk cut off is removed."""
        written_bytes = 0
        try:
            while written_bytes < len(data):
                written_bytes += os.write(file, data[written_bytes:])
        except OSError:
            torn_bytes = written_bytes - (data.rfind(b"\n", 0, written_bytes) + 1)
            if torn_bytes and file != _STDERR:
                with suppress(OSError):
                    os.ftruncate(file, os.fstat(file).st_size - torn_bytes)
            return data[:written_bytes].count(b"\n")
        return data.count(b"\n")

    def _close(self, file: int | None) -> None:
        """Close the log file, but not stderr."""
        if file is None or file == _STDERR:
            return
        with suppress(OSError):
            os.close(file)


def size_notes(query: AnalysisRequest) -> dict[str, object]:
    """Return the facts on a script and its request for the audit log."""
    request = query.request
    requested = {name: value for name in AUDITED if (value := getattr(request, name)) not in (None, False)}
    return {"script_chars": len(query.text), "files": len(query.files), "request": requested}


def verdict_notes(analysis: Analysis) -> dict[str, object]:
    """Return the result of the analysis, whether or not it is shown."""
    notes: dict[str, object] = {"verdict": analysis.verdict}
    if analysis.oom_probability is not None:
        notes["oom_probability"] = round(analysis.oom_probability, 6)
    if analysis.guessed:
        notes["guessed"] = list(analysis.guessed)
    if analysis.is_short:
        notes["short"] = True
    if analysis.opted_out:
        notes["opted_out"] = True
    return notes


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
