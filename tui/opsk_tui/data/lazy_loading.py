"""Loads the data sources and the planner in a thread, so that the screen opens before they are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

from opsk.slurm.commands.remap_commands import Command
from opsk_tui.data.feed_port import Actions, Feed, JobDetails, Outcome, Proposal, Undoing
from opsk_tui.data.view import ClusterView


class LateActions:
    """Implements `feed_port.Actions` by `SlurmActions` of `opsk_tui.data.actions`, which loads in half a second."""

    def __init__(self) -> None:
        self._actions: Actions | None = None
        self._lock = Lock()

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        """Return the options for a job after events."""
        return await (await asyncio.to_thread(self._load)).propose(failed, job_id, avoid)

    async def apply(self, proposal: Proposal, choice: int, report: Callable[[str], None]) -> Outcome:
        """Execute one choice of a proposal."""
        return await (await asyncio.to_thread(self._load)).apply(proposal, choice, report)

    async def undoing(self, journal: str) -> Undoing:
        """Return the commands that would undo an applied option."""
        return await (await asyncio.to_thread(self._load)).undoing(journal)

    async def undo(self, journal: str, undoing: Undoing, report: Callable[[str], None]) -> Outcome:
        """Undo an applied option."""
        return await (await asyncio.to_thread(self._load)).undo(journal, undoing, report)

    async def run(self, commands: Sequence[Command], report: Callable[[str], None]) -> Outcome:
        """Run single commands."""
        return await (await asyncio.to_thread(self._load)).run(commands, report)

    def _load(self) -> Actions:
        with self._lock:
            if self._actions is None:
                from opsk_tui.data.actions import SlurmActions

                self._actions = SlurmActions()
            return self._actions


class LateFeed:
    """Implements `opsk_tui.data.feed_port.Feed` with another one.

    Parameters
    ----------
    make
        Creates it; may load modules, and may query where the sources are.
    """

    def __init__(self, make: Callable[[], Feed]) -> None:
        self._make = make
        self._feed: Feed | None = None
        self._lock = asyncio.Lock()

    async def _load(self) -> Feed:
        async with self._lock:
            if self._feed is None:
                self._feed = await asyncio.to_thread(self._make)
            return self._feed

    async def views(self) -> AsyncIterator[ClusterView]:
        """Yield what the feed yields."""
        feed = await self._load()
        async for view in feed.views():
            yield view

    def ask_now(self) -> None:
        """Query again, once there is a feed."""
        if self._feed is not None:
            self._feed.ask_now()

    async def job_details(self, job_id: int) -> JobDetails:
        """Return the details of one job."""
        return await (await self._load()).job_details(job_id)

    async def report_text(self, path: str) -> str:
        """Return the text of a report."""
        return await (await self._load()).report_text(path)

    async def accuracy(self) -> Mapping[str, Any]:
        """Return how good predictions have been."""
        return await (await self._load()).accuracy()

    async def close(self) -> None:
        """Stop the sources."""
        close = getattr(self._feed, "close", None)
        if close is not None:
            await close()
