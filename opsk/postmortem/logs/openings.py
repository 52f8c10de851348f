"""Finds where a log begins in the same way again: the output of another run was appended to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from opsk.postmortem.values import Finding, Origin, Role

_HEAD_BYTES = 4096
_MIN_LINE_BYTES, _MAX_LINE_BYTES = 12, 300
_MIN_LETTERS = 6
_REACH_BYTES = 512
"""Lines between the two, such as times and numbers of processes, may have other lengths in another run."""
_MAX_RUNS = 64
_MIN_RUN_BYTES = 160
"""What comes back more often, or sooner, is what one run prints all the time."""
_LONGEST_STAMP_BYTES = 48
_STAMP = re.compile(
    rb"\W{0,2}(?:20\d\d[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/](?:20)?\d\d)[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    rb"(?:Z|[+-]\d\d:?\d\d)?(?!\d)[\s|\])>:-]{0,8}"
)
"""The time that a logger writes before a line: the rest of it is the same in the next run."""
_BEGINS = re.compile(
    rb"(?i)\b(?:start(?:ing|ed|s)?|begin(?:ning|s)?|launch(?:ing|ed)|initiali[sz]\w+|arguments|namespace)\b"
)
_BEGINS_PART = re.compile(
    rb"(?i)\b(?:workers?|rank|process(?:es)?|threads?|servers?|replicas?|actors?|tasks?|shards?|jobs?|fold|trial|request)\b"
)
"""What begins so is no run: one run has many of them, and begins them again."""
_ENDED = re.compile(
    rb"(?:^|[\r\n])(?:[\w.]{1,120}(?:Error|Exception|Interrupt|Exit)(?::[^\r\n]{0,300})?"
    rb"|[^\r\n]{0,120}\b(?:Killed|Terminated|Aborted|Segmentation fault)\b[^\r\n]{0,200})\s*\Z"
)
"""The last words of a program that was ended."""
_LONGEST_END_BYTES = 512
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

    Where only one can be told from what a program prints at work, it counts if a logger wrote that something begins,
    or where the last words of another program stand directly above it.

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
    _begins: bool = False
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
            begin, start = _find_begin(data, start), start + len(first)
            if begin < 0 or offset + begin <= (self._first if self.last is None else self.last):
                continue  # within a line, or pieces overlap
            if data[start : start + 1] not in (b"\n", b"\r") or not self._is_confirmed(data, begin, start, second):
                continue
            number, counted = number + data.count(b"\n", counted, begin), begin
            self.last, self.last_line, self._count = offset + begin, number, self._count + 1
            if self._count > _MAX_RUNS or self.last - self._first < _MIN_RUN_BYTES * self._count:
                self.last, self._lines = None, None
                return

    def _is_confirmed(self, data: bytes, begin: int, end: int, second: bytes) -> bool:
        """Return whether more than the first line tells that a run begins: the second one, or what stands above."""
        at = data.find(second, end, end + self._gap_bytes + _REACH_BYTES) if second else -1
        if at >= 0 and _find_begin(data, at) >= 0:
            return True
        return self._begins or _ENDED.search(data[max(0, begin - _LONGEST_END_BYTES) : begin]) is not None

    def _choose(self, head: bytes) -> int:
        """Choose two lines, or one where there is no other; return where to search on."""
        chosen: list[tuple[int, bytes]] = []
        position, is_stamped = 0, False
        for raw in head.splitlines(keepends=True):
            text, begin = raw.rstrip(b"\r\n"), position
            position += len(raw)
            if len(raw) == len(text):
                return position
            if _OF_WORK.search(text) is not None:
                break
            stamp = _STAMP.match(text)
            text = text[stamp.end() :] if stamp is not None else text
            if _can_open(text) and all(text != known for _, known in chosen):
                chosen.append((begin, text))
                is_stamped = stamp is not None
            if len(chosen) == 2:
                break
        else:
            if position < _HEAD_BYTES - _MAX_LINE_BYTES:
                return position
        self._retain(chosen, is_stamped=is_stamped)
        return position

    def _retain(self, chosen: Sequence[tuple[int, bytes]], *, is_stamped: bool) -> None:
        """Retain the lines that were chosen, and choose no others."""
        self._head = None
        if not chosen:
            return
        begin, first = chosen[0]
        at, second = chosen[1] if len(chosen) > 1 else (begin, b"")
        self._lines, self._gap_bytes, self._first = (first, second), at - begin + len(second), begin
        self._begins = is_stamped and _BEGINS.search(first) is not None and _BEGINS_PART.search(first) is None


def _find_begin(data: bytes, at: int) -> int:
    """Return where the line begins that holds these bytes at its beginning, or after a time; else -1."""
    low = max(0, at - _LONGEST_STAMP_BYTES)
    begin = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at)) + 1
    if begin == 0 and low:
        return -1
    return begin if begin == at or _STAMP.fullmatch(data, begin, at) is not None else -1


def _can_open(text: bytes) -> bool:
    """Return whether a line can be one that a run begins with, and prints but once."""
    if not _MIN_LINE_BYTES <= len(text) <= _MAX_LINE_BYTES or _PASSED_OVER.search(text) is not None:
        return False
    return sum(chr(byte).isalpha() for byte in text) >= _MIN_LETTERS
