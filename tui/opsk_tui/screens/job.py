"""Shows one job: speed against prediction, every rank, memory, causes of lost time, advice, and the end of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from opsk.errors import OpskError
from opsk_tui.data.feed_port import JobDetails
from opsk_tui.data.view import JobView, Metric
from opsk_tui.screens import job_sections
from opsk_tui.screens.job_sections import expected_mfu, job_order, measured_mfu, speed_key
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import METRIC_TITLES, percent, safe
from opsk_tui.widgets.canvas import Cell
from opsk_tui.widgets.document import Document, Section
from opsk_tui.widgets.lines import Lines

_SIDE_BY_SIDE = 120


class JobScreen(ViewScreen):
    """One job; the one that was opened, else the first that runs."""

    NAME = "job"
    ABOUT: ClassVar[tuple[str, ...]] = (
        "Tab goes to the next section (in a wide window to the other half).",
        "! marks ranks whose own step takes 10 % longer than the median of all.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric(1)", "Metric"),
        Binding("M", "metric(-1)", "Previous metric", show=False),
        Binding("comma", "another(-1)", "Previous job", key_display=","),
        Binding("full_stop", "another(1)", "Next job", key_display="."),
        Binding("e", "log_end", "End of log"),
        Binding("i", "next_section", "Next section"),
        Binding("c", "job('cancel')", "Cancel the job: shows the command first", show=False),
        Binding("H", "job('hold')", "Requeue the job and hold it: shows the command first", show=False),
        Binding("R", "job('requeue')", "Requeue the job: shows the command first", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._details: JobDetails | None = None
        self._pending_job: int | None = None
        self._problem = ""
        self._metric = Metric.UTILISATION

    def compose_body(self) -> ComposeResult:
        """Put numbers beside ranks and log; below each other where the window is narrow."""
        with Horizontal():
            yield Document(empty="No job is chosen: Enter on a job opens it here.", id="facts")
            yield Document(empty="Asking …", id="more")

    @property
    def body(self) -> Lines:
        """The part with the focus, else the first."""
        if self.is_mounted and isinstance(self.focused, Document):
            return self.focused
        return self._left

    @property
    def _left(self) -> Document:
        return self.query_one("#facts", Document)

    @property
    def _right(self) -> Document:
        return self.query_one("#more", Document)

    @property
    def job(self) -> JobView | None:
        """The job that is shown."""
        known = self.known
        chosen = self.top.chosen_job
        if chosen in known.jobs:
            return known.jobs[chosen]
        return min(known.view.jobs, key=job_order, default=None) if chosen is None else None

    def fill(self) -> None:
        """Show the job, and query its details."""
        job = self.job
        is_wide = self.app.size.width >= _SIDE_BY_SIDE
        self._right.display = is_wide and job is not None
        if job is None:
            self._left.show([])
            return
        if self._details is not None and self._details.job_id != job.record.id:
            self._details = None
        self.ask()
        width = (self.app.size.width // 2 if is_wide else self.app.size.width) - 3
        first, second = self._sections(job, width)
        self._left.show(first if is_wide else [*first, *second])
        if is_wide:
            self._right.show(second)

    def _sections(self, job: JobView, width: int) -> tuple[list[Section], list[Section]]:
        details, glyph_set = self._details, self.top.glyphs
        ranks = details.ranks if details is not None else None
        parts = details.memory_parts_bytes if details is not None else {}
        return (
            [
                job_sections.facts(job), job_sections.comparison(job), job_sections.findings(job, glyph_set, width),
                job_sections.history(job, glyph_set, width), job_sections.memory(job, parts, ranks, glyph_set),
            ],
            [
                job_sections.problems(details), job_sections.rank_matrix(ranks, self._metric, glyph_set),
                job_sections.advice_text(details), job_sections.log_tail(details),
            ],
        )  # fmt: skip

    def ask(self) -> None:
        """Query the details of the job, unless that is pending."""
        job = self.job
        if job is not None and self._pending_job != job.record.id:
            self._pending_job = job.record.id
            self.run_worker(self._ask_details(job.record.id), group="details", exclusive=True, exit_on_error=False)

    async def _ask_details(self, number: int) -> None:
        try:
            self._details = await self.top.feed.job_details(number)
            self._problem = ""
        except OpskError as error:
            self._problem = error.message
        finally:
            self.set_timer(self.top.details_every_s, self._forget_asked)
        if self.is_attached:
            self.show()

    def _forget_asked(self) -> None:
        """Query again while this screen is the active one."""
        self._pending_job = None
        if self.is_current:
            self.ask()

    def summary(self) -> Sequence[Cell]:
        """Return which job is shown."""
        job = self.job
        if job is None:
            number = self.top.chosen_job
            return [(f"job {number} is not in the queue any more" if number else "", "watch")]
        return [
            (f"{safe(job.record.label)} ", "strong"), (safe(job.record.name), "text"),
            (f"  {safe(job.record.user)}  MFU ", "dim"), (percent(measured_mfu(job)), speed_key(job)),
            (f" of {percent(expected_mfu(job))}", "dim"), (f"  ranks by {METRIC_TITLES[self._metric]}", "dim"),
        ]  # fmt: skip

    def detail(self) -> Sequence[Sequence[Cell]]:
        """Return why there are no details."""
        return ([(safe(self._problem), "watch")],) if self._problem else ()

    def apply_filter(self, words: str) -> None:
        """Show only lines with these words."""
        for part in (self._left, self._right):
            part.words = words
            part.rearrange()

    def action_metric(self, step: int) -> None:
        """Colour ranks by the next metric."""
        metrics = list(Metric)
        self._metric = metrics[(metrics.index(self._metric) + step) % len(metrics)]
        self.show()

    def action_another(self, step: int) -> None:
        """Show the next job of the list."""
        jobs = sorted(self.known.view.jobs, key=job_order)
        if jobs:
            numbers = [job.record.id for job in jobs]
            current = self.job
            index = numbers.index(current.record.id) if current is not None else -1
            self.top.chosen_job = numbers[(index + step) % len(numbers)]
            self._pending_job = None
            self._left.top = self._right.top = 0
            self.show()

    def action_log_end(self) -> None:
        """Go to the last line of the log."""
        (self._right if self._right.display else self._left).to_end()

    def action_next_section(self) -> None:
        """Go to the next section."""
        part = self.body
        if isinstance(part, Document):
            part.next_section()

    def action_job(self, what: str) -> None:
        """Ask whether to act on the job."""
        if self.job is not None:
            self.top.ask_job(what, self.job)
