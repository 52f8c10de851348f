"""Shows the list of jobs, each with its speed against the prediction and the largest cause of lost time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from opsk.text import format_count
from opsk_tui.data.view import JobView
from opsk_tui.screens.job_sections import comparison, facts, findings, is_slow, job_columns, job_order
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, Section
from opsk_tui.widgets.lines import Lines
from opsk_tui.widgets.table import Table

_STATES = ("all", "running", "pending")


class JobsScreen(ViewScreen):
    """The list of jobs."""

    NAME = "jobs"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "MFU is measured/predicted; SPEED is a line of the latest steps, higher is faster.",
        "LOST TO is the largest cause with its share of the step, or Slurm's reason while a job waits.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse the order", show=False),
        Binding("t", "state", "State"),
        Binding("p", "partition", "Partition"),
        Binding("x", "slow", "Slow ones"),
        Binding("c", "job('cancel')", "Cancel the job: shows the command first", show=False),
        Binding("H", "job('hold')", "Requeue the job and hold it: shows the command first", show=False),
        Binding("R", "job('requeue')", "Requeue the job: shows the command first", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._state = "all"
        self._partition = ""
        self._only_slow = False

    def compose_body(self) -> ComposeResult:
        """Put the list beside the details of the job under the cursor."""
        with Horizontal():
            yield Table[JobView](
                job_columns(self.top.glyphs), lambda job: job.record.id, empty="No jobs are pending or running.",
                id="list",
            )  # fmt: skip
            yield Document(id="side")

    @property
    def table(self) -> Table[JobView]:
        """The list."""
        return self.query_one("#list", Table)

    @property
    def body(self) -> Lines:
        """The list."""
        return self.table

    def fill(self) -> None:
        """Show the selected jobs."""
        jobs = [job for job in self.known.view.jobs if self._is_chosen(job)]
        self.table.empty = self.why_empty("No jobs are pending or running.")
        self.table.show(sorted(jobs, key=job_order))

    def _is_chosen(self, job: JobView) -> bool:
        if self._only_slow and not is_slow(job):
            return False
        if self._partition and self._partition not in job.record.partition.split(","):
            return False
        return self._state == "all" or job.record.is_active == (self._state == "running")

    def summary(self) -> Sequence[Cell]:
        """Return the counts."""
        jobs = self.known.view.jobs
        running = [job for job in jobs if job.record.is_active]
        slow = sum(is_slow(job) for job in running)
        shown = len(self.table.rows)
        cells: list[Cell] = [
            (f"{shown} of {len(jobs)} jobs" if shown != len(jobs) else format_count(len(jobs), "job"), "strong"),
            (f"  {len(running)} running on {sum(job.record.gpus for job in running):,} GPUs", "text"),
            (f"  {sum(job.record.state == 'PENDING' for job in jobs)} pending", "text"),
            (f"  {slow} slower than predicted", "watch" if slow else "dim"),
        ]
        chosen = [self._state if self._state != "all" else "", safe(self._partition), "slow" * self._only_slow]
        cells += [(f"  {words}", "watch") for words in chosen if words]
        return cells

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return the details of the job under the cursor."""
        job = self.table.current
        if job is None:
            return ()
        finding_text = job.losses.findings[0].text if job.losses is not None and job.losses.findings else ""
        record = job.record
        first: list[Cell] = [
            (f"{safe(record.label)} ", "strong"), (safe(record.name), "text"),
            (f"  {safe(record.user)}  {record.state.lower()}  {format_count(record.node_count, 'node')}", "dim"),
            (f"  {safe(record.reason or '')}", "watch"),
        ]  # fmt: skip
        return first, [(safe(finding_text), "text")]

    def side(self) -> Sequence[Section]:
        """Return more details where there is room."""
        job = self.table.current
        return () if job is None else [facts(job), comparison(job), findings(job, self.top.glyphs, 40)]

    def apply_filter(self, words: str) -> None:
        """Show only jobs with these words."""
        self.table.words = words
        self.table.rearrange()

    def clear_filters(self) -> bool:
        """Show every job again."""
        was_filtered = self._state != "all" or bool(self._partition) or self._only_slow
        self._state, self._partition, self._only_slow = "all", "", False
        if was_filtered:
            self.show()
        return was_filtered

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.table.sort_next()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.sort_by(self.table.sort_key)

    def action_state(self) -> None:
        """Show jobs in other states."""
        self._state = _STATES[(_STATES.index(self._state) + 1) % len(_STATES)]
        self.show()

    def action_partition(self) -> None:
        """Show the jobs of the next partition alone, and after the last one all."""
        names = ["", *sorted({name for job in self.known.view.jobs for name in job.record.partition.split(",")})]
        index = names.index(self._partition) if self._partition in names else 0
        self._partition = names[(index + 1) % len(names)]
        self.show()

    def action_slow(self) -> None:
        """Show only jobs that are slower than predicted, or all."""
        self._only_slow = not self._only_slow
        self.show()

    def action_job(self, what: str) -> None:
        """Ask whether to act on the job under the cursor."""
        if self.table.current is not None:
            self.top.ask_job(what, self.table.current)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the job under the cursor."""
        if event.lines is self.table and self.table.current is not None:
            self.top.open_job(self.table.current.record.id)
