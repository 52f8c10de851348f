"""Paints lines so that a change sends only the changed cells to the terminal.

A canvas stores the lines that it showed last. `Canvas.renew` paints them again and passes Textual only the spans that
differ; the canvas scrolls by itself, so thousands of lines cost as much as the window shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from opsk_tui.text import ASCII, UNICODE, Glyphs, ascii_text
from opsk_tui.theme import DARK, PALETTES, Palette

Cell = tuple[str, str]
"""Safe text, and the key of its style (`Palette`)."""


def build_strip(cells: Iterable[Cell], width: int, palette: Palette, glyphs: Glyphs, fill: str = "text") -> Strip:
    """Return cells as one line of exactly ``width``, cut or padded."""
    segments: list[Segment] = []
    remaining = width
    for raw, key in cells:
        if not raw:
            continue
        text = ascii_text(raw) if glyphs.is_ascii else raw
        length = len(text) if text.isascii() else cell_len(text)
        if length > remaining:
            segments += Strip([Segment(text, palette[key])], length).crop(0, remaining)
            remaining = 0
            break
        segments.append(Segment(text, palette[key]))
        remaining -= length
    if remaining:
        segments.append(Segment(" " * remaining, palette[fill]))
    return Strip(segments, width)


class Canvas(Widget):
    """Lines of a fixed window; subclasses provide their content."""

    DEFAULT_CSS = "Canvas { height: 1; width: 1fr; }"
    ALLOW_SELECT = False
    glyphs: Glyphs = UNICODE

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Strip] = []

    @property
    def palette(self) -> Palette:
        """Colours of the current theme."""
        return PALETTES.get(self.app.theme, PALETTES[DARK])

    @property
    def glyph_set(self) -> Glyphs:
        """The glyphs that the terminal can show."""
        return getattr(self.app, "glyphs", ASCII)

    def paint(self, width: int, height: int) -> list[Strip]:
        """Return every line of the window, ``height`` strips of ``width`` cells."""
        raise NotImplementedError

    def cells(self, cells: Iterable[Cell], width: int, fill: str = "text") -> Strip:
        """Return cells as a line."""
        return build_strip(cells, width, self.palette, self.glyph_set, fill)

    def blank(self, width: int) -> Strip:
        """Return an empty line."""
        return Strip([Segment(" " * width, self.palette["text"])], width)

    def renew(self) -> None:
        """Paint again, and send the changes."""
        width, height = self.size
        if not width or not height:
            return
        fresh = self.paint(width, height)
        old, self._lines = self._lines, fresh
        if len(old) != len(fresh) or (old and old[0].cell_length != width):
            self.refresh()
            return
        regions = []
        for y, (before, after) in enumerate(zip(old, fresh, strict=True)):
            span = None if before is after else changed_span(before, after)
            if span is not None:
                regions.append(Region(span[0], y, span[1] - span[0], 1))
        if regions:
            self.refresh(*regions)

    def on_resize(self, _event: Resize) -> None:
        """Paint at the new size."""
        self.renew()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the painted lines of a region."""
        width, height = self.size
        if len(self._lines) != height or (self._lines and self._lines[0].cell_length != width):
            self._lines = self.paint(width, height)
        lines = self._lines[crop.y : crop.bottom]
        if crop.x == 0 and crop.width == width:
            return lines
        return [line.crop(crop.x, crop.right) for line in lines]


def changed_span(before: Strip, after: Strip) -> tuple[int, int] | None:
    """Return the first cell that differs and the one after the last; ``None`` when none does.

    Both have one length. Whole runs of one style are compared. One span per line is less than many short ones: Textual
    sends whole runs, and one more after each span.
    """
    old, new = list(before), list(after)
    start, head = 0, 0
    limit = min(len(old), len(new))
    while head < limit and old[head] == new[head]:
        start += old[head].cell_length
        head += 1
    if head == len(old) == len(new):
        return None
    end, tail = after.cell_length, 0
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        end -= new[-1 - tail].cell_length
        tail += 1
    return start, max(end, start + 1)


class Bar(Canvas):
    """Some fixed lines; cells with an action can be clicked."""

    def __init__(self, *, id: str | None = None, fill: str = "text") -> None:
        super().__init__(id=id)
        self._content: list[Sequence[tuple[str, str, str]]] = []
        self._fill = fill

    def show(self, lines: Sequence[Sequence[tuple[str, str] | tuple[str, str, str]]]) -> None:
        """Show lines of cells: text, style, and the action of a click."""
        self._content = [[(cell[0], cell[1], cell[2] if len(cell) > 2 else "") for cell in line] for line in lines]
        self.renew()

    def paint(self, width: int, height: int) -> list[Strip]:
        """Return the lines that were given."""
        shown = [self.cells(((text, key) for text, key, _ in line), width, self._fill) for line in self._content]
        return (shown + [self.cells((), width, self._fill)] * height)[:height]

    async def on_click(self, event: object) -> None:
        """Run the action under the mouse."""
        x, y = getattr(event, "x", 0), getattr(event, "y", 0)
        end_x = 0
        for text, _, action in self._content[y] if y < len(self._content) else ():
            end_x += cell_len(text)
            if x < end_x:
                if action:
                    await self.run_action(action)
                return
