"""What was asked of the advisor, what did it answer, and how long did that take? JSON lines, one a question.

A script's text never stands in the log, only its hash. Writing happens in a thread of its own: a full or hanging disk
loses lines (and says how many), never answers.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

MAX_QUEUED = 4096
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
        try:
            self._queue.put(_STOP, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _open(self) -> TextIO | None:
        """Open the file for appending; complain once when that fails."""
        if self._path is None:
            return sys.stderr
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if not self._complained:
                sys.stderr.write(f"opsk advisor: no audit log: {self._path}: {error.strerror}\n")
            self._complained = True
            return None
        self._complained = False
        return os.fdopen(descriptor, "a", encoding="ascii", buffering=1)

    def _write_all(self) -> None:
        """Write until told to stop; runs in the thread."""
        stream = self._open()
        while (record := self._queue.get()) != _STOP:
            if record == _REOPEN:
                self._close(stream)
                stream = self._open()
                continue
            if isinstance(record, dict):
                stream = self._write_one(stream, record)
        self._close(stream)

    def _write_one(self, stream: TextIO | None, record: dict[str, Any]) -> TextIO | None:
        """Write one record and return the stream, reopened when it had failed."""
        lost = self._lost
        stream = stream or self._open()
        if stream is None:
            self._lost += 1
            return None
        try:
            stream.write(json.dumps(record | ({"lost_before": lost} if lost else {})) + "\n")
            stream.flush()
        except (OSError, ValueError):
            self._lost += 1
            self._close(stream)
            return None
        self._lost -= lost
        return stream

    def _close(self, stream: TextIO | None) -> None:
        """Close a file of ours."""
        if stream is None or stream is sys.stderr:
            return
        with suppress(OSError):
            stream.close()
