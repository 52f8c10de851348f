"""How does a screen become an SVG that is the same on every machine and asks nobody for fonts?"""

from __future__ import annotations

import re

from opsk_tui.app import SCREENS, TopApp
from opsk_tui.text import UNICODE
from tests.fakes.big_cluster import NOW_S, BigCluster, BigFeed
from tests.fakes.noted_actions import NotedActions

MORE = ("accuracy", "options", "confirm", "help")
PICTURES = (*SCREENS, *MORE)
_KEYS = {
    "cluster": "1 down right right", "jobs": "2 down down down", "job": "3", "fabric": "4 down", "failures": "5",
    "reports": "6", "accuracy": "6 a", "options": "5 enter", "confirm": "5 enter a", "help": "1 question_mark",
}  # fmt: skip


def self_contained(svg: str) -> str:
    """Return a picture that loads nothing: the fonts of whoever looks at it are used."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


async def picture(
    name: str, size: tuple[int, int], cluster: BigCluster, *, theme: str | None = None, app: TopApp | None = None
) -> str:
    """Return one screen of a made-up cluster, at one moment."""
    shown = app or TopApp(
        BigFeed(cluster), actions=NotedActions(cluster), clock=lambda: NOW_S + 4, user="ada", glyphs=UNICODE,
        theme=theme,
    )  # fmt: skip
    shown.chosen_job = next((job.record.id for job in cluster.jobs if job.losses and job.losses.findings), None)
    async with shown.run_test(size=size) as pilot:
        for key in _KEYS[name].split():
            await pilot.press(key)
            for _ in range(3):
                await pilot.pause()
        return self_contained(shown.export_screenshot(title=f"opsk top: {name}"))
