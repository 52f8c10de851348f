"""Iterates over networks with a progress bar after one second; Ctrl-C keeps the results so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Entry = TypeVar("Entry")

QUIET_S = 1.0
"""No bar is shown before."""


class ProgressIterator:
    """Iterates over sequences; ``interrupted`` is set when Ctrl-C ends one of them."""

    def __init__(self, what: str) -> None:
        """``what`` names the counted entries: ``networks``."""
        self.what = what
        self.interrupted = False

    def __call__(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries, with a progress bar after one second."""
        start = time.monotonic()
        bar: Progress | None = None
        try:
            for number, entry in enumerate(entries):
                if bar is None and time.monotonic() - start > QUIET_S:
                    bar = self._bar(len(entries))
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=number)
                yield entry
        finally:
            if bar is not None:
                bar.stop()

    def _bar(self, total: int) -> Progress:
        bar = Progress(
            TextColumn(f"opsk: {self.what}"),
            BarColumn(),
            TextColumn("{task.completed:g} of {task.total:g}"),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        bar.add_task("", total=total)
        bar.start()
        return bar

    def collect(self, results: Iterator[Entry]) -> list[Entry]:
        """Return all results, or those until Ctrl-C.

        Raises
        ------
        KeyboardInterrupt
            There is no result yet.
        """
        entries: list[Entry] = []
        try:
            for entry in results:
                entries.append(entry)  # noqa: PERF402 -- what was found before Ctrl-C must stay
        except KeyboardInterrupt:
            if not entries:
                raise
            self.interrupted = True
        return entries
