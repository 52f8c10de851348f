"""Shows hundreds of rows in columns that fit, sorted and filtered; only visible rows are rendered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.strip import Strip

from opsk_tui.text import fit_text
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.lines import MOVES, Lines

Row = TypeVar("Row")
_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One column.

    Parameters
    ----------
    width, rank
        Cells that it takes; columns of a higher rank are left out first when the window is narrow.
    cell
        Safe text of a row and the key of its style.
    order
        The sort key of rows; ``None`` leaves the column out of sorting. ``descending`` is its first direction.
    grows
        Share of the remaining width.
    spark
        Called with the cells that it has got instead of ``cell``, for sparklines.
    """

    key: str
    title: str
    width: int
    rank: int
    cell: Callable[[Row], Cell]
    right: bool = False
    order: Callable[[Row], Any] | None = None
    descending: bool = False
    grows: int = 0


class Table(Lines, Generic[Row]):
    """Rows with a cursor that stays on its row while others come and go.

    Parameters
    ----------
    columns
        From left to right.
    key
        Returns the identity of a row.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*MOVES, Binding("enter", "choose", "Open", show=False)]

    def __init__(
        self, columns: Sequence[Column[Row]], key: Callable[[Row], Hashable], *, empty: str = "", id: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._key = key
        self.empty = empty
        self._all: Sequence[Row] = ()
        self.rows: list[Row] = []
        self.cursor = 0
        self.sort_key = ""
        self.reverse = False
        self.words = ""
        self._column_layout: tuple[int, list[tuple[Column[Row], int]]] | None = None

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; their given order is the unsorted one."""
        self._all = rows
        self.rearrange()

    def rearrange(self) -> None:
        """Filter, sort, and keep the cursor on its row."""
        here = self._key(self.rows[self.cursor]) if self.cursor < len(self.rows) else None
        terms = self.words.casefold().split()
        rows = list(self._all)
        if terms:
            rows = [row for row in rows if all(word in self.join_text(row).casefold() for word in terms)]
        column = self.column(self.sort_key)
        if column is not None and column.order is not None:
            order = column.order
            rows.sort(key=order, reverse=self.reverse)
        self.rows = rows
        positions = (
            [position for position, row in enumerate(rows) if self._key(row) == here] if here is not None else []
        )
        self.cursor = positions[0] if positions else max(0, min(self.cursor, len(rows) - 1))
        if not positions or not self.top <= self.cursor < self.top + self.window:
            self.follow()
        self.renew()

    def column(self, key: str) -> Column[Row] | None:
        """Return a column by its key."""
        return next((column for column in self._columns if column.key == key), None)

    def join_text(self, row: Row) -> str:
        """Return all text of a row, for filter and find."""
        return " ".join(column.cell(row)[0] for column in self._columns)

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def sort_by(self, key: str) -> None:
        """Sort by a column; again reverses it; an empty key is the given order."""
        column = self.column(key)
        if key == self.sort_key:
            self.reverse = not self.reverse
        else:
            self.sort_key, self.reverse = key, column is not None and column.descending
        self.rearrange()

    def sort_next(self) -> None:
        """Sort by the next visible column, and after the last in the given order."""
        keys = ["", *(column.key for column, _ in self.layout_for(self.inner_width) if column.order is not None)]
        index = keys.index(self.sort_key) if self.sort_key in keys else 0
        following = keys[(index + 1) % len(keys)]
        self.sort_key = "\0"
        self.sort_by(following)

    def layout_for(self, width: int) -> list[tuple[Column[Row], int]]:
        """Return the columns that fit, and their widths; those of rank 0 are always there."""
        if self._column_layout is not None and self._column_layout[0] == width:
            return self._column_layout[1]
        chosen = [column for column in self._columns if column.rank == 0]
        for rank in sorted({column.rank for column in self._columns}, reverse=True):
            fitting = [column for column in self._columns if column.rank <= rank]
            if sum(column.width + _GAP for column in fitting) - _GAP + 1 <= width:
                chosen = fitting
                break
        spare = width - 1 - sum(column.width + _GAP for column in chosen) + _GAP
        parts = sum(column.grows for column in chosen)
        layout = [
            (column, column.width + (spare * column.grows // parts if spare > 0 and column.grows else 0))
            for column in chosen
        ]
        self._column_layout = (width, layout)
        return layout

    def head(self, width: int) -> list[Strip]:
        """Return the titles; the sorted one carries an arrow."""
        cells: list[Cell] = [(" ", "dim")]
        for column, size in self.layout_for(width):
            is_sorted = column.key == self.sort_key
            arrow = ("▼" if self.reverse else "▲") if is_sorted else ""
            key = "accent" if is_sorted else "dim"
            cells += [(fit_text(column.title + arrow, size, right=column.right), key), (" " * _GAP, "dim")]
        return [self.cells(cells[:-1], width)]

    def total(self, width: int) -> int:
        """Return how many rows there are."""
        del width
        return len(self.rows)

    def empty_words(self) -> str:
        """Return why there is no row."""
        if self._all and self.words:
            return f"Nothing matches. Escape shows all {len(self._all)} again."
        return self.empty

    def line(self, number: int, width: int) -> Strip:
        """Return one row."""
        row = self.rows[number]
        suffix = "+cursor" if number == self.cursor else ""
        fill = "text" + suffix
        ellipsis = self.glyph_set.ellipsis
        cells: list[Cell] = [(" ", fill)]
        for column, size in self.layout_for(width):
            text, key = column.cell(row)
            cells += [
                (fit_text(text, size, right=column.right, ellipsis=ellipsis), (key or "text") + suffix),
                (" " * _GAP, fill),
            ]
        return self.cells(cells[:-1], width, fill)

    def follow(self) -> None:
        """Scroll to the cursor."""
        self.scroll_to_line(self.cursor)

    def action_move(self, across: int, down: int) -> None:
        """Move the cursor."""
        del across
        if not self.rows:
            return
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + down))
        self.follow()
        self.renew()
        self.report_moved()

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self.rows:
            self.post_message(self.Chosen(self))

    def click_head(self, x: int, y: int) -> None:
        """Sort by the column whose title was clicked."""
        del y
        end_x = 1
        for column, size in self.layout_for(self.inner_width):
            end_x += size + _GAP
            if x < end_x:
                if column.order is not None:
                    self.sort_by(column.key)
                return

    def click(self, x: int, line: int) -> bool:
        """Put the cursor on a row."""
        del x
        if not 0 <= line < len(self.rows):
            return False
        self.cursor = line
        self.renew()
        self.report_moved()
        return True

    def texts(self) -> list[str]:
        """Return the text of every row."""
        return [self.join_text(row) for row in self.rows]

    def place(self) -> int:
        """Return the row of the cursor."""
        return self.cursor

    def go_to(self, number: int) -> None:
        """Put the cursor on a row."""
        self.action_move(0, number - self.cursor)
