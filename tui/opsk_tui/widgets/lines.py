"""Implements navigation in many lines: scroll bar, mouse wheel, cursor, find.

Only the lines in the window are ever built. A subclass gives their number and their content.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.message import Message
from textual.strip import Strip

from opsk_tui.text import wrap_text
from opsk_tui.widgets.canvas import Canvas

_WHEEL = 3
MOVES: list[BindingType] = [
    Binding("up,k", "move(0,-1)", "Up", show=False),
    Binding("down,j", "move(0,1)", "Down", show=False),
    Binding("pageup,ctrl+b", "page(-1)", "A page up", show=False),
    Binding("pagedown,ctrl+d,space", "page(1)", "A page down", show=False),
    Binding("home,g", "edge(-1)", "To the start", show=False),
    Binding("end,G", "edge(1)", "To the end", show=False),
]
SIDEWAYS: list[BindingType] = [
    Binding("left,h", "move(-1,0)", "Left", show=False),
    Binding("right,l", "move(1,0)", "Right", show=False),
]


class Lines(Canvas, can_focus=True):
    """Lines below a fixed head, with a scroll bar at the right edge where they do not fit."""

    DEFAULT_CSS = "Lines { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = MOVES

    class Chosen(Message):
        """Enter was pressed on something, or it was clicked twice."""

        def __init__(self, lines: Lines) -> None:
            super().__init__()
            self.lines = lines

        @property
        def control(self) -> Lines:
            """The widget of the event."""
            return self.lines

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.top = 0

    def head(self, width: int) -> list[Strip]:
        """Return the lines that never scroll."""
        del width
        return []

    def total(self, width: int) -> int:
        """Return how many lines there are."""
        raise NotImplementedError

    def line(self, number: int, width: int) -> Strip:
        """Return one line."""
        raise NotImplementedError

    def empty_words(self) -> str:
        """Return the text that is shown when there is no line."""
        return ""

    @property
    def inner_width(self) -> int:
        """Cells beside the scroll bar."""
        return max(1, self.size.width - 1)

    @property
    def window(self) -> int:
        """Number of visible lines."""
        return max(1, self.size.height - len(self.head(self.inner_width)))

    def paint(self, width: int, height: int) -> list[Strip]:
        """Return the head, the lines in the window, and the scroll bar."""
        inner = max(1, width - 1)
        head = self.head(inner)[:height]
        total, window = self.total(inner), height - len(head)
        self.top = max(0, min(self.top, total - window))
        blank = self.blank(inner)
        body = [self.line(number, inner) for number in range(self.top, min(total, self.top + window))]
        if not total and window > 1:
            words = wrap_text(self.empty_words(), max(10, inner - 4))[: window - 1]
            body = [blank, *(self.cells([("  " + part, "dim")], inner) for part in words)]
        body += [blank] * (window - len(body))
        marks = self._bar(total, window)
        right = Segment(" ", self.palette["text"])
        return [Strip([*line, right], inner + 1) for line in head] + [
            Strip([*line, mark], inner + 1) for line, mark in zip(body, marks, strict=True)
        ]

    def _bar(self, total: int, window: int) -> list[Segment]:
        """Return the scroll bar; blanks where all fits."""
        palette, glyph_set = self.palette, self.glyph_set
        if total <= window:
            return [Segment(" ", palette["text"])] * window
        size = max(1, window * window // total)
        start = round(self.top / (total - window) * (window - size))
        thumb, track = Segment(glyph_set.thumb, palette["accent"]), Segment(glyph_set.track, palette["dim"])
        return [thumb if start <= y < start + size else track for y in range(window)]

    def scroll_to_line(self, number: int) -> None:
        """Scroll a line into the window."""
        window = self.window
        if number < self.top:
            self.top = number
        elif number >= self.top + window:
            self.top = number - window + 1

    def on_resize(self, event: Resize) -> None:
        """Keep the cursor visible."""
        self.follow()
        super().on_resize(event)

    def report_moved(self) -> None:
        """Report to the screen that the cursor has moved: at once, so that both are painted together."""
        callback = getattr(self.screen, "cursor_moved", None)
        if callback is not None:
            callback(self)

    def follow(self) -> None:
        """Scroll to the cursor; nothing to do where there is none."""

    def action_move(self, _across: int, down: int) -> None:
        """Scroll by lines; widgets with a cursor move it."""
        self.top = max(0, self.top + down)
        self.renew()

    def action_page(self, pages: int) -> None:
        """Move by windows."""
        self.action_move(0, pages * max(1, self.window - 1))

    def action_edge(self, side: int) -> None:
        """Go to the first or last line."""
        self.action_move(0, side * 10**7)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll without moving the cursor."""
        event.stop()
        self._wheel(_WHEEL)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll without moving the cursor."""
        event.stop()
        self._wheel(-_WHEEL)

    def _wheel(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.renew()

    def on_click(self, event: Click) -> None:
        """Jump on the scroll bar, put the cursor under the mouse, choose on a double click."""
        head = len(self.head(self.inner_width))
        if event.x >= self.inner_width and event.y >= head:
            total = self.total(self.inner_width)
            self.top = round((event.y - head) / max(1, self.window - 1) * max(0, total - self.window))
            self.renew()
        elif event.y < head:
            self.click_head(event.x, event.y)
        elif self.click(event.x, event.y - head + self.top) and event.chain == 2:
            self.post_message(self.Chosen(self))

    def click_head(self, x: int, y: int) -> None:
        """Handle a click on the head."""

    def click(self, x: int, line: int) -> bool:
        """Put the cursor there; return whether there is a row."""
        del x, line
        return False

    def texts(self) -> list[str]:
        """Return the text of everything that find searches, in order."""
        return []

    def place(self) -> int:
        """Return the position of the cursor in `texts`."""
        return self.top

    def go_to(self, number: int) -> None:
        """Put the cursor on one of `texts`."""
        self.top = max(0, number - self.window // 3)
        self.renew()

    def find(self, words: str, step: int = 1, *, include_here: bool = False) -> bool:
        """Go to the next text that holds all words; return whether there is one."""
        terms = words.casefold().split()
        texts = self.texts()
        if not terms or not texts:
            return False
        current = self.place()
        for offset in range(0 if include_here else 1, len(texts) + 1):
            number = (current + offset * step) % len(texts)
            text = texts[number].casefold()
            if all(word in text for word in terms):
                self.go_to(number)
                return True
        return False
