"""What was asked of the advisor, what did it answer, and how long did that take? JSON lines, one a question.

A script's text never stands in the log, only its hash. Writing happens in a thread of its own, together for what was
answered in one moment: a full or hanging disk loses lines (and says how many), never answers.
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
"""Parts of a request that the audit log keeps."""


def size_notes(query: AnalysisRequest) -> dict[str, object]:
    """Return what the audit log may know of a script and its request."""
    request = query.request
    asked = {name: value for name in AUDITED if (value := getattr(request, name)) not in (None, False)}
    return {"script_chars": len(query.text), "files": len(query.files), "request": asked}


def policy_notes(decision: Decision) -> dict[str, object]:
    """Return which rule counts, and what it wants."""
    return {"policy": {"rule": decision.rule, "action": decision.action}}


def verdict_notes(analysis: Analysis) -> dict[str, object]:
    """Return what was concluded, whether or not anybody is told."""
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
"""How long after a write the next one comes [s]: waking the thread for each record takes more than writing does."""
_STDERR = 2
_STOP, _REOPEN = "stop", "reopen"


class AuditLog:
    """Appends records to a file, or to stderr when there is none.

    Parameters
    ----------
    path
        The file, made with mode 0640; ``reopen`` opens it anew after it was rotated away.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._queue: queue.Queue[dict[str, Any] | str] = queue.Queue(MAX_QUEUED)
        self._lost = 0
        self._complained = False
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
        """Open the file anew, or another one."""
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
        """Open the file for appending; complain once when that fails."""
        if self._path is None:
            return _STDERR
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if not self._complained:
                sys.stderr.write(f"opsk advisor: no audit log: {self._path}: {error.strerror}\n")
            self._complained = True
            return None
        self._complained = False
        return descriptor

    def _write_all(self) -> None:
        """Write until told to stop; runs in the thread."""
        file = self._open()
        while True:
            waiting = [self._queue.get()]
            with suppress(queue.Empty):
                while True:
                    waiting.append(self._queue.get_nowait())
            records: list[dict[str, Any]] = []
            for each in waiting:
                if isinstance(each, dict):
                    records.append(each)
                    continue
                file = self._write_some(file, records)
                records = []
                self._close(file)
                if each == _STOP:
                    return
                file = self._open()
            file = self._write_some(file, records)
            self._closing.wait(TOGETHER_S)

    def _write_some(self, file: int | None, records: Sequence[dict[str, Any]]) -> int | None:
        """Write records and return the file; ``None`` when it failed, and is to be opened anew."""
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
        """Write lines and return how many were written whole; the one that a full disk cut off is taken back."""
        done = 0
        try:
            while done < len(data):
                done += os.write(file, data[done:])
        except OSError:
            torn_bytes = done - (data.rfind(b"\n", 0, done) + 1)
            if torn_bytes and file != _STDERR:
                with suppress(OSError):
                    os.ftruncate(file, os.fstat(file).st_size - torn_bytes)
            return data[:done].count(b"\n")
        return data.count(b"\n")

    def _close(self, file: int | None) -> None:
        """Close a file of ours."""
        if file is None or file == _STDERR:
            return
        with suppress(OSError):
            os.close(file)
