"""Reads the training progress and each rank's last output from the ends of a log, without parsing every line.

Readers of progress lines are thorough and slow compared with the search for fragments, so they get only the first
lines that may be progress, and the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile

from opsk.postmortem.logs.header import LineClock
from opsk.postmortem.logs.matching import Finder, build_finder
from opsk.postmortem.logs.ordinary import TAIL_BYTES, find_third_last_ordinary
from opsk.telemetry.progress.frameworks.registry import READERS
from opsk.telemetry.progress.lines import parse_label, strip_escapes
from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.stream import ProgressItem, ProgressReader
from opsk.units import KIB, MIB

_MAX_LINES = 400
_MORE_LINES = 4 * _MAX_LINES
"""Read where one step alone is near the end: it may be one that a progress bar shows once more."""
_TAIL_LINES = 40
_TAIL_BYTES = 64 * KIB
_MAX_PENDING = 4
"""Pieces without a step at their end, retained until it is clear whether the last step is in one of them."""
_MAX_HEAD_BYTES = 16 * MIB
"""So much of a log is read closely for its first step."""
_MAX_LINE_BYTES = 16 * KIB
_LABELS_BYTES = MIB
_MAX_RANKS = 4096
_TEXT_CHARS = 300
_STAMP_BYTES = 32 * KIB


@cache
def _hint_finder() -> Finder:
    """Return the finder of the words in progress lines."""
    return build_finder(sorted({hint.encode("utf-8") for make in READERS for hint in make().hints}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """First and last iteration; when [s since 1970] and where the last was reported; whether it ends the plan."""

    first: int | None = None
    last: int | None = None
    first_s: float | None = None
    last_s: float | None = None
    last_order: int | None = None
    previous_order: int | None = None
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    """A piece of a log, and where it begins."""

    data: bytes
    offset: int


_NO_BLOCK = _Block(b"", 0)


@dataclass(slots=True)
class ProgressEnds:
    """Retains the first steps of a log, and the pieces with the last ones.

    Words of progress lines are in other lines too (settings, tracebacks): only what parses as a step counts.
    """

    rank: int | None = None
    _head: list[StepRecord] = field(default_factory=list)
    _reader: ProgressReader = field(default_factory=lambda: ProgressReader(""))
    _head_bytes: int = 0
    _proven: _Block = _NO_BLOCK
    _pending: list[_Block] = field(default_factory=list)
    _last: int | None = None

    def take(self, data: bytes, offset: int) -> None:
        """Read one piece, which begins ``offset`` bytes into the log."""
        if _hint_finder().find_first(data) is None:
            return
        if not self._head and self._head_bytes < _MAX_HEAD_BYTES:
            self._read_head(data)
        block = _Block(data, offset)
        steps = _find_last_steps(data[-_TAIL_BYTES:], _TAIL_LINES)[0]
        if steps and self._last is not None and {each.iteration for each in steps} == {self._last}:
            return  # a progress bar that is shown once more when the program ends
        if steps:
            self._proven, self._pending, self._last = block, [], steps[-1].iteration
            return
        self._pending.append(block)
        if len(self._pending) > _MAX_PENDING:
            oldest = self._pending.pop(0)
            self._proven = oldest if _find_last_steps(oldest.data)[0] else self._proven

    def _read_head(self, data: bytes) -> None:
        """Read on until there are steps."""
        self._head_bytes += len(data)
        lines = [line for _, line in _find_candidates(data)]
        for start in range(0, len(lines), _MAX_LINES):
            self._head += _filter_steps(self._reader.feed(b"\n".join(lines[start : start + _MAX_LINES]) + b"\n"))
            if self._head:
                return

    def progress(self, clock: LineClock) -> Progress:
        """Return the training progress."""
        for block in (*reversed(self._pending), self._proven):
            tail, start, previous = _find_last_steps(block.data)
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
            last_s=last_s if last_s is not None else _find_stamp_before(block.data[:start], clock),
            last_order=block.offset + start,
            previous_order=block.offset + previous if previous is not None else None,
            is_complete=total is not None and last.iteration is not None and last.iteration >= total,
        )


def _find_stamp_before(data: bytes, clock: LineClock) -> float | None:
    """Return when the line before the last step with a time was written: steps of some programs carry none."""
    for raw in reversed(data[-_STAMP_BYTES:].splitlines()):
        if (time_s := clock.read(parse_label(strip_escapes(raw[:2048])).text)) is not None:
            return time_s
    return None


def _find_last_steps(data: bytes, max_lines: int | None = None) -> tuple[list[StepRecord], int, int | None]:
    """Return some steps, the last among them, where its line begins and where that of the one before does.

    Parameters
    ----------
    max_lines
        Maximum number of candidate lines, from the end; all where ``None``.
    """
    lines = _find_candidates(data, max_lines=max_lines)
    for stop in range(len(lines), 0, -_MAX_LINES):
        steps, block = _read_steps(lines[max(0, stop - _MAX_LINES) : stop])
        if steps and len({each.iteration for each in steps}) == 1 and stop > _MAX_LINES:
            steps, block = _read_steps(lines[max(0, stop - _MORE_LINES) : stop])
        if steps:
            last = steps[-1]
            before = next((each for each in reversed(steps) if each.iteration != last.iteration), None)
            first = _find_first_of_last(steps)
            return steps, _find_start(first, block), _find_start(before, block) if before is not None else None
    return [], 0, None


def _read_steps(block: list[tuple[int, bytes]]) -> tuple[list[StepRecord], list[tuple[int, bytes]]]:
    """Return the steps of some lines, and the lines."""
    reader = ProgressReader("")
    return _filter_steps((*reader.feed(b"\n".join(line for _, line in block) + b"\n"), *reader.finish())), block


def _find_first_of_last(steps: list[StepRecord]) -> StepRecord:
    """Return where the last step was reported first: a progress bar shows it once more when the program ends."""
    last = steps[-1]
    if last.iteration is None:
        return last
    same = takewhile(lambda each: each.iteration == last.iteration, reversed(steps))
    return deque(same, maxlen=1)[0]


def _find_start(step: StepRecord, lines: list[tuple[int, bytes]]) -> int:
    """Return where the line of a step begins."""
    return lines[step.line - 1][0] if 0 < step.line <= len(lines) else lines[0][0]


def _filter_steps(results: Iterable[ProgressItem]) -> list[StepRecord]:
    """Return the steps among parsed results."""
    return [each for each in results if isinstance(each, StepRecord)]


def _find_candidates(data: bytes, *, max_lines: int | None = None) -> list[tuple[int, bytes]]:
    """Return the lines that may be progress, or the last of them, each with where it begins."""
    lines: dict[int, bytes] = {}
    start = len(data) + 1
    for end, _ in reversed(_hint_finder().find(data)):
        if end >= start:
            continue  # in the same line as the one after it
        if len(lines) == max_lines:
            break
        start = max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1
        stops = [position for position in (data.find(b"\n", end), data.find(b"\r", end)) if position >= 0]
        lines[start] = data[start : min(stops, default=len(data))][:_MAX_LINE_BYTES]
    return sorted(lines.items())


@dataclass(frozen=True, slots=True)
class Printer:
    """The rank that a label names, or a rank of one node (``[default3]:``), whose number may be stated as well."""

    rank: int | None
    local_rank: int | None = None
    node_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLine:
    """The last output of one rank, its time, and how many of its lines were read."""

    text: str = ""
    time_s: float | None = None
    lines: int = 0


@dataclass(slots=True)
class LabelTail:
    """Retains the end of a log, with the last output of its ranks."""

    _last: list[bytes] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        """Read one piece; of those before only what the end may need is retained."""
        enough = len(data)
        for number in range(len(self._last) - 1, -1, -1):
            if enough >= _LABELS_BYTES:
                del self._last[: number + 1]
                break
            enough += len(self._last[number])
        self._last.append(data)

    def _read_tail(self, max_bytes: int) -> bytes:
        """Return the end of the log."""
        joined = b""
        for data in reversed(self._last):
            if len(joined) >= max_bytes:
                break
            joined = data[-(max_bytes - len(joined)) :] + joined
        return joined

    def printers(self, clock: LineClock, *, is_labelled: bool = False) -> dict[Printer, LastLine]:
        """Return the last line of each rank that labels name; empty where lines have no labels."""
        data = self._read_tail(_LABELS_BYTES)
        if not (is_labelled or _is_labelled(data)):
            return {}
        last: dict[Printer, tuple[str, int]] = {}
        for raw in data.splitlines():
            line = parse_label(strip_escapes(raw[:2048]))
            if line.rank is None and line.local_rank is None:
                continue
            who = Printer(line.rank, line.local_rank, line.node_rank)
            if line.text.strip() and (who in last or len(last) < _MAX_RANKS):
                last[who] = (line.text.rstrip(), last.get(who, ("", 0))[1] + 1)
        return {
            who: LastLine(text=text[:_TEXT_CHARS], time_s=clock.read(text), lines=count)
            for who, (text, count) in last.items()
        }

    def find_ordinary(self, size_bytes: int) -> int | None:
        """Return where the third-last line begins that a program at work writes; ``None`` where none is near the end.

        Parameters
        ----------
        size_bytes
            Of the whole log.
        """
        data = self._read_tail(TAIL_BYTES)
        start = find_third_last_ordinary(data)
        return size_bytes - len(data) + start if start is not None else None

    def end(self, clock: LineClock) -> LastLine:
        """Return the last line of all, with the last time near the end."""
        lines = [text for raw in self._read_tail(8192).splitlines() if (text := strip_escapes(raw).strip())]
        times = (clock.read(text) for text in reversed(lines))
        return LastLine(text=lines[-1][:_TEXT_CHARS] if lines else "", time_s=next((at for at in times if at), None))


def _is_labelled(data: bytes) -> bool:
    """Return whether lines have labels of ranks."""
    lines = data[-16384:].splitlines()[-64:]
    labelled_lines = (parse_label(strip_escapes(raw[:2048])) for raw in lines)
    return sum(line.rank is not None or line.local_rank is not None for line in labelled_lines) * 4 >= len(lines) > 0
