"""Defers loading the data sources to a thread, so that the screen opens before they are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from opsk_tui.data.feed_port import Feed, JobDetails
from opsk_tui.data.view import ClusterView


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

    async def close(self) -> None:
        """Stop the sources."""
        close = getattr(self._feed, "close", None)
        if close is not None:
            await close()
