"""Shows the list of reports, the text of one, and how good predictions have been here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from opsk.errors import OpskError
from opsk.text import format_count
from opsk_tui.data.view import ReportRow
from opsk_tui.screens.accuracy import build_accuracy_sections
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import age, safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, section
from opsk_tui.widgets.lines import Lines
from opsk_tui.widgets.table import Column, Table

_ACCURACY = ReportRow(job="", title="Accuracy of the last 90 days", kind="accuracy", made_at_s=0.0)
"""Stands for the page on accuracy, which is in no list."""


class ReportsScreen(ViewScreen):
    """The list of reports; Enter opens one in place of the list."""

    NAME = "reports"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "Reports by opsk: why jobs failed, and others.",
        "Accuracy is how good predictions of the site's jobs have been.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse the order", show=False),
        Binding("b", "list", "Back to the list"),
        Binding("a", "accuracy", "Accuracy"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._open: ReportRow | None = None

    def compose_body(self) -> ComposeResult:
        """Put the list and one report into one place."""
        columns: tuple[Column[ReportRow], ...] = (
            Column(key="job", title="JOB", width=9, rank=0, cell=lambda row: (safe(row.job), "strong"),
                              order=lambda row: row.job),
            Column(key="kind", title="KIND", width=14, rank=0, cell=lambda row: (safe(row.kind), "text"),
                              order=lambda row: row.kind),
            Column(key="age", title="AGE", width=7, rank=0, right=True, cell=self._age,
                              order=lambda row: row.made_at_s, descending=True),
            Column(key="title", title="TITLE", width=30, rank=0, cell=lambda row: (safe(row.title), "text"),
                              order=lambda row: row.title, grows=3),
            Column(key="path", title="WHERE", width=20, rank=3, cell=lambda row: (safe(row.path), "dim"),
                              grows=2),
        )  # fmt: skip
        yield Table[ReportRow](
            columns, lambda row: (row.path, row.job, row.kind, row.made_at_s), empty="No reports yet.", id="list"
        )
        yield Document(empty="Reading …", id="report")

    def _age(self, row: ReportRow) -> Cell:
        return age(max(0.0, self.top.clock() - row.made_at_s)), "text"

    @property
    def table(self) -> Table[ReportRow]:
        """The list."""
        return self.query_one("#list", Table)

    @property
    def body(self) -> Lines:
        """The report that is open, else the list."""
        return self.query_one("#report", Document) if self._open is not None else self.table

    def on_mount(self) -> None:
        """Start with the list."""
        self.query_one("#report").display = False
        super().on_mount()

    def fill(self) -> None:
        """Show the list, the newest first."""
        self.table.show(sorted(self.known.view.reports, key=lambda row: -row.made_at_s))

    def summary(self) -> Sequence[Cell]:
        """Return the number of reports, or the open one."""
        if self._open is not None:
            return [(safe(self._open.title), "strong"), (f"  {safe(self._open.path)}", "dim")]
        return [(format_count(len(self.known.view.reports), "report"), "strong")]

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return the location of the report."""
        row = self.table.current if self._open is not _ACCURACY else None
        return ([(safe(row.title), "text")], [(safe(row.path), "dim")]) if row is not None else ()

    def apply_filter(self, words: str) -> None:
        """Show only what holds these words."""
        part = self.body
        if isinstance(part, Table | Document):
            part.words = words
            part.rearrange()

    def clear_filters(self) -> bool:
        """Close the report; return whether one was open."""
        was_open = self._open is not None
        self.action_list()
        return was_open

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.table.sort_next()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.sort_by(self.table.sort_key)

    def action_list(self) -> None:
        """Go back to the list."""
        self._open = None
        self.query_one("#report").display = False
        self.table.display = True
        self.table.focus()
        self.show()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the report under the cursor."""
        row = self.table.current
        if event.lines is self.table and row is not None:
            self._show_page(row)

    def action_accuracy(self) -> None:
        """Show how good predictions have been."""
        self._show_page(_ACCURACY)

    def _show_page(self, row: ReportRow) -> None:
        """Show a page in place of the list, as soon as it has been read."""
        self._open = row
        document = self.query_one("#report", Document)
        document.show([])
        document.top = 0
        self.table.display, document.display = False, True
        document.focus()
        self.run_worker(self._read(row), group="report", exclusive=True, exit_on_error=False)
        self.call_after_refresh(self.show)

    async def _read(self, row: ReportRow) -> None:
        try:
            if row is _ACCURACY:
                sections = build_accuracy_sections(await self.top.feed.accuracy())
            else:
                text = await self.top.feed.report_text(row.path)
                sections = [section("", [[(safe(line), "text")] for line in text.splitlines()])]
        except OpskError as error:
            sections = [section("", [[(safe(error.message), "watch")], [(safe(error.hint or ""), "dim")]])]
        if self._open is row:
            self.query_one("#report", Document).show(sections)
