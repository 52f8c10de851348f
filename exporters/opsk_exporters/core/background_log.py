"""Writes log lines from a thread of its own: who logs never waits for stderr, whoever hangs while writing to it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler
from typing import TextIO

MAX_LINES = 1000
"""Lines that wait while nobody reads them; later ones are lost."""
_CLOSING_S = 1.0


class _Lines(queue.Queue["logging.LogRecord | None"]):
    """Lines that wait; one for which there is no room is lost."""

    def put_nowait(self, item: logging.LogRecord | None) -> None:
        """Add a line without waiting."""
        with suppress(queue.Full):
            super().put_nowait(item)


@contextmanager
def log_in_background(stream: TextIO, line_format: str) -> Iterator[None]:
    """Write what is logged to a stream, from level INFO on; nothing where handlers are installed already.

    At the end, lines that wait are written for a second at most.
    """
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    lines = _Lines(MAX_LINES)
    handler, writer = QueueHandler(lines), logging.StreamHandler(stream)
    writer.setFormatter(logging.Formatter(line_format))
    thread = threading.Thread(target=_write, args=(lines, writer), name="log", daemon=True)
    thread.start()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        lines.put_nowait(None)
        thread.join(_CLOSING_S)


def _write(lines: _Lines, writer: logging.Handler) -> None:
    while (record := lines.get()) is not None:
        writer.handle(record)
