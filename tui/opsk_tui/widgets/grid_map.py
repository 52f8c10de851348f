"""Shows thousands of nodes with their GPUs or ports as a map, one glyph each.

A glyph's height and colour show a value; separate glyphs show unhealthy, watched and unknown parts. There are three
scales: one glyph per node, one glyph per part, and one line per node with numbers. Equal rows of glyphs are built once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip

from opsk_tui.data.view import Health
from opsk_tui.text import fit_text
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.lines import MOVES, SIDEWAYS, Lines

UNKNOWN, ABSENT, WATCH, UNHEALTHY = 8, 9, 10, 11
_MARK = 16
_HYSTERESIS = 0.75
_MAX_CACHED_ROWS = 8192
SCALES = ("nodes", "parts", "numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The content of the map.

    Parameters
    ----------
    names, name_keys
        Safe name of each row, and the key of its style.
    codes
        One per part: 0 to 7 a height, else ``UNKNOWN``, ``ABSENT``, ``WATCH``, ``UNHEALTHY``; uint8, shape (rows,
        columns).
    columns
        Titles of the columns.
    text
        The number of a part in at most five cells.
    rest
        The cells after the parts where a row has a line of its own.
    marked
        Parts that are highlighted; ``None``: none.
    """

    names: Sequence[str]
    name_keys: Sequence[str]
    codes: NDArray[np.uint8]
    columns: Sequence[str]
    text: Callable[[int, int], str]
    rest: Callable[[int], list[Cell]]
    marked: NDArray[np.bool_] | None = None


def compute_codes(
    values: NDArray[np.float32] | None,
    health: NDArray[np.int8],
    present: NDArray[np.bool_] | None,
    limits: tuple[float, float],
    before: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Return the code of every part: bad health takes precedence over the value.

    With the codes of ``before`` a height stays until the value is a quarter of a step beyond it: a value that
    fluctuates at a limit is not sent again and again.
    """
    if values is None:
        codes = np.where(health == Health.OK, 0, UNKNOWN).astype(np.uint8)
    else:
        low, high = limits
        with np.errstate(invalid="ignore"):
            steps = np.clip((values - low) * (8 / (high - low)), 0, 7)
        codes = np.where(np.isnan(values), UNKNOWN, np.nan_to_num(steps)).astype(np.uint8)
        if before is not None and before.shape == codes.shape:
            with np.errstate(invalid="ignore"):
                is_near = (np.abs(steps - before - 0.5) < _HYSTERESIS) & (before < UNKNOWN)
            codes[is_near] = before[is_near]
    codes[health == Health.WATCH] = WATCH
    codes[health == Health.UNHEALTHY] = UNHEALTHY
    if present is not None:
        codes[~present] = ABSENT
    return codes


class GridMap(Lines):
    """The map, with a cursor on one part of one row."""

    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, *SIDEWAYS, Binding("enter", "choose", "Open", show=False)]

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._grid: Grid | None = None
        self.order: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.cursor = 0
        self.column = 0
        self.scale = 1
        self.empty = empty
        self._name_width = 1
        self._glyph_styles: dict[int, tuple[str, str]] = {}
        self._row_cache: dict[bytes, list[Segment]] = {}
        self._last_look: tuple[str, bool] = ("", False)
        self._texts: list[str] | None = None

    def show(self, grid: Grid, order: NDArray[np.intp]) -> None:
        """Show these rows in this order; the cursor stays on its row."""
        here = self.row
        self._grid, self.order = grid, order
        self._name_width = min(16, max((len(name) for name in grid.names), default=1))
        positions = np.flatnonzero(order == here).tolist() if here is not None else []
        has_match = len(positions) > 0
        self.cursor = positions[0] if has_match else max(0, min(self.cursor, len(order) - 1))
        self.column = min(self.column, max(0, grid.codes.shape[1] - 1))
        if not has_match:
            self.follow()
        self.renew()

    def mark(self, marked: NDArray[np.bool_] | None) -> None:
        """Highlight these parts."""
        if self._grid is not None:
            old = self._grid
            self._grid = Grid(
                names=old.names, name_keys=old.name_keys, codes=old.codes, columns=old.columns, text=old.text,
                rest=old.rest, marked=marked,
            )  # fmt: skip
            self.renew()

    @property
    def row(self) -> int | None:
        """The row under the cursor, by its number in the grid."""
        return int(self.order[self.cursor]) if self.cursor < len(self.order) else None

    def zoom(self, step: int) -> None:
        """Go to another scale; the cursor stays visible."""
        self.scale = max(0, min(2, self.scale + step))
        self.top = 0
        self.follow()
        self.renew()

    def _columns(self) -> int:
        return int(self._grid.codes.shape[-1]) if self._grid is not None else 0

    def per_line(self, width: int) -> int:
        """Return how many rows of the grid are on one line."""
        if self.scale == 2:
            return 1
        if self.scale == 0:
            return max(1, width - self._name_width - 2)
        return max(1, (width - 1) // (self._name_width + 3 + self._columns()))

    def total(self, width: int) -> int:
        """Return how many lines there are."""
        return -(-len(self.order) // self.per_line(width))

    def empty_words(self) -> str:
        """Return why there is nothing."""
        return self.empty if self._grid is None or not self._grid.names else "Nothing matches. Escape shows all again."

    def follow(self) -> None:
        """Bring the cursor into the window."""
        if self.size.width:
            self.scroll_to_line(self.cursor // self.per_line(self.inner_width))

    def head(self, width: int) -> list[Strip]:
        """Return titles of the columns where rows have lines of their own."""
        if self.scale != 2 or self._grid is None:
            return []
        titles = [(title[:5].rjust(6), "dim") for title in self._grid.columns]
        return [self.cells([(" " + " " * self._name_width, "dim"), *titles], width)]

    def paint(self, width: int, height: int) -> list[Strip]:
        """Clear cached rows when the appearance has changed, then paint."""
        look = (self.palette.name, self.glyph_set.is_ascii)
        if look != self._last_look or len(self._row_cache) > _MAX_CACHED_ROWS:
            self._last_look = look
            self._row_cache.clear()
            glyph_set = self.glyph_set
            self._glyph_styles = {level: (glyph_set.levels[level], f"heat{level}") for level in range(8)} | {
                UNKNOWN: (glyph_set.unknown, "dim"), ABSENT: (" ", "text"), WATCH: (glyph_set.watch, "watch"),
                UNHEALTHY: (glyph_set.unhealthy, "sick"),
            }  # fmt: skip
        return super().paint(width, height)

    def sign(self, code: int, *, here: bool = False) -> Cell:
        """Return the glyph of a code, and its style."""
        text, key = self._glyph_styles[code % _MARK]
        if here and code % _MARK <= UNKNOWN:
            text = "*" if self.glyph_set.is_ascii else "●"
        if code >= _MARK:
            key += "+mark"
        return text, key + "+here" if here else key

    def line(self, number: int, width: int) -> Strip:
        """Return one line at the present scale."""
        assert self._grid is not None
        per_line = self.per_line(width)
        rows = self.order[number * per_line : (number + 1) * per_line]
        if self.scale == 0:
            return self._nodes_line(number, rows, width)
        if self.scale == 2:
            return self._numbers_line(number, int(rows[0]), width)
        segments: list[Segment] = [Segment(" ", self.palette["text"])]
        for index, row in enumerate(rows.tolist()):
            is_here = number * per_line + index == self.cursor
            segments.append(self._render_name(row, is_here))
            segments += self._parts(row, self.column if is_here else -1)
        used = 1 + len(rows) * (self._name_width + 3 + self._columns())
        return Strip([*segments, Segment(" " * max(0, width - used), self.palette["text"])], max(width, used)).crop(
            0, width
        )

    def _render_name(self, row: int, is_here: bool) -> Segment:
        assert self._grid is not None
        text = fit_text(self._grid.names[row], self._name_width, ellipsis=self.glyph_set.ellipsis)
        key = self._grid.name_keys[row] + ("+cursor" if is_here else "")
        return Segment(text + " ", self.palette[key])

    def _parts(self, row: int, here: int) -> list[Segment]:
        """Return the glyphs of a row and two blanks; equal rows are built once."""
        assert self._grid is not None
        codes = self._grid.codes[row]
        if self._grid.marked is not None:
            codes = codes + self._grid.marked[row].astype(np.uint8) * _MARK
        key = codes.tobytes() + bytes([here + 1])
        made = self._row_cache.get(key)
        if made is None:
            runs: list[tuple[str, str]] = []
            for index, code in enumerate(codes.tolist()):
                text, style = self.sign(code, here=index == here)
                if runs and runs[-1][1] == style:
                    runs[-1] = (runs[-1][0] + text, style)
                else:
                    runs.append((text, style))
            made = [Segment(text, self.palette[style]) for text, style in [*runs, ("  ", "text")]]
            self._row_cache[key] = made
        return made

    def _nodes_line(self, number: int, rows: NDArray[np.intp], width: int) -> Strip:
        """Return a line with one glyph per row: the worst of its parts, else their mean."""
        assert self._grid is not None
        first = number * self.per_line(width)
        codes = self._grid.codes[rows]
        bad = np.where((codes == UNHEALTHY) | (codes == WATCH), codes, 0).max(axis=1)
        is_level = codes < 8
        count = is_level.sum(axis=1)
        mean = np.where(count > 0, (codes * is_level).sum(axis=1) // np.maximum(count, 1), UNKNOWN)
        cells: list[Cell] = [
            (
                " "
                + fit_text(self._grid.names[int(rows[0])], self._name_width, ellipsis=self.glyph_set.ellipsis)
                + " ",
                "dim",
            )
        ]
        shown = np.where(bad > 0, bad, mean).astype(int)
        if self._grid.marked is not None:
            shown = shown + _MARK * self._grid.marked[rows].any(axis=1)
        run_text, run_key = "", ""
        for index, code in enumerate(shown.tolist()):
            text, key = self.sign(code, here=first + index == self.cursor)
            if key != run_key:
                cells.append((run_text, run_key))
                run_text, run_key = "", key
            run_text += text
        return self.cells([*cells, (run_text, run_key)], width)

    def _numbers_line(self, number: int, row: int, width: int) -> Strip:
        """Return the numbers of one row, each with its glyph."""
        assert self._grid is not None
        is_here = number == self.cursor
        key = self._grid.name_keys[row] + ("+cursor" if is_here else "")
        cells: list[Cell] = [
            (" " + fit_text(self._grid.names[row], self._name_width, ellipsis=self.glyph_set.ellipsis), key)
        ]
        marked = self._grid.marked
        for column, code in enumerate(self._grid.codes[row].tolist()):
            code += _MARK if marked is not None and marked[row, column] else 0
            glyph, style = self.sign(code, here=is_here and column == self.column)
            plain = code % _MARK
            text = "" if plain == ABSENT else self._grid.text(row, column)
            shown = (glyph if plain >= UNKNOWN else "") + text
            cells += [(" ", "text"), (shown[:5].rjust(5), style)]
        return self.cells([*cells, ("  ", "text"), *self._grid.rest(row)], width)

    def action_move(self, across: int, down: int) -> None:
        """Move the cursor over parts and rows."""
        if not len(self.order):
            return
        per_line, columns = self.per_line(self.inner_width), self._columns()
        last = len(self.order) - 1
        if self.scale == 0:
            self.cursor += across
        elif across:
            column = self.column + across
            if 0 <= column < columns:
                self.column = column
            elif 0 <= self.cursor + across <= last and self.scale == 1:
                self.cursor += across
                self.column = 0 if across > 0 else columns - 1
        target = self.cursor + down * per_line
        if down and not 0 <= target <= last:
            target = max(0, min(last, target)) if abs(down) > 1 else self.cursor
        self.cursor = max(0, min(last, target))
        self.follow()
        self.renew()
        self.report_moved()

    def action_choose(self) -> None:
        """Choose what is under the cursor."""
        if len(self.order):
            self.post_message(self.Chosen(self))

    def click(self, x: int, line: int) -> bool:
        """Put the cursor on the part under the mouse."""
        width = self.inner_width
        per_line, offset = self.per_line(width), x - 1
        column = self.column
        if self.scale == 0:
            index = offset - self._name_width - 1
        elif self.scale == 1:
            index, offset = divmod(offset, self._name_width + 3 + self._columns())
            column = offset - self._name_width - 1
        else:
            index, column = 0, (offset - self._name_width) // 6
        number = line * per_line + index
        if not 0 <= index < per_line or not 0 <= number < len(self.order):
            return False
        self.cursor, self.column = number, max(0, min(self._columns() - 1, column))
        self.renew()
        self.report_moved()
        return True

    def texts(self) -> list[str]:
        """Return the name of every shown row."""
        if self._grid is None:
            return []
        return [
            self._grid.names[row] + " " + " ".join(cell[0] for cell in self._grid.rest(row))
            for row in self.order.tolist()
        ]

    def place(self) -> int:
        """Return the position of the cursor among the shown rows."""
        return self.cursor

    def go_to(self, number: int) -> None:
        """Put the cursor on a row."""
        self.cursor = max(0, min(len(self.order) - 1, number))
        self.action_move(0, 0)
