"""Does the screen show the jobs, obey its keys, and tell the truth when Slurm is away?

Driven through Textual's pilot with fixed jobs, no timers and a clock that stands still.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from opsk.errors import SlurmError
from opsk_tui.app import TopApp
from opsk_tui.data import Feed, JobView
from opsk_tui.screens.job_detail import JobDetail
from tests.fakes.jobs import RECORDS, FixedJobs

PATIENCE_S = 30
Script = Callable[[TopApp, Pilot[None]], Awaitable[None]]
SIZES = [(80, 24), (240, 70)]


def play(source: FixedJobs, script: Script, size: tuple[int, int] = (80, 24), now: list[float] | None = None) -> None:
    """Run the screen, wait for the first answer, and do what the script says."""

    async def run() -> None:
        feed = Feed(source, clock=lambda: now[0] if now else 0.0)
        app = TopApp(feed, interval_s=None)
        async with app.run_test(size=size) as pilot:
            await answered(pilot, source, 1)
            await script(app, pilot)

    asyncio.run(run())


async def answered(pilot: Pilot[None], source: FixedJobs, times: int) -> None:
    """Wait until the source was asked so often and the screen has shown the answer."""
    app = pilot.app
    assert isinstance(app, TopApp)
    for _ in range(PATIENCE_S * 100):
        if source.asked >= times and app._feed.state.asking_since is None:
            break
        await asyncio.sleep(0.01)
    await pilot.pause()
    await pilot.pause()


def cells(app: TopApp) -> list[list[str]]:
    """Return the table as plain text."""
    table: DataTable[Text] = app.screen_stack[0].query_one(DataTable)
    return [[cell.plain for cell in table.get_row_at(row)] for row in range(table.row_count)]


def said(app: TopApp, selector: str) -> str:
    """Return the words of a line of the screen."""
    return str(app.screen_stack[0].query_one(selector, Static).render())


@pytest.mark.parametrize("size", SIZES)
def test_jobs_are_listed_with_their_predictions(size: tuple[int, int]) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        rows = {row[0]: row for row in cells(app)}
        assert list(rows) == ["4715", "4714", "4711", "4713", "4712"]
        assert {"✓ fits", "75 %", "412"} <= set(rows["4711"])
        assert {"✗ oom", "120 %"} <= set(rows["4712"])
        assert "3 running on 192 GPUs · 2 pending · 4 with a prediction" in said(app, "#headline")
        assert ("TP4 PP2 DP8" in rows["4711"]) == (size[0] > 200)
        table = app.query_one(DataTable)
        assert table.virtual_size.width <= size[0]

    play(FixedJobs(), script, size)


@pytest.mark.parametrize("size", SIZES)
def test_a_hostile_name_is_shown_as_it_is_and_does_nothing(size: tuple[int, int]) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert any(cell.startswith("[red]x[/red][@click=app.quit]y[/]") for row in cells(app) for cell in row)
        await pilot.press("enter")
        assert isinstance(app.screen, JobDetail)
        image = app.export_screenshot()
        assert "\x1b" not in image
        assert "\u202e" not in image
        assert "[red]x[/red][@click=app.quit]y[/]" in image.replace("&#160;", " ")
        await pilot.click("#title", offset=(25, 0))
        assert app.is_running

    play(FixedJobs(), script, size)


def test_enter_shows_the_whole_record_and_escape_leads_back() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "enter")
        assert isinstance(app.screen, JobDetail)
        image = app.export_screenshot().replace("&#160;", " ")
        assert "Job 4711" in image
        assert "55.9 GiB of 74.5 GiB per GPU (75 %)" in image
        await pilot.press("escape")
        assert not isinstance(app.screen, JobDetail)
        await pilot.press("enter", "q")
        assert not isinstance(app.screen, JobDetail)
        assert app.is_running

    play(FixedJobs(), script, (120, 40))


def test_the_filter_shows_only_what_matches_until_escape() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"ada llama")
        assert [row[0] for row in cells(app)] == ["4711"]
        assert "1 of 5 shown" in said(app, "#headline")
        await pilot.press("enter")
        assert isinstance(app.focused, DataTable)
        await pilot.press("enter")
        assert isinstance(app.screen, JobDetail)
        await pilot.press("escape", "escape")
        assert len(cells(app)) == 5
        assert not app.query_one(Input).display

    play(FixedJobs(), script)


def test_a_filter_that_nothing_matches_says_how_to_leave_it() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"[b]zz")
        assert said(app, "#empty") == "No job matches '[b]zz'.\nEsc shows all 5 again."
        await pilot.press("escape")
        assert not app.query_one("#empty").display
        assert len(cells(app)) == 5

    play(FixedJobs(), script)


def test_q_quits() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        assert not app.is_running

    play(FixedJobs(), script)


def test_no_jobs_is_a_friendly_word() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert said(app, "#empty").startswith("No jobs are pending or running.")
        await pilot.press("enter", "down", "slash", "x", "escape")
        assert app.is_running

    play(FixedJobs(()), script)


def test_while_slurm_is_silent_the_last_jobs_stay_with_their_age() -> None:
    now = [0.0]
    source = FixedJobs()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert not app.query_one("#problem").display
        now[0], source.problem = (
            45.0,
            SlurmError("squeue did not answer within 10 s\x1b[2J", hint="see `scontrol ping`"),
        )
        await pilot.press("r")
        await answered(pilot, source, 2)
        assert app.query_one("#problem").display
        assert said(app, "#problem") == (
            "Slurm does not answer: squeue did not answer within 10 s\\x1b[2J (see `scontrol ping`); "
            "what is shown is of 45 s ago"
        )
        assert len(cells(app)) == 5
        assert "45 s ago" in said(app, "#headline")
        source.problem = None
        await pilot.press("r")
        await answered(pilot, source, 3)
        assert not app.query_one("#problem").display

    play(source, script, now=now)


def test_a_slow_slurm_is_said_to_be_waited_for_and_stops_no_key() -> None:
    answer = threading.Event()
    now = [0.0]

    class Slow(FixedJobs):
        def jobs(self) -> tuple[JobView, ...]:
            if self.asked:
                answer.wait(PATIENCE_S)
            return super().jobs()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("r")
        now[0] = 5.0
        await pilot.press("r", "down", "enter", "escape")
        app._show_status()
        await pilot.pause()
        assert said(app, "#headline").rstrip().endswith("waiting for Slurm · 5 s ago")
        assert len(cells(app)) == 5
        await pilot.press("q")
        assert not app.is_running
        answer.set()

    play(Slow(), script, (120, 30), now)


def test_without_any_answer_the_screen_says_so() -> None:
    source = FixedJobs()
    source.problem = SlurmError("squeue: No such file or directory", hint="install Slurm's client commands")

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "squeue: No such file or directory" in said(app, "#problem")
        assert "nothing to show yet" in said(app, "#problem")
        assert "no data yet" in said(app, "#headline")

    play(source, script)


def test_the_cursor_stays_on_its_job_while_others_come_and_go() -> None:
    source = FixedJobs()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        source.records = (*RECORDS[:4], replace(RECORDS[0], id=4716, label="4716"), replace(RECORDS[0], id=4717))
        await pilot.press("r")
        await answered(pilot, source, 2)
        table = app.query_one(DataTable)
        assert cells(app)[table.cursor_row][0] == "4711"
        await pilot.resize_terminal(200, 40)
        await pilot.pause()
        assert cells(app)[table.cursor_row][0] == "4711"

    play(source, script)


def test_changed_cells_are_brought_up_to_date_in_place() -> None:
    source = FixedJobs()

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        source.records = tuple(
            replace(job, state="RUNNING", run_time_s=1, reason=None) if job.id == 4713 else job for job in RECORDS
        )
        source.records = tuple(replace(job, name="renamed") if job.id == 4711 else job for job in source.records)
        await pilot.press("r")
        await answered(pilot, source, 2)
        rows = {row[0]: row for row in cells(app)}
        assert "renamed" in rows["4711"]
        assert "RUNNING" in rows["4713"]

    play(source, script)


def test_a_narrow_window_keeps_what_matters() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(48, 12)
        await pilot.pause()
        table: DataTable[Text] = app.query_one(DataTable)
        assert [column.label.plain for column in table.columns.values()] == ["JOB", "NAME", "STATE", "MEMORY"]
        assert len(cells(app)) == 5
        assert table.virtual_size.width <= 48

    play(FixedJobs(), script)
