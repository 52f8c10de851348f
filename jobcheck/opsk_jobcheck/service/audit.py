"""Writes the audit log: one JSON line per request, with the answer and the time that it took.

A script's text is never in the log, only its hash. A thread of its own writes the records of one moment together: a
full or hanging disk loses lines (and counts them), and never delays an answer.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opsk_jobcheck.service.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.service.policy import Decision

AUDITED = (
    *("nodes", "gpus", "gpus_per_node", "gpus_per_task", "gpu_type", "partition", "account", "qos", "time_limit_s"),
    *("is_heterogeneous", "is_crontab", "is_array", "is_exclusive"),
)
"""Parts of a request that the audit log records."""


def size_notes(query: AnalysisRequest) -> dict[str, object]:
    """Return the facts on a script and its request for the audit log."""
    request = query.request
    requested = {name: value for name in AUDITED if (value := getattr(request, name)) not in (None, False)}
    return {"script_chars": len(query.text), "files": len(query.files), "request": requested}


def policy_notes(decision: Decision) -> dict[str, object]:
    """Return the rule that applies, and its action."""
    return {"policy": {"rule": decision.rule, "action": decision.action}}


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
