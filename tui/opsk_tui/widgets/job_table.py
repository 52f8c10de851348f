"""How are jobs shown as a table that fits its window and keeps its cursor while the jobs change?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable

from opsk_tui.columns import Cell, Column, fitting
from opsk_tui.data import JobView

_CELL_GAP = 2
_SCROLLBAR = 2
_WIDEST_NAME = 60


class JobTable(DataTable[Text]):
    """The jobs, one a row, in the columns that fit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Details"),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]

    def __init__(self, **options: str) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, **options)  # type: ignore[arg-type]
        self._shown_columns: tuple[Column, ...] = ()
        self._jobs: list[JobView] = []

    @property
    def jobs(self) -> Sequence[JobView]:
        """The jobs that are shown, in order."""
        return self._jobs

    def job(self, key: str | None) -> JobView | None:
        """Return the job of a row."""
        return next((job for job in self._jobs if str(job.record.id) == key), None)

    def on_resize(self, event: Resize) -> None:
        """Show the columns that fit now."""
        self.fit(event.size.width)

    def fit(self, width: int) -> None:
        """Choose the columns for a width; the name takes what is left over."""
        columns = fitting(width - _SCROLLBAR, _CELL_GAP)
        spare = max(0, width - _SCROLLBAR - sum(column.width + _CELL_GAP for column in columns))
        widths = {
            column.key: column.width + (min(spare, _WIDEST_NAME - column.width) if column.key == "name" else 0)
            for column in columns
        }
        if width <= 0 or widths == {key.value: column.width for key, column in self.columns.items()}:
            return
        jobs, self._jobs = self._jobs, []
        under_cursor = self._under_cursor(jobs)
        self.clear(columns=True)
        for column in columns:
            title = Text(column.title, justify="right" if column.right else "left")
            self.add_column(title, key=column.key, width=widths[column.key])
        self._shown_columns = columns
        self._rebuild(jobs, under_cursor)

    def show(self, jobs: list[JobView]) -> None:
        """Show these jobs: cell by cell where the rows are the same, else all anew; the cursor stays on its job."""
        if [job.record.id for job in jobs] != [job.record.id for job in self._jobs]:
            self._rebuild(jobs, self._under_cursor(self._jobs))
            return
        for old, new in zip(self._jobs, jobs, strict=True):
            for column in self._shown_columns:
                cell = column.cell(new)
                if cell != column.cell(old):
                    self.update_cell(str(new.record.id), column.key, _text(cell, column))
        self._jobs = jobs

    def _under_cursor(self, jobs: Sequence[JobView]) -> int | None:
        """Return the id of the job under the cursor."""
        return jobs[self.cursor_row].record.id if 0 <= self.cursor_row < len(jobs) else None

    def _rebuild(self, jobs: list[JobView], under_cursor: int | None) -> None:
        """Put all rows in anew."""
        self.clear()
        self._jobs = jobs
        if not self._shown_columns:
            return
        for job in jobs:
            self.add_row(*(_text(column.cell(job), column) for column in self._shown_columns), key=str(job.record.id))
        places = [place for place, job in enumerate(jobs) if job.record.id == under_cursor]
        if places:
            self.move_cursor(row=places[0], animate=False)


def _text(cell: Cell, column: Column) -> Text:
    """Return a cell as text that is never read as markup."""
    return Text(
        cell.text,
        style=cell.style,
        justify="right" if column.right else "left",
        no_wrap=True,
        overflow="ellipsis",
        end="",
    )
