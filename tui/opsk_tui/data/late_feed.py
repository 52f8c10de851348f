"""How is the screen there before what it sees with is loaded? A feed that a thread makes when it is first asked."""

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
        Makes it; may load whatever it needs, and may ask where things are.
    """

    def __init__(self, make: Callable[[], Feed]) -> None:
        self._make = make
        self._feed: Feed | None = None
        self._lock = asyncio.Lock()

    async def _made(self) -> Feed:
        async with self._lock:
            if self._feed is None:
                self._feed = await asyncio.to_thread(self._make)
            return self._feed

    async def views(self) -> AsyncIterator[ClusterView]:
        """Yield what the feed yields."""
        feed = await self._made()
        async for view in feed.views():
            yield view

    def ask_now(self) -> None:
        """Ask again, once there is anybody to ask."""
        if self._feed is not None:
            self._feed.ask_now()

    async def job_details(self, job_id: int) -> JobDetails:
        """Return what is known of one job."""
        return await (await self._made()).job_details(job_id)

    async def report_text(self, path: str) -> str:
        """Return the text of a report."""
        return await (await self._made()).report_text(path)

    async def close(self) -> None:
        """Ask nobody any more."""
        close = getattr(self._feed, "close", None)
        if close is not None:
            await close()
