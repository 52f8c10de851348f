"""Defines what screens and commands use of the application, which implements it in `opsk_tui.app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from textual.worker import Worker

    from opsk.slurm.commands.remap_commands import Command
    from opsk_tui.data.feed_port import Actions, Feed
    from opsk_tui.data.view import JobView, ViewIndex
    from opsk_tui.text import Glyphs


class Top(Protocol):
    """The application as its screens see it.

    Parameters
    ----------
    feed, actions
        Delivers the cluster, and changes it; actions are ``None`` on a read-only screen.
    known
        The last view.
    chosen_job
        The job of the screen ``job``.
    details_every_s
        Interval of queries for the details of the shown job [s].
    """

    feed: Feed
    actions: Actions | None
    clock: Callable[[], float]
    glyphs: Glyphs
    known: ViewIndex
    chosen_job: int | None
    details_every_s: float

    def counts(self, name: str) -> str:
        """Return the count next to the name of a tab."""
        ...

    def worker_failed(self, event: Worker.StateChanged) -> str:
        """Show why a background worker has failed, and return the message; empty where it has not."""
        ...

    def open_job(self, number: int) -> None:
        """Show one job."""
        ...

    def ask_job(self, what: str, job: JobView) -> None:
        """Ask whether to cancel, hold or requeue a job."""
        ...

    def ask_and_run(self, title: str, commands: Sequence[Command], owner: str = "") -> None:
        """Show commands, ask for confirmation, and run those that the caller may."""
        ...

    def action_go_back(self) -> None:
        """Go to the previous screen."""
        ...
