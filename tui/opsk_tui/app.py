"""What does ``opsk top`` show, and what does each key do?

The screen never waits: Slurm is asked in a thread of its own (`opsk_tui.data.Feed`), whose answer comes in as a
message.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, Footer, Static

from opsk_tui.columns import matching, ordered
from opsk_tui.data import Feed
from opsk_tui.screens.job_detail import JobDetail
from opsk_tui.widgets.filter_field import FilterField
from opsk_tui.widgets.job_table import JobTable
from opsk_tui.words import NO_JOBS, NO_JOBS_HINT, age_words, headline, problem_words

_PATIENCE_S = 2.0
"""A healthy slurmctld answers sooner; later the user should know what the screen waits for."""
_Part = TypeVar("_Part", bound=Widget)


class TopApp(App[None]):
    """The jobs of the cluster with what opsk predicted for them.

    Parameters
    ----------
    feed
        Where the jobs come from.
    interval_s
        How often Slurm is asked [s]; ``None``: only when the user asks, and the age is not counted up by itself.
    """

    TITLE = "opsk top"
    CSS_PATH = "opsk.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("r", "refresh", "Refresh"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Show all"),
    ]

    class Answered(Message):
        """Slurm answered, or said why not."""

    def __init__(self, feed: Feed, *, interval_s: float | None = 10.0) -> None:
        super().__init__()
        self._feed = feed
        self._interval_s = interval_s

    def compose(self) -> ComposeResult:
        """Lay the screen out from top to bottom."""
        yield Static(id="headline")
        yield Static(id="problem")
        yield FilterField(id="filter")
        yield JobTable(id="jobs")
        yield Static(id="empty")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Ask for the first time, and again and again."""
        self._main(FilterField).display = False
        table = self._main(JobTable)
        table.fit(self.size.width)
        table.focus()
        self._show()
        self.action_refresh()
        if self._interval_s is not None:
            self.set_interval(self._interval_s, self.action_refresh)
            self.set_interval(1.0, self._show_status)

    def on_resize(self, _event: Resize) -> None:
        """Bring the headline to its new length."""
        self._show_status()

    def on_top_app_answered(self) -> None:
        """Show what the feed knows now."""
        self._show()

    def on_input_changed(self) -> None:
        """Filter while the user types."""
        self._show()

    def on_input_submitted(self) -> None:
        """Go from the filter to the table."""
        self._main(JobTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job on which Enter was pressed, or that was clicked."""
        chosen = self._main(JobTable).job(event.row_key.value)
        if chosen is not None:
            self.push_screen(JobDetail(chosen))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only what makes sense now: keys of the main screen, and "show all" while there is a filter."""
        if action in ("refresh", "filter", "clear_filter") and len(self.screen_stack) > 1:
            return False
        if action == "filter":
            return not isinstance(self.focused, FilterField)
        if action == "clear_filter":
            return bool(self.query(FilterField)) and self._main(FilterField).display
        return super().check_action(action, parameters)

    def action_refresh(self) -> None:
        """Ask Slurm now, unless a question is under way."""
        self._feed.refresh_in_background(lambda: self.post_message(self.Answered()))

    def action_filter(self) -> None:
        """Open the filter."""
        field = self._main(FilterField)
        field.display = True
        field.focus()
        self.refresh_bindings()

    def action_clear_filter(self) -> None:
        """Close the filter and show all jobs."""
        field = self._main(FilterField)
        field.value = ""
        field.display = False
        self._show()
        self._main(JobTable).focus()
        self.refresh_bindings()

    def _show(self) -> None:
        """Show what is known: status, table, or a friendly word where there is nothing."""
        state, wanted = self._feed.state, self._main(FilterField).value
        table, empty = self._main(JobTable), self._main(Static, "#empty")
        jobs = ordered(matching(state.jobs, wanted))
        table.show(jobs)
        self._show_status()
        empty.display, table.display = not jobs, bool(jobs)
        if state.jobs:
            empty.update(Text(f"No job matches {wanted!r}.\nEsc shows all {len(state.jobs)} again."))
        elif state.taken_at is not None:
            empty.update(Text(f"{NO_JOBS}\n{NO_JOBS_HINT}"))
        else:
            empty.update(Text("" if state.problem else "Asking Slurm …"))

    def _show_status(self) -> None:
        """Show how many jobs there are, how old that is, and what is wrong."""
        state, age_s = self._feed.state, self._feed.age_s()
        waiting = "waiting for Slurm · " if self._feed.waiting_s() > _PATIENCE_S else ""
        right = Text(f" {waiting}{age_words(age_s)} ")
        left = Text.assemble((" opsk top ", "reverse bold"), "  ", headline(state, len(self._main(JobTable).jobs)))
        left.truncate(max(0, self.size.width - right.cell_len), overflow="ellipsis", pad=True)
        self._main(Static, "#headline").update(Text.assemble(left, right, no_wrap=True))
        banner = self._main(Static, "#problem")
        banner.display = bool(state.problem)
        banner.update(Text(problem_words(state, age_s)))

    def _main(self, kind: type[_Part], selector: str = "") -> _Part:
        """Return a part of the main screen, which another screen may cover."""
        return self.screen_stack[0].query_one(selector or kind.__name__, kind)
