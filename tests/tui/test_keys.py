"""Does every key that a screen's help shows do something on that screen, and what it says?

A key has an effect when anything that can be seen differs afterwards: lines, focus, screen, what the feed was asked.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from opsk_tui.app import SCREENS, TopApp
from opsk_tui.screens.view_screen import HelpScreen, ViewScreen, key_words
from opsk_tui.text import UNICODE
from opsk_tui.widgets.canvas import Canvas
from opsk_tui.widgets.document import Document
from opsk_tui.widgets.grid_map import GridMap
from opsk_tui.widgets.table import Table
from tests.fakes.big_cluster import NOW_S, BigCluster, BigFeed
from tests.fakes.noted_actions import NotedActions
from tests.fakes.screen_text import text_lines

SIZE = (150, 30)
WORDS = {"cluster": "gpu", "jobs": "r", "job": "iter", "fabric": "gpu", "failures": "l", "reports": "o"}
BACK = ("up", "k", "left", "h", "pageup", "ctrl+b", "home", "g")
FIRST: dict[tuple[str, str], list[str]] = {
    ("jobs", "S"): ["s"], ("failures", "S"): ["s"], ("reports", "S"): ["s"], ("reports", "b"): ["enter"],
    ("failures", "w"): ["down"], ("job", "left"): ["right"], ("job", "h"): ["right"],
}  # fmt: skip
"""Keys that lead to where a key has something to do."""
NOTHING_TO_DO = {
    ("reports", "tab"), ("reports", "shift+tab"), *((name, str(place)) for place, name in enumerate(SCREENS, start=1))
}  # fmt: skip
"""One part alone has no other part; a screen is there already."""
BODIES = {"cluster": GridMap, "jobs": Table, "job": Document, "fabric": GridMap, "failures": Table, "reports": Table}


@lru_cache
def cluster() -> BigCluster:
    return BigCluster(nodes=300, jobs=60)


def app_of() -> TopApp:
    return TopApp(
        BigFeed(cluster()), actions=NotedActions(cluster()), clock=lambda: NOW_S + 4, user="ada", glyphs=UNICODE
    )


def bindings_of(name: str) -> list[Binding]:
    """Return every binding that the help of a screen shows."""
    screen = TopApp.MODES[name]
    lists = [vars(screen)["BINDINGS"], ViewScreen.BINDINGS, TopApp.BINDINGS, BODIES[name].BINDINGS]
    return [item for items in lists for item in items if isinstance(item, Binding)]


KEYS = sorted({(name, key.strip()) for name in SCREENS for item in bindings_of(name) for key in item.key.split(",")})


def seen(app: TopApp) -> tuple[object, ...]:
    """Return all that can be seen or was asked."""
    lines = tuple(
        tuple((part.text, str(part.style)) for line in canvas._lines for part in line)
        for screen in app.screen_stack
        for canvas in screen.query(Canvas)
    )
    focused = app.focused.id if app.focused is not None else None
    feed = app.feed
    assert isinstance(feed, BigFeed)
    asked = (feed.asked, len(app._notifications), app._exit, app.theme)
    return lines, app.current_mode, len(app.screen_stack), focused, asked


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(3):
        await pilot.pause()


def place(app: TopApp) -> tuple[object, ...]:
    """Return what a key may leave changed so that others have nothing to do: then they get an app of their own."""
    focused = app.focused.id if app.focused is not None else None
    return app.current_mode, len(app.screen_stack), focused, app.theme, app._exit


async def has_effect(app: TopApp, pilot: Pilot[None], name: str, key: str) -> bool:
    first = FIRST.get((name, key), [])
    if key in BACK and not first:
        first = ["end", "right"] if name in ("cluster", "fabric") else ["end"]
    if key in ("n", "N"):
        first = ["f", *WORDS[name], "enter"]
    if key == "escape":
        first = ["slash", *"zz", "enter"]
    await pilot.press(*first)
    await settled(pilot)
    before = seen(app)
    await pilot.press(key)
    await settled(pilot)
    return seen(app) != before


async def go_back(app: TopApp, pilot: Pilot[None], name: str, start: tuple[object, ...]) -> None:
    """Try to be on the screen again, at its top."""
    if app._exit:
        return
    if app.current_mode == name and place(app) != start:
        await pilot.press("escape")
    if app.current_mode != name:
        await pilot.press(str(SCREENS.index(name) + 1))
    if place(app) == start:
        await pilot.press("home")


async def keys_without_effect(name: str, keys: list[str]) -> list[str]:
    """Press keys in one app while it stays on the screen; one that does nothing is pressed again in a new app."""
    waiting, without = list(keys), list[str]()
    while waiting:
        app = app_of()
        async with app.run_test(size=SIZE) as pilot:
            app.chosen_job = 410_000
            await pilot.press(str(SCREENS.index(name) + 1))
            await settled(pilot)
            start, fresh = place(app), True
            while waiting and place(app) == start:
                key = waiting[0]
                if not await has_effect(app, pilot, name, key):
                    if not fresh:
                        break
                    without.append(key)
                waiting.pop(0)
                fresh = False
                await go_back(app, pilot, name, start)
    return without


@pytest.mark.parametrize("name", SCREENS)
def test_every_key_of_the_help_has_an_effect(name: str) -> None:
    keys = [key for screen, key in KEYS if screen == name and (screen, key) not in NOTHING_TO_DO]
    assert asyncio.run(keys_without_effect(name, keys)) == []


def test_a_key_that_does_nothing_is_noticed() -> None:
    assert asyncio.run(keys_without_effect("reports", ["down", "6", "end", "f12", "down"])) == ["6", "f12"]


@pytest.mark.parametrize("name", SCREENS)
def test_help_tells_every_key_and_nothing_else_closes_it(name: str) -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=(120, 200)) as pilot:
            await pilot.press(str(SCREENS.index(name) + 1), "question_mark")
            await settled(pilot)
            assert isinstance(app.screen, HelpScreen)
            text = "\n".join(text_lines(app.screen.query_one(Document)))
            for binding in bindings_of(name):
                assert key_words(binding) in text
                assert binding.description in text
            await pilot.press("x")
            assert isinstance(app.screen, HelpScreen)
            await pilot.press("escape")
            assert not isinstance(app.screen, HelpScreen)

    asyncio.run(run())


def test_the_palette_goes_to_screens_and_jobs() -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=SIZE) as pilot:
            await pilot.press("ctrl+p")
            await settled(pilot)
            await pilot.press(*"go to fabric")
            await pilot.pause(0.3)
            await pilot.press("enter")
            await pilot.pause(0.3)
            assert app.current_mode == "fabric"
            await pilot.press("ctrl+p")
            await settled(pilot)
            await pilot.press(*"410007")
            await pilot.pause(0.3)
            await pilot.press("enter")
            await pilot.pause(0.3)
            assert (app.current_mode, app.chosen_job) == ("job", 410_007)

    asyncio.run(run())
