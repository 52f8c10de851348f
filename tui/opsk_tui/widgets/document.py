"""How are sections of text, pictures of seats and log lines shown as one page that scrolls?

A section makes its lines only when they are seen, so a job of 16,000 ranks costs a window.
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
_LONGEST = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title and its lines: ``count`` of them, each made by ``make``; without a title there is no title line."""

    title: str
    count: int
    make: Callable[[int], Line]


def section(title: str, lines: Sequence[Line]) -> Section:
    """Return a section of lines that are there already."""
    return Section(title=title, count=len(lines), make=lambda number: lines[number])


class Document(Lines):
    """Sections one after another."""

    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, *SIDEWAYS]

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._sections: list[Section] = []
        self._starts: list[int] = []
        self._count = 0
        self._kept: list[tuple[int, int]] | None = None
        self._empty = empty
        self.words = ""
        self._found = -1
        self._left = 0

    def show(self, sections: Sequence[Section]) -> None:
        """Show these sections; those without lines are left out. The place in the text stays."""
        self._sections = [part for part in sections if part.count]
        self._starts, at = [], 0
        for part in self._sections:
            self._starts.append(at)
            at += part.count + 1 + bool(part.title)
        self._count = max(0, at - 1)
        self.rearrange()

    def rearrange(self) -> None:
        """Keep only lines with all the words that are wanted."""
        wanted = self.words.casefold().split()
        self._kept = None
        if wanted:
            self._kept = [
                (at, line)
                for at, part in enumerate(self._sections)
                for line in range(part.count)
                if all(word in "".join(cell[0] for cell in part.make(line)).casefold() for word in wanted)
            ]
        self.renew()

    def total(self, width: int) -> int:
        """Return how many lines there are."""
        del width
        return self._count if self._kept is None else len(self._kept)

    def empty_words(self) -> str:
        """Say why there is nothing."""
        return "Nothing matches. Escape shows all again." if self._kept is not None else self._empty

    def _cells(self, number: int) -> Line:
        """Return the cells of one line: a title, a line of a section, or the blank after it."""
        if self._kept is not None:
            at, line = self._kept[number]
            return self._sections[at].make(line)
        at = self._section_of(number)
        part, line = self._sections[at], number - self._starts[at]
        if part.title:
            if line == 0:
                return [(part.title, "title")]
            line -= 1
        return part.make(line) if line < part.count else ()

    def _section_of(self, number: int) -> int:
        """Return the section that a line belongs to."""
        at = 0
        while at + 1 < len(self._starts) and self._starts[at + 1] <= number:
            at += 1
        return at

    def line(self, number: int, width: int) -> Strip:
        """Return one line; the one that find stands on is marked."""
        cells = self._cells(number)
        fill, wide = "text", width + self._left
        if number == self._found:
            fill, cells = "text+cursor", [(text, key + "+cursor") for text, key in cells]
        line = self.cells([(" ", fill), *cells], wide, fill)
        return line.crop(self._left, wide) if self._left else line

    def action_move(self, across: int, down: int) -> None:
        """Scroll lines, and sideways what is longer than the window is wide."""
        self._left = max(0, min(_LONGEST, self._left + across * _SIDEWAYS))
        super().action_move(0, down)

    def texts(self) -> list[str]:
        """Return the text of every line."""
        return ["".join(cell[0] for cell in self._cells(number)) for number in range(self.total(0))]

    def place(self) -> int:
        """Return the line that find stands on."""
        return self._found if self._found >= 0 else self.top

    def go_to(self, number: int) -> None:
        """Bring a line into sight and mark it."""
        self._found = number
        super().go_to(number)

    def next_section(self, step: int = 1) -> None:
        """Scroll to the next section, and from the last to the first."""
        if self._starts and self._kept is None:
            last = max(0, self._count - self.window)
            reachable = sorted({min(start, last) for start in self._starts})
            later = [start for start in reachable if start > self.top] if step > 0 else []
            self.top = later[0] if later else 0
            self.renew()

    def to_end(self) -> None:
        """Scroll to the last line."""
        self.top = max(0, self.total(0) - self.window)
        self.renew()

    def unmark(self) -> None:
        """Forget what find stood on."""
        self._found = -1
