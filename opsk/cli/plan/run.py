"""Runs a search with a progress bar after one second; Ctrl-C keeps the best result so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from opsk.planning.search.result import SearchResult
from opsk.text import format_duration

QUIET_S = 1.0
"""No bar is shown before."""
_BAR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRun:
    """The result of a search, its duration, and whether it was interrupted."""

    found: SearchResult
    seconds: float
    interrupted: bool


def run_search(search: Iterator[SearchResult]) -> SearchRun:
    """Run a search to its end, or until it is interrupted: then some plans are neither evaluated nor bounded.

    Raises
    ------
    KeyboardInterrupt
        It was interrupted before any plan was found that fits.
    """
    start, result, interrupted = time.monotonic(), SearchResult(), False
    try:
        with _open_bar(start) as show:
            for result in search:
                show(result)
    except KeyboardInterrupt:
        if not result.best:
            raise
        interrupted = True
    return SearchRun(found=result, seconds=time.monotonic() - start, interrupted=interrupted)


class _Bar:
    """A bar on stderr that appears after a second."""

    def __init__(self, start_s: float) -> None:
        self.start_s, console = start_s, Console(file=sys.stderr)
        self.progress = Progress(
            TextColumn("opsk:"),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[done]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task: TaskID | None = None

    def __call__(self, result: SearchResult) -> None:
        """Show the progress of a search."""
        if self.task is None:
            if time.monotonic() - self.start_s < QUIET_S:
                return
            self.progress.start()
            self.task = self.progress.add_task("", total=float(result.space or 1), done="")
        best = f", best {format_duration(result.best[0].step_s)} a step" if result.best else ""
        done = result.evaluated + result.bounded
        words = f"{done:,} of {result.space:,} plans{best}"
        self.progress.update(self.task, completed=float(done), total=float(result.space or 1), done=words)


@contextmanager
def _open_bar(start_s: float) -> Iterator[_Bar]:
    """Provide a progress bar, and remove it at the end."""
    bar = _Bar(start_s)
    try:
        yield bar
    finally:
        if bar.task is not None:
            bar.progress.stop()
