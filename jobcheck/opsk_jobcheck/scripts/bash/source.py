"""Maps characters of a script text, expanded once or not, to the line that they come from."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from opsk_jobcheck.scripts.bash.values import Part, Text

MARK_OPEN, MARK_CLOSE = "\ue000", "\ue001"
MARK = re.compile(f"{MARK_OPEN}([0-9]+){MARK_CLOSE}")
"""Stands for an unknown part inside a text that is read as shell once more (``bash -c "$CMD"``)."""


class ShellLimitError(Exception):
    """The script is nested deeper, or takes more work, than is followed."""


@dataclass(slots=True)
class Source:
    """A text to be read as shell.

    ``starts`` and ``lines`` map offsets to line numbers; ``unknown`` are the parts that marks in the text stand for.
    ``work`` is the remaining number of characters that may be looked at, so that reading stays linear.
    """

    text: str
    starts: list[int]
    lines: list[int]
    unknown: list[Part] = field(default_factory=list)
    work: int = 0

    def __post_init__(self) -> None:
        """Give every text work in proportion to its length."""
        self.work = self.work or 16 * len(self.text) + 200_000

    def line_at(self, offset: int) -> int:
        """Return the line of the character at ``offset``."""
        return self.lines[max(bisect_right(self.starts, offset) - 1, 0)]

    def spend(self, characters: int) -> None:
        """Count work; a text that makes the reader look again and again at the same characters is given up."""
        self.work -= characters + 1
        if self.work < 0:
            raise ShellLimitError("the script takes more work to read than opsk spends on one")


def build_script_source(text: str, *, start: int = 0, number_spans: Sequence[tuple[int, int]] = ()) -> Source:
    """Return the source of a script as submitted.

    Parameters
    ----------
    start
        Added to its line numbers (see `Places`).
    number_spans
        Start and end offsets of numbers that are read as unknown, in order.
    """
    clean = text.replace(MARK_OPEN, "?").replace(MARK_CLOSE, "?")
    unknown = [
        Part("", 0, f"number {index} may be any", filled=True, number=True) for index in range(len(number_spans))
    ]
    for index, (begin, end) in reversed(list(enumerate(number_spans))):
        clean = f"{clean[:begin]}{MARK_OPEN}{index}{MARK_CLOSE}{clean[end:]}"
    clean = clean.replace("\r\n", "\n")
    *whole, _ = clean.split("\n")
    starts = [0, *accumulate([len(line) + 1 for line in whole])]
    return Source(clean, starts, list(range(start + 1, start + len(starts) + 1)), unknown)


def build_line_source(text: str, line: int, unknown: list[Part]) -> Source:
    """Return the source of a piece of text that stands on one line of the script."""
    return Source(text, [0], [line], unknown)


def build_expanded_source(text: Text) -> Source:
    """Return the source of an expanded text, each character keeping the line that it was written on."""
    pieces: list[str] = []
    starts, lines = [0], [text.parts[0].line if text.parts else 0]
    unknown: list[Part] = []
    offset = 0
    for part in text.parts:
        piece = part.text
        if part.why:
            piece = f"{MARK_OPEN}{len(unknown)}{MARK_CLOSE}"
            unknown.append(part)
        starts.append(offset)
        lines.append(part.line)
        pieces.append(piece)
        offset += len(piece)
    return Source("".join(pieces), starts, lines, unknown)


def restore_unknown_parts(source: Source, text: str, line: int) -> list[Part]:
    """Return a literal piece of a source as parts, its marks turned back into the unknown parts they stand for."""
    if MARK_OPEN not in text:
        return [Part(text, line)]
    parts: list[Part] = []
    position = 0
    for match in MARK.finditer(text):
        if match.start() > position:
            parts.append(Part(text[position : match.start()], line))
        index = int(match.group(1)[:9])
        parts.append(source.unknown[index] if index < len(source.unknown) else Part("", line, "not known"))
        position = match.end()
    if position < len(text):
        parts.append(Part(text[position:], line))
    return parts
