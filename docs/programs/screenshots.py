"""Draws the screens of ``opsk top`` for the README and the docs, with the screens themselves.

    python docs/programs/screenshots.py             # of a lab that it starts: Slurm, exporters, jobs, a GPU that died
    python docs/programs/screenshots.py --live      # of the cluster, or the lab, that opsk sees here
    python docs/programs/screenshots.py --made-up   # of a made-up cluster: the same on every machine

They are SVG, hold only what the terminal shows, and load nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from screenshot_lab import FILLS_S, lab_at_work  # noqa: E402

from opsk.config import load_site  # noqa: E402
from opsk_tui.app import TopApp  # noqa: E402
from opsk_tui.data.feed import ClusterFeed  # noqa: E402
from opsk_tui.data.lazy_loading import LateActions  # noqa: E402
from opsk_tui.text import UNICODE  # noqa: E402
from tests.fakes.big_cluster import BigCluster  # noqa: E402
from tests.fakes.screen_pictures import PICTURES, picture, self_contained  # noqa: E402

FOLDER = ROOT / "docs/images"
SIZE = (120, 32)
KEYS = {
    "cluster": "1 down down down down down right right", "help": "question_mark", "jobs": "escape 2 down down",
    "job": "enter", "fabric": "4 down", "failures": "5", "options": "enter", "confirm": "a",
    "reports": "escape escape 6", "report": "enter", "accuracy": "a",
}  # fmt: skip
"""What is pressed for each picture, one after the other."""
SLOW_KEYS = frozenset({"enter", "a"})
SETTLE_S = 8.0
"""A live feed has asked every source by then."""


async def take_screenshots(folder: Path, size: tuple[int, int]) -> None:
    """Write a picture of each screen of a made-up cluster."""
    cluster = BigCluster(nodes=400, jobs=120, hostile=False)
    for name in PICTURES:
        write(folder, name, await picture(name, size, cluster))


async def live(folder: Path, size: tuple[int, int], settle_s: float = SETTLE_S) -> None:
    """Write a picture of each screen of the cluster that is seen from here."""
    feed = ClusterFeed(load_site())
    app = TopApp(feed, actions=LateActions(), glyphs=UNICODE)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(settle_s)
        for name, keys in KEYS.items():
            for key in keys.split():
                await pilot.press(key)
                await pilot.pause(2.0 if key in SLOW_KEYS else 0.3)
            await pilot.pause(1.0)
            write(folder, name, self_contained(app.export_screenshot(title=f"opsk top: {name}")))


def of_a_lab(folder: Path, size: tuple[int, int]) -> None:
    """Write a picture of each screen of a lab that is started for it."""
    with lab_at_work():
        asyncio.run(live(folder, size, FILLS_S))


def write(folder: Path, name: str, svg: str) -> None:
    """Write one picture."""
    path = folder / f"top-{name}.svg"
    path.write_text(svg, encoding="utf-8")
    print(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="make the pictures of opsk top")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--live", action="store_true", help="of the cluster that opsk sees here")
    which.add_argument("--made-up", action="store_true", help="of a made-up cluster")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--size", default=f"{SIZE[0]}x{SIZE[1]}")
    arguments = parser.parse_args()
    width, height = (int(part) for part in arguments.size.split("x"))
    if arguments.live or arguments.made_up:
        asyncio.run((live if arguments.live else take_screenshots)(arguments.folder, (width, height)))
    else:
        of_a_lab(arguments.folder, (width, height))
