"""How far did training come, and what did each rank print last? From the ends of a log, without reading every line.

Readers of progress lines are thorough and slow beside the search for fragments, so they get the first lines that may be
progress, and the last ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from opsk.postmortem.logs.matching import Finder, finder
from opsk.postmortem.logs.times import LineClock
from opsk.telemetry.progress.frameworks.registry import READERS
from opsk.telemetry.progress.lines import clean, labelled
from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.stream import Found, ProgressReader
from opsk.units import KIB, MIB

_MOST_LINES = 400
_FEW_LINES = 40
_TAIL_BYTES = 64 * KIB
_MOST_PENDING = 4
"""Pieces without a step at their end that are kept until it is clear whether the last step is in one of them."""
_MOST_HEAD_BYTES = 16 * MIB
"""So much of a log is read closely for its first step."""
_LONGEST_LINE_BYTES = 16 * KIB
_LABELS_BYTES = MIB
_MOST_RANKS = 4096
_TEXT_CHARS = 300
_STAMP_BYTES = 32 * KIB


@cache
def _hints() -> Finder:
    """Return the finder of words that progress lines have."""
    return finder(sorted({hint.encode("utf-8") for make in READERS for hint in make().hints}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """First and last iteration; when [s since 1970] and where the last was told; whether it ends the plan."""

    first: int | None = None
    last: int | None = None
    first_s: float | None = None
    last_s: float | None = None
    last_order: int | None = None
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    """A piece of a log, and where it begins."""

    data: bytes
    offset: int


_NOTHING_KEPT = _Kept(b"", 0)


@dataclass(slots=True)
class ProgressEnds:
    """Keeps the first steps of a log, and the pieces in which the last ones are.

    Words that progress lines have stand in other lines too (settings, tracebacks): only what was read as a step counts.
    """

    rank: int | None = None
    _head: list[StepRecord] = field(default_factory=list)
    _reader: ProgressReader = field(default_factory=lambda: ProgressReader(""))
    _head_bytes: int = 0
    _proven: _Kept = _NOTHING_KEPT
    _pending: list[_Kept] = field(default_factory=list)

    def take(self, data: bytes, offset: int) -> None:
        """Look at one piece, which begins ``offset`` bytes into the log."""
        if _hints().first(data) is None:
            return
        if not self._head and self._head_bytes < _MOST_HEAD_BYTES:
            self._read_head(data)
        kept = _Kept(data, offset)
        if _last_steps(data[-_TAIL_BYTES:], _FEW_LINES)[0]:
            self._proven, self._pending = kept, []
            return
        self._pending.append(kept)
        if len(self._pending) > _MOST_PENDING:
            oldest = self._pending.pop(0)
            self._proven = oldest if _last_steps(oldest.data)[0] else self._proven

    def _read_head(self, data: bytes) -> None:
        """Read on until there are steps."""
        self._head_bytes += len(data)
        lines = [line for _, line in _candidates(data)]
        for at in range(0, len(lines), _MOST_LINES):
            self._head += _steps(self._reader.feed(b"\n".join(lines[at : at + _MOST_LINES]) + b"\n"))
            if self._head:
                return

    def progress(self, clock: LineClock) -> Progress:
        """Return how far training came."""
        for kept in (*reversed(self._pending), self._proven):
            tail, start = _last_steps(kept.data)
            if tail:
                break
        else:
            return Progress()
        steps, last = (*self._head, *tail), tail[-1]
        self.rank = last.rank
        total, last_s = last.total_iterations, last.at_unix_s
        return Progress(
            first=next((step.iteration for step in steps if step.iteration is not None), None),
            last=last.iteration,
            first_s=next((step.at_unix_s for step in steps if step.at_unix_s is not None), None),
            last_s=last_s if last_s is not None else _stamp_before(kept.data[:start], clock),
            last_order=kept.offset + start,
            is_complete=total is not None and last.iteration is not None and last.iteration >= total,
        )


def _stamp_before(data: bytes, clock: LineClock) -> float | None:
    """Return when the line before the last step with a time was written: steps of some programs carry none."""
    for raw in reversed(data[-_STAMP_BYTES:].splitlines()):
        if (at := clock.read(labelled(clean(raw[:2048])).text)) is not None:
            return at
    return None


def _last_steps(data: bytes, most_lines: int | None = None) -> tuple[list[StepRecord], int]:
    """Return some steps, the last among them, and where its line begins; none where there is none.

    Parameters
    ----------
    most_lines
        Lines that may be progress to look at, from the end; all where ``None``.
    """
    lines = _candidates(data, most=most_lines)
    for stop in range(len(lines), 0, -_MOST_LINES):
        block = lines[max(0, stop - _MOST_LINES) : stop]
        reader = ProgressReader("")
        found = _steps((*reader.feed(b"\n".join(line for _, line in block) + b"\n"), *reader.finish()))
        if found:
            number = found[-1].line
            return found, block[number - 1][0] if 0 < number <= len(block) else block[0][0]
    return [], 0


def _steps(found: Iterable[Found]) -> list[StepRecord]:
    """Return the steps among what was read."""
    return [each for each in found if isinstance(each, StepRecord)]


def _candidates(data: bytes, *, most: int | None = None) -> list[tuple[int, bytes]]:
    """Return the lines that may be progress, or the last of them, each with where it begins."""
    lines: dict[int, bytes] = {}
    for end, _ in reversed(_hints().find(data)):
        start = max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1
        if start not in lines:
            if len(lines) == most:
                break
            stops = [at for at in (data.find(b"\n", end), data.find(b"\r", end)) if at >= 0]
            lines[start] = data[start : min(stops, default=len(data))][:_LONGEST_LINE_BYTES]
    return sorted(lines.items())


@dataclass(frozen=True, slots=True)
class Printer:
    """Whom a label names: a rank, or a rank of one node (``[default3]:``), whose number may be told as well."""

    rank: int | None
    local_rank: int | None = None
    node_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLine:
    """What one rank printed last, when, and how many lines of it were looked at."""

    text: str = ""
    time_s: float | None = None
    lines: int = 0


@dataclass(slots=True)
class LabelTail:
    """Keeps the end of a log, where the last words of its ranks stand."""

    _tail: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> None:
        """Look at one piece."""
        self._tail += data[-_LABELS_BYTES:]
        del self._tail[:-_LABELS_BYTES]

    def printers(self, clock: LineClock, *, is_labelled: bool = False) -> dict[Printer, LastLine]:
        """Return the last line of each rank that labels tell of; empty where lines carry none."""
        data = bytes(self._tail)
        if not (is_labelled or _is_labelled(data)):
            return {}
        last: dict[Printer, tuple[str, int]] = {}
        for raw in data.splitlines():
            line = labelled(clean(raw[:2048]))
            if line.rank is None and line.local_rank is None:
                continue
            who = Printer(line.rank, line.local_rank, line.node_rank)
            if line.text.strip() and (who in last or len(last) < _MOST_RANKS):
                last[who] = (line.text.rstrip(), last.get(who, ("", 0))[1] + 1)
        return {
            who: LastLine(text=text[:_TEXT_CHARS], time_s=clock.read(text), lines=count)
            for who, (text, count) in last.items()
        }

    def end(self, clock: LineClock) -> LastLine:
        """Return the last line of all, with the last time that stands near the end."""
        lines = [text for raw in bytes(self._tail[-8192:]).splitlines() if (text := clean(raw).strip())]
        times = (clock.read(text) for text in reversed(lines))
        return LastLine(text=lines[-1][:_TEXT_CHARS] if lines else "", time_s=next((at for at in times if at), None))


def _is_labelled(data: bytes) -> bool:
    """Tell whether lines carry labels of ranks."""
    lines = data[-16384:].splitlines()[-64:]
    found = (labelled(clean(raw[:2048])) for raw in lines)
    return sum(line.rank is not None or line.local_rank is not None for line in found) * 4 >= len(lines) > 0
