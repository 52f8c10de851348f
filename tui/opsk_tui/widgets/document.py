"""Shows sections of text, rank placements and log lines as one page that scrolls.

A section builds its lines only when they are visible, so a job of 16,000 ranks costs one window of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.strip import Strip

from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.lines import MOVES, SIDEWAYS, Lines

Line = Sequence[Cell]
_SIDEWAYS = 10
_MAX_SCROLL = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title and its lines: ``count`` of them, each made by ``make``; without a title there is no title line."""

    title: str
    count: int
    make: Callable[[int], Line]


def section(title: str, lines: Sequence[Line]) -> Section:
    """Return a section of existing lines."""
    return Section(title=title, count=len(lines), make=lambda number: lines[number])


class Document(Lines):
    """Sections one after another."""

    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, *SIDEWAYS]

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._sections: list[Section] = []
        self._starts: list[int] = []
        self._count = 0
        self._matching: list[tuple[int, int]] | None = None
        self._empty = empty
        self.words = ""
        self._match_line = -1
        self._left = 0

    def show(self, sections: Sequence[Section]) -> None:
        """Show these sections; those without lines are left out. The scroll position stays."""
        self._sections = [part for part in sections if part.count]
        self._starts, start = [], 0
        for part in self._sections:
            self._starts.append(start)
            start += part.count + 1 + bool(part.title)
        self._count = max(0, start - 1)
        self.rearrange()

    def rearrange(self) -> None:
        """Show only lines with all words of the filter."""
        terms = self.words.casefold().split()
        self._matching = None
        if terms:
            self._matching = [
                (index, line)
                for index, part in enumerate(self._sections)
                for line in range(part.count)
                if all(word in "".join(cell[0] for cell in part.make(line)).casefold() for word in terms)
            ]
        self.renew()

    def total(self, width: int) -> int:
        """Return how many lines there are."""
        del width
        return self._count if self._matching is None else len(self._matching)

    def empty_words(self) -> str:
        """Return why there is nothing."""
        return "Nothing matches. Escape shows all again." if self._matching is not None else self._empty

    def _cells(self, number: int) -> Line:
        """Return the cells of one line: a title, a line of a section, or the blank after it."""
        if self._matching is not None:
            index, line = self._matching[number]
            return self._sections[index].make(line)
        index = self._find_section(number)
        part, line = self._sections[index], number - self._starts[index]
        if part.title:
            if line == 0:
                return [(part.title, "title")]
            line -= 1
        return part.make(line) if line < part.count else ()

    def _find_section(self, number: int) -> int:
        """Return the section that a line belongs to."""
        index = 0
        while index + 1 < len(self._starts) and self._starts[index + 1] <= number:
            index += 1
        return index

    def line(self, number: int, width: int) -> Strip:
        """Return one line; the match of find is marked."""
        cells = self._cells(number)
        fill, wide = "text", width + self._left
        if number == self._match_line:
            fill, cells = "text+cursor", [(text, key + "+cursor") for text, key in cells]
        line = self.cells([(" ", fill), *cells], wide, fill)
        return line.crop(self._left, wide) if self._left else line

    def action_move(self, across: int, down: int) -> None:
        """Scroll lines, and sideways where they are longer than the window is wide."""
        self._left = max(0, min(_MAX_SCROLL, self._left + across * _SIDEWAYS))
        super().action_move(0, down)

    def texts(self) -> list[str]:
        """Return the text of every line."""
        return ["".join(cell[0] for cell in self._cells(number)) for number in range(self.total(0))]

    def place(self) -> int:
        """Return the line of the match of find."""
        return self._match_line if self._match_line >= 0 else self.top

    def go_to(self, number: int) -> None:
        """Bring a line into sight and mark it."""
        self._match_line = number
        super().go_to(number)

    def next_section(self, step: int = 1) -> None:
        """Scroll to the next section, and from the last to the first."""
        if self._starts and self._matching is None:
            last = max(0, self._count - self.window)
            reachable = sorted({min(start, last) for start in self._starts})
            later = [start for start in reachable if start > self.top] if step > 0 else []
            self.top = later[0] if later else 0
            self.renew()

    def to_end(self) -> None:
        """Scroll to the last line."""
        self.top = max(0, self.total(0) - self.window)
        self.renew()
