"""Shows failure events, the jobs that they affect, and the possible remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from opsk.diagnosis.events.observations import Event, Severity
from opsk.slurm.commands import remap_commands
from opsk.text import format_count
from opsk_tui.screens.options import OptionsScreen
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import age, ago, host_list, safe, wrap_text
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, Line, Section, section
from opsk_tui.widgets.lines import Lines
from opsk_tui.widgets.table import Column, Table

_MOST_NODES = 32
_ORDER = {Severity.FATAL: 0, Severity.DEGRADED: 1, Severity.WATCH: 2}
_KEYS = {Severity.FATAL: "sick", Severity.DEGRADED: "watch", Severity.WATCH: "dim"}


class FailuresScreen(ViewScreen):
    """The list of events, above the details of the one under the cursor."""

    NAME = "failures"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "Enter shows the options for an affected job, with speed, downtime and commands.",
        "No command runs before you have seen and confirmed it.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "options", "Options"),
        Binding("w", "next_job", "Next affected job"),
        Binding("x", "over", "Show resolved"),
        Binding("u", "take_back", "Resume nodes that are healthy again: shows the command first", show=False),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse the order", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._with_over = False
        self._job_index = 0

    def compose_body(self) -> ComposeResult:
        """Put list and text into one split."""
        columns: tuple[Column[Event], ...] = (
            Column(key="severity", title="SEVERITY", width=10, rank=0, cell=self._severity,
                          order=lambda event: _ORDER[event.severity]),
            Column(key="part", title="PART", width=5, rank=2, cell=lambda event: (event.part.value, "text"),
                          order=lambda event: event.part.value),
            Column(key="failed", title="WHAT", width=18, rank=0,
                          cell=lambda event: (safe(event.failed), "strong"), order=lambda event: event.failed, grows=1),
            Column(key="age", title="SINCE", width=6, rank=0, right=True, cell=self._age,
                          order=lambda event: -event.first_seen_s),
            Column(key="count", title="×", width=4, rank=3, right=True,
                          cell=lambda event: (str(event.count), "dim"), order=lambda event: event.count,
                          descending=True),
            Column(key="jobs", title="JOBS", width=9, rank=0, cell=_format_jobs, order=lambda event: len(event.jobs),
                          descending=True),
            Column(key="text", title="OBSERVED", width=20, rank=1, cell=lambda event: (safe(event.text), "text"),
                          grows=4),
        )  # fmt: skip
        with Container(id="split"):
            yield Table[Event](columns, lambda event: event.key, empty="Nothing has failed.", id="list")
            yield Document(id="text")

    def _fit(self) -> None:
        self.query_one("#split").set_class(self.app.size.width >= 160, "wide")

    def _severity(self, event: Event) -> Cell:
        if event.is_over:
            return f"{self.top.glyphs.ok} over", "ok"
        return event.severity.value, _KEYS[event.severity]

    def _age(self, event: Event) -> Cell:
        since = age(max(0.0, self.top.clock() - event.first_seen_s))
        return f"> {since}" if event.was_there else since, "text"

    @property
    def table(self) -> Table[Event]:
        """The list."""
        return self.query_one("#list", Table)

    @property
    def body(self) -> Lines:
        """The list."""
        return self.table

    def fill(self) -> None:
        """Show events, the worst and newest first."""
        events = [event for event in self.known.view.events if self._with_over or not event.is_over]
        self.table.show(sorted(events, key=_urgency))
        is_wide = self.query_one("#split").has_class("wide")
        high = max(4, min(len(events) + 2, self.app.size.height // 2))
        self.table.styles.height = "1fr" if is_wide else high
        self.query_one("#text", Document).show(self.event_sections())

    def event_sections(self) -> list[Section]:
        """Return the details of the event under the cursor."""
        event = self.table.current
        if event is None:
            return [self._well_again()]
        now = self.top.clock()
        began = " (when this screen began, or before)" if event.was_there else ""
        width = max(30, self.query_one("#text").size.width - 4)
        lines: list[Line] = [[(part, "text")] for part in wrap_text(safe(event.text), width)]
        lines.append([
            (f"seen {format_count(event.count, 'time')}, first {ago(now - event.first_seen_s)}{began}, "
             f"last {ago(now - event.last_seen_s)}", "dim")
        ])  # fmt: skip
        if event.nodes:
            lines.append([("nodes ", "dim"), (host_list(event.nodes), "text")])
        remedy_lines: list[Line] = (
            [[(part, "text")] for part in wrap_text(safe(event.action), width)] if event.action else []
        )
        if event.source:
            remedy_lines += [[(part, "dim")] for part in wrap_text(safe(f"after {event.source}"), width)]
        jobs: list[Line] = []
        for index, number in enumerate(event.jobs):
            job = self.known.jobs.get(number)
            words = f"{safe(job.record.label)} {safe(job.record.name)}  {safe(job.record.user)}" if job else str(number)
            is_chosen = index == self._job_index % len(event.jobs)
            jobs.append([("→ " if is_chosen else "  ", "accent"), (words, "strong" if is_chosen else "text")])
        if event.jobs:
            jobs.append([("Enter: what can be done for this job", "dim")])
        return [
            section(safe(event.failed), lines), section("Affected jobs", jobs), section("What to do", remedy_lines),
            self._well_again(),
        ]  # fmt: skip

    def _well_again(self) -> Section:
        """Return the nodes that can be resumed."""
        by_name = {node.name: node for node in self.known.view.nodes}
        lines: list[Line] = [
            [(f"{safe(name)}  ", "strong"), (safe(by_name[name].reason or ""), "dim")] for name in self.known.recovered
        ]
        more: list[Line] = [[("u: take them back (it shows the command first)", "dim")]] if lines else []
        return section("Drained by a remap and healthy again", [*lines[:_MOST_NODES], *more])

    def summary(self) -> Sequence[Cell]:
        """Return the counts."""
        events = [event for event in self.known.view.events if not event.is_over]
        over = len(self.known.view.events) - len(events)
        fatal = sum(event.severity is Severity.FATAL for event in events)
        jobs = {number for event in events for number in event.jobs}
        return [
            (format_count(len(events), "event"), "strong"), ("  ", "text"),
            (f"{fatal} fatal", "bad" if fatal else "dim"),
            (f"  {format_count(len(jobs), 'job')} hit", "watch" if jobs else "dim"),
            (f"  {over} over{' (shown)' if self._with_over else ', x shows them'}" if over else "", "dim"),
        ]  # fmt: skip

    def apply_filter(self, words: str) -> None:
        """Show only events with these words."""
        self.table.words = words
        self.table.rearrange()

    def cursor_moved(self, lines: Lines) -> None:
        """Show the details of another event."""
        if lines is self.table:
            self._job_index = 0
            self.query_one("#text", Document).show(self.event_sections())
            super().cursor_moved(lines)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Show the options."""
        if event.lines is self.table:
            self.action_options()

    def clear_filters(self) -> bool:
        """Hide events that are over."""
        was_shown, self._with_over = self._with_over, False
        if was_shown:
            self.show()
        return was_shown

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.table.sort_next()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.sort_by(self.table.sort_key)

    def action_over(self) -> None:
        """Show events that are over as well, or hide them."""
        self._with_over = not self._with_over
        self.show()

    def action_take_back(self) -> None:
        """Ask whether to resume the recovered nodes."""
        names = self.known.recovered[:_MOST_NODES]
        if not names:
            self.notify("no node drained by a remap is healthy again", timeout=3)
            return
        self.top.ask_and_run(f"take {host_list(names)} back", [remap_commands.resume(list(names))])

    def action_next_job(self) -> None:
        """Choose another job of the event."""
        self._job_index += 1
        self.query_one("#text", Document).show(self.event_sections())

    def action_options(self) -> None:
        """Show the remap options for a job that the event affects."""
        event = self.table.current
        if event is None:
            return
        if not event.jobs:
            self.notify("no job uses it: nothing to move", timeout=3)
        elif self.top.actions is None:
            self.notify("this screen is read-only: `opsk remap` computes the options", timeout=4)
        else:
            number = event.jobs[self._job_index % len(event.jobs)]
            self.app.push_screen(OptionsScreen(event, number))


def _urgency(event: Event) -> tuple[bool, int, bool, float]:
    """Return the sort key that puts the worst first, then what affects a job, then the newest."""
    return event.is_over, _ORDER[event.severity], not event.jobs, -event.first_seen_s


def _format_jobs(event: Event) -> Cell:
    if not event.jobs:
        return "–", "dim"
    more = f" +{len(event.jobs) - 1}" if len(event.jobs) > 1 else ""
    return f"{event.jobs[0]}{more}", "accent"
