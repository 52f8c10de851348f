"""How is a search run at a terminal: with a bar past one second, and ended by Ctrl-C with the best so far?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from opsk.planning.search.found import Found
from opsk.text import format_duration

QUIET_S = 1.0
"""A search that ends before needs no bar."""
_BAR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a search found, in how much time, and whether it was interrupted."""

    found: Found
    seconds: float
    interrupted: bool


def run(search: Iterator[Found]) -> Run:
    """Run a search to its end, or until it is interrupted: then some plans are neither evaluated nor bounded.

    Raises
    ------
    KeyboardInterrupt
        It was interrupted before any plan was found that fits.
    """
    start, found, interrupted = time.monotonic(), Found(), False
    try:
        with _bar(start) as show:
            for found in search:
                show(found)
    except KeyboardInterrupt:
        if not found.best:
            raise
        interrupted = True
    return Run(found=found, seconds=time.monotonic() - start, interrupted=interrupted)


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

    def __call__(self, found: Found) -> None:
        """Show how far a search is."""
        if self.task is None:
            if time.monotonic() - self.start_s < QUIET_S:
                return
            self.progress.start()
            self.task = self.progress.add_task("", total=float(found.space or 1), done="")
        best = f", best {format_duration(found.best[0].step_s)} a step" if found.best else ""
        done = found.evaluated + found.bounded
        words = f"{done:,} of {found.space:,} plans{best}"
        self.progress.update(self.task, completed=float(done), total=float(found.space or 1), done=words)


@contextmanager
def _bar(start_s: float) -> Iterator[_Bar]:
    """Give a bar, and take it away in the end."""
    bar = _Bar(start_s)
    try:
        yield bar
    finally:
        if bar.task is not None:
            bar.progress.stop()
