"""`opsk top` as people use it, on a real slurmctld: keys, the mouse, and a remap from the failure to the undo.

The app, its feed and its actions are those of the command; only the terminal is Textual's own for tests. What a release
of Slurm changes is in what is read and in what a remap does, which test_contract and test_remap have on all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from opsk.config import load_site
from opsk_tui.app import SCREENS, TopApp
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.lazy_loading import LateActions
from opsk_tui.screens.confirm import ConfirmScreen
from opsk_tui.screens.options import OptionsScreen
from opsk_tui.widgets.canvas import Canvas
from tests.fakes.screen_text import text_lines
from tests.integration.conftest import INSTALLED_ONLY, RunningLab
from tests.integration.slurm import test_remap_after_events as lab_with_jobs
from tests.integration.slurm.test_remap_after_events import broken, said, until

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(600), INSTALLED_ONLY]

watched_lab = lab_with_jobs.watched_lab
job = lab_with_jobs.job
ADVISED = "opsk:v1 verdict=fits step_s=0.9 step_s_low=0.8 step_s_high=1.1 tp=2 pp=1 dp=4"
"""What the advisor leaves; here by hand, for the job's script trains nothing."""
PATIENCE_S = 60.0
LEAVES = {"q", "ctrl+q", "ctrl+c", "ctrl+z"}
Script = Callable[[TopApp, Pilot[None]], Awaitable[None]]


@pytest.fixture
def opened(watched_lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Open the screens on the lab, as a terminal of 80 by 24."""
    for name, value in watched_lab.environment.items():
        monkeypatch.setenv(name, value)

    def play(script: Script) -> None:
        async def run() -> None:
            app = TopApp(ClusterFeed(load_site()), actions=LateActions())
            async with app.run_test(size=(80, 24)) as pilot:
                await script(app, pilot)

        asyncio.run(run())

    return play


def shown(app: TopApp) -> str:
    return "\n".join(line for canvas in app.screen.query(Canvas) for line in text_lines(canvas) if canvas.display)


async def shows(app: TopApp, pilot: Pilot[None], *wanted: str) -> None:
    """Wait until all of this stands on the screen."""
    end = time.monotonic() + PATIENCE_S
    while not all(words in shown(app) for words in wanted):
        assert time.monotonic() < end, (wanted, shown(app))
        await pilot.pause(0.1)


def test_a_remap_is_applied_and_undone_from_the_screens(
    watched_lab: RunningLab, job: str, opened: Callable[[Script], None]
) -> None:
    lab, top = watched_lab, watched_lab.path.parent
    assert lab.run("scontrol", "update", f"jobid={job}", f"admincomment={ADVISED}").returncode == 0
    before = said(lab, job, 0)
    broken(lab, job, "gpu:n2/1", "gpu", "n2", "1")

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await shows(app, pilot, "gpu:n2/1", "Enter: what can be done")
        await pilot.press("enter")
        assert isinstance(app.screen, OptionsScreen)
        await shows(app, pilot, "Ranks before and after")
        choice = app.screen.table.current
        assert choice is not None
        planned = before | {move.rank: (move.to_node, move.to_gpu) for move in choice.option.moves}
        assert planned != before
        await pilot.press("a")
        assert isinstance(app.screen, ConfirmScreen)
        await shows(app, pilot, "y runs exactly this", f"scontrol requeue {job}")
        assert lab.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"
        await pilot.press("y")
        await asyncio.to_thread(until, lambda: said(lab, job, 1), planned)
        await shows(app, pilot, f"job {job} is running on")
        await pilot.press("u")
        await shows(app, pilot, "scontrol update nodename=n2 state=resume", "stays, Slurm does not")
        assert lab.run("sinfo", "-h", "-N", "-n", "n2", "-o", "%t").stdout.startswith("drain")
        await pilot.press("y")
        await shows(app, pilot, "Undone")
        assert not lab.run("sinfo", "-h", "-N", "-n", "n2", "-o", "%t").stdout.startswith("drain")

    (top / "opsk-ranks.txt").unlink(missing_ok=True)
    (top / "ranks").unlink(missing_ok=True)
    (top / "ranks").symlink_to(top / "opsk-ranks.txt")
    opened(script)


def test_every_key_and_the_mouse_work_on_live_data(
    watched_lab: RunningLab, job: str, opened: Callable[[Script], None]
) -> None:
    async def back(app: TopApp, pilot: Pilot[None]) -> None:
        while isinstance(app.focused, Input) or len(app.screen_stack) > 1:
            await pilot.press("escape")
            await pilot.pause()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "n7", "slurm ")
        pressed: set[tuple[str, str]] = set()
        for number, name in enumerate(SCREENS, start=1):
            await pilot.press(str(number))
            await shows(app, pilot, "sources: ")
            assert app.current_mode == name
            bindings = [each.binding for each in app.screen.active_bindings.values() if each.enabled]
            for binding in bindings:
                if binding.key in LEAVES or (binding.key, binding.action) in pressed:
                    continue
                pressed.add((binding.key, binding.action))
                await pilot.press(binding.key)
                await back(app, pilot)
                if app.current_mode != name:
                    await pilot.press(str(number))
            assert app.is_running
        assert len(pressed) > 40
        for row in (0, 8, 23):
            await pilot.click(offset=(30, row))
            await back(app, pilot)
        await pilot.press("2")
        await shows(app, pilot, job)

    opened(script)
    assert watched_lab.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"
    assert "drain" not in watched_lab.run("sinfo", "-h", "-o", "%t").stdout
