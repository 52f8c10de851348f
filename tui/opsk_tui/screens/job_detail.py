"""All that is known of one job: what opsk predicted for it, and what Slurm tells of it."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from opsk.cli.document import harmless
from opsk_tui.data import JobView
from opsk_tui.words import advice_lines, record_lines


class JobDetail(ModalScreen[None]):
    """One job in full.

    Parameters
    ----------
    job
        The job as it was known when the screen was opened.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("q", "dismiss(None)", "Back", show=False),
        Binding("enter", "dismiss(None)", "Back", show=False),
        Binding("j", "scroll('down')", "Down", show=False),
        Binding("k", "scroll('up')", "Up", show=False),
    ]

    def __init__(self, job: JobView) -> None:
        super().__init__()
        self._job = job

    def compose(self) -> ComposeResult:
        """Show the prediction first, then the record."""
        record = self._job.record
        with VerticalScroll(id="detail"):
            yield Static(Text(f"Job {harmless(record.label)}  {harmless(record.name)}", style="bold"), id="title")
            yield Static(Text("Predicted when it was submitted"), classes="section")
            yield Static(_pairs(advice_lines(self._job)))
            yield Static(Text("What Slurm tells"), classes="section")
            yield Static(_pairs(record_lines(record)))
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def action_scroll(self, direction: str) -> None:
        """Scroll a line, for hands that know vi."""
        area = self.query_one(VerticalScroll)
        area.scroll_down(animate=False) if direction == "down" else area.scroll_up(animate=False)


def _pairs(lines: list[tuple[str, str]]) -> Table:
    """Return names and values as two columns; values are plain text whatever stands in them."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(Text(name), Text(value))
    return table
