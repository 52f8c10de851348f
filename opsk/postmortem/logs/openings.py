"""Finds where a log begins in the same way again: the output of another run was appended to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsk.postmortem.values import Finding, Origin, Role

_HEAD_BYTES = 4096
_MIN_LINE_BYTES, _MAX_LINE_BYTES = 12, 300
_MIN_LETTERS = 6
_REACH_BYTES = 512
"""Lines between the two, such as times and numbers of processes, may have other lengths in another run."""
_MAX_RUNS = 64
_MIN_RUN_BYTES = 256
"""What comes back more often, or sooner, is what one run prints all the time."""
_OF_WORK = re.compile(
    rb"(?i)(?:\b(?:epochs?|steps?|iter\w*|loss|batch\w*|rounds?|trials?|folds?|samples?|acc\w*|scores?)\b.{0,20}\d"
    rb"|error|exception|traceback|fail|fatal|killed|cancelled|aborted|no such|not found|unable|retry)|\d{1,3}%|it/s\b"
)
"""The program is at work, or has failed: what stands below is no beginning."""
_PASSED_OVER = re.compile(rb"(?i)warn|deprecat|^\s|^[\W\d]*$|\d\d:\d\d")
"""Not the same in each run, or printed more than once in one."""


@dataclass(slots=True)
class Opening:
    """Retains two of the first lines of a log, and where both stand again.

    Attributes
    ----------
    last
        Where they stand last [B]; ``None`` where only at the beginning, or so often that they are no beginning.
    last_line
        The number of that line.
    """

    last: int | None = None
    last_line: int = 0
    _lines: tuple[bytes, bytes] | None = None
    _gap_bytes: int = 0
    _count: int = 0
    _first: int = 0
    _head: bytes | None = b""

    def findings(self, source: str) -> tuple[Finding, ...]:
        """Return that another run begins there, if one does."""
        if self.last is None or self._lines is None:
            return ()
        finding = Finding(
            signature="run.begins", role=Role.ADVICE, origin=Origin.JOB_LOG, order=self.last, source=source,
            line=self.last_line, text=self._lines[0].decode("utf-8", "replace"), fields={"opening": "yes"},
        )  # fmt: skip
        return (finding,)

    def take(self, data: bytes, offset: int, line: int, *, is_searched: bool = True) -> None:
        """Read one piece, which begins ``offset`` bytes into the log with the line of this number.

        Parameters
        ----------
        is_searched
            Something failed in it, or before: else nobody asks whether another run begins there.
        """
        start = 0
        if self._head is not None:
            self._head = self._head[:offset] + data[:_HEAD_BYTES]
            start = max(0, self._choose(self._head) - offset)
        if self._lines is None or not is_searched:
            return
        first, second = self._lines
        counted, number = 0, line
        while (start := data.find(first, start)) >= 0:
            begin, start = start, start + len(first)
            if offset + begin <= (self._first if self.last is None else self.last):
                continue  # pieces overlap
            if begin and data[begin - 1 : begin] not in (b"\n", b"\r"):
                continue
            if data[start : start + 1] not in (b"\n", b"\r"):
                continue
            at = data.find(second, start, start + self._gap_bytes + _REACH_BYTES)
            if at < 0 or data[at - 1 : at] not in (b"\n", b"\r"):
                continue
            number, counted = number + data.count(b"\n", counted, begin), begin
            self.last, self.last_line, self._count = offset + begin, number, self._count + 1
            if self._count > _MAX_RUNS or self.last - self._first < _MIN_RUN_BYTES * self._count:
                self.last, self._lines = None, None
                return

    def _choose(self, head: bytes) -> int:
        """Choose two lines; return where to search on."""
        chosen: list[tuple[int, bytes]] = []
        position = 0
        for raw in head.splitlines(keepends=True):
            text, begin = raw.rstrip(b"\r\n"), position
            position += len(raw)
            if len(raw) == len(text):
                break
            if _OF_WORK.search(text) is not None:
                self._head = None
                return position
            if _can_open(text) and all(text != known for _, known in chosen):
                chosen.append((begin, text))
            if len(chosen) == 2:
                (begin, first), (at, second) = chosen
                self._lines, self._gap_bytes, self._first = (first, second), at - begin + len(second), begin
                self._head = None
                return at + len(second)
        if position >= _HEAD_BYTES - _MAX_LINE_BYTES:
            self._head = None
        return position


def _can_open(text: bytes) -> bool:
    """Return whether a line can be one that a run begins with, and prints but once."""
    if not _MIN_LINE_BYTES <= len(text) <= _MAX_LINE_BYTES or _PASSED_OVER.search(text) is not None:
        return False
    return sum(chr(byte).isalpha() for byte in text) >= _MIN_LETTERS
