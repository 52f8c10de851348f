"""How does a test play with the screens? On a made-up cluster that stands still, key by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache

from textual.pilot import Pilot

from opsk_tui.app import TopApp
from opsk_tui.data.view import ClusterView
from opsk_tui.text import UNICODE, Glyphs
from opsk_tui.widgets.canvas import Canvas
from tests.fakes.big_cluster import NOW_S, BigCluster, BigFeed
from tests.fakes.noted_actions import NotedActions
from tests.fakes.screen_text import text_lines

Script = Callable[[TopApp, Pilot[None]], Awaitable[None]]


@lru_cache
def cluster() -> BigCluster:
    return BigCluster(nodes=300, jobs=60)


class Still(BigFeed):
    """Delivers the views that it is given, one after the other, whenever it is pushed."""

    def __init__(self, *views: ClusterView) -> None:
        super().__init__(cluster())
        self._views = views

    async def views(self) -> AsyncIterator[ClusterView]:
        for view in self._views:
            yield view
            await self._more.wait()
            self._more.clear()


def play(
    script: Script, *, feed: BigFeed | None = None, actions: NotedActions | None = None,
    size: tuple[int, int] = (120, 40), glyphs: Glyphs = UNICODE, theme: str | None = None, user: str = "ada",
) -> None:  # fmt: skip
    async def run() -> None:
        app = TopApp(
            feed or BigFeed(cluster()), actions=actions, clock=lambda: NOW_S + 4, user=user, glyphs=glyphs, theme=theme
        )
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await script(app, pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(4):
        await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def text(app: TopApp) -> str:
    """Return all that stands on the screen."""
    return "\n".join(line for canvas in app.screen.query(Canvas) for line in text_lines(canvas) if canvas.display)
