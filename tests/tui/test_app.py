"""Do the screens show the cluster, obey the user, ask before they act, and tell what they see with?"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from opsk.errors import InputError
from opsk_tui.app import SCREENS, TopApp
from opsk_tui.data.feed_port import JobDetails, Proposal
from opsk_tui.data.view import ClusterView, Source, SourceState
from opsk_tui.screens.fabric import FabricScreen
from opsk_tui.screens.view_screen import HelpScreen
from opsk_tui.text import ASCII
from opsk_tui.widgets.canvas import Canvas
from opsk_tui.widgets.grid_map import GridMap
from opsk_tui.widgets.table import Table
from tests.fakes.big_cluster import NOW_S, BigFeed
from tests.fakes.noted_actions import NotedActions
from tests.fakes.played_screens import Still, cluster, play, press, settled, text
from tests.fakes.screen_text import text_lines

SIZES = [(80, 24), (240, 70)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENS)
def test_hostile_text_is_shown_and_does_nothing_on_any_screen(name: str, size: tuple[int, int]) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        jobs = [job.record.id for job in cluster().jobs if job.record.name.startswith("[red]")]
        app.chosen_job = jobs[0]
        await press(pilot, str(SCREENS.index(name) + 1))
        for _ in range(4):
            shown = text(app)
            assert all(unicodedata.category(sign)[0] != "C" or sign == "\n" for sign in shown)
            image = app.export_screenshot()
            assert not {"\x1b", "\u202e", "\u2066", "\x07", "\u200b"} & set(image)
            await press(pilot, "pagedown")
        assert app.is_running

    play(script, size=size)


def test_the_clock_ticks_while_a_screen_is_built() -> None:
    """On a busy machine a second passes between the choice of a screen and its first line."""

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        FabricScreen().tick()
        await pilot.pause()
        assert app.is_running

    play(script)


def test_markup_in_a_name_stays_text() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "2", "slash", *"[red]x", "enter")
        assert "[red]x[/red][@click=app.quit]y[/]" in text(app)
        await pilot.click("#list", offset=(30, 1))
        await pilot.click("#list", offset=(45, 1))
        await press(pilot, "enter")
        assert app.is_running
        assert app.current_mode == "job"

    play(script, size=(240, 70))


@pytest.mark.parametrize("name", SCREENS)
def test_ascii_terminals_get_ascii_only(name: str) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, str(SCREENS.index(name) + 1))
        assert text(app).isascii()

    play(script, glyphs=ASCII)


def test_sick_gpus_are_told_apart_without_colour() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "x", "x")
        grid = app.screen.query_one(GridMap)
        assert len(grid.order)
        lines = "\n".join(text_lines(grid))
        assert "✗" in lines

    play(script, theme="opsk-monochrome")


def test_without_colour_nothing_is_coloured() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        for key in "123456":
            await press(pilot, key)
            styles = [part.style for canvas in app.screen.query(Canvas) for line in canvas._lines for part in line]
            assert all(style is None or (style.color is None and style.bgcolor is None) for style in styles)

    play(script, theme="opsk-monochrome")


def test_the_filter_shows_only_what_matches_until_escape() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        table = app.screen_stack[0]
        await press(pilot, "2", "slash", *"grace pd")
        table = app.screen.query_one(Table)
        assert table.rows
        assert {row.record.user for row in table.rows} == {"grace"}
        assert {row.record.state for row in table.rows} == {"PENDING"}
        await press(pilot, "escape")
        assert len(table.rows) == 60
        assert not app.screen.query_one(Input).display

    play(script)


def test_nodes_are_filtered_by_partition_state_health_and_words() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        grid = app.screen.query_one(GridMap)
        nodes = cluster().nodes
        await press(pilot, "p")
        assert {nodes[row].partitions for row in grid.order.tolist()} == {("debug",)}
        await press(pilot, "escape", "t", "t", "t")
        assert grid.order.tolist() == [row for row, node in enumerate(nodes) if not node.is_usable]
        await press(pilot, "escape", "slash", *"gpu007 down")
        assert grid.order.tolist() == []
        await press(pilot, "escape", "slash", *"gpu121", "enter")
        assert [nodes[row].state for row in grid.order.tolist()] == ["DOWN"]
        assert "Not responding" in text(app)

    play(script)


def test_find_goes_to_what_matches_and_on() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "2", "f", *"qwen", "enter")
        table = app.screen.query_one(Table)
        first = table.current
        await press(pilot, "n")
        assert first is not None
        assert "qwen" in first.record.name
        assert table.current is not first
        assert "qwen" in table.current.record.name
        await press(pilot, "N")
        assert table.current is first

    play(script)


def test_enter_on_a_gpu_opens_its_job_and_escape_leads_back() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert app.current_mode == "job"
        assert app.chosen_job == 410_000
        assert "Measured against predicted" in text(app)
        await press(pilot, "escape")
        assert app.current_mode == "cluster"

    play(script)


def test_a_click_puts_the_cursor_there_and_a_click_on_a_tab_changes_the_screen() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        grid = app.screen.query_one(GridMap)
        await pilot.click(GridMap, offset=(1 + len("gpu001") + 1 + 3, 2))
        await settled(pilot)
        assert (grid.row, grid.column) == (2 * grid.per_line(grid.inner_width), 3)
        await pilot.click("#tabs", offset=(20, 0))
        await settled(pilot)
        assert app.current_mode == "jobs"

    play(script)


def test_a_click_on_a_key_of_the_last_line_does_what_the_key_does() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        bar = app.screen.query_one("#keys", Canvas)
        await pilot.click("#keys", offset=(text_lines(bar)[0].index("Metric"), 0))
        await settled(pilot)
        assert "tensor cores" in text(app)
        await pilot.click("#keys", offset=(text_lines(bar)[0].index("?"), 0))
        await settled(pilot)
        assert isinstance(app.screen, HelpScreen)

    play(script)


def test_the_cursor_stays_on_its_job_while_others_come_and_go() -> None:
    first = cluster().view()
    second = replace(first, jobs=first.jobs[:5] + first.jobs[8:])

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "2", *["down"] * 30)
        table = app.screen.query_one(Table)
        before = table.current.record.id
        feed = app.feed
        assert isinstance(feed, Still)
        feed.push()
        await settled(pilot)
        assert len(table.rows) == 57
        assert table.current.record.id == before

    play(script, feed=Still(first, second))


def test_a_new_view_sends_only_cells_that_changed() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        grid = app.screen.query_one(GridMap)
        regions: list[int] = []
        grid.refresh = lambda *some, **_: regions.extend(part.area for part in some)  # type: ignore[method-assign]
        app.take(cluster().view())
        assert regions == []
        app.take(cluster().view(1))
        assert 0 < sum(regions) < grid.size.area

    play(script)


def test_it_says_what_it_sees_with_and_what_it_does_not() -> None:
    view = replace(
        cluster().view(),
        sources=(
            SourceState(source=Source.SLURM, taken_at_s=NOW_S - 26),
            SourceState(source=Source.PROMETHEUS, problem="connection refused\x1b[2J", hint="is it up?"),
        ),
    )

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "slurm ✓ 30 s" in text(app)
        assert "prometheus ✗ connection refused\\x1b[2J (is it up?)" in text(app)

    play(script, feed=Still(view))


def test_help_tells_in_full_what_is_wrong_with_a_source() -> None:
    """On 80 columns the line below the screen ends in the middle of a reason."""
    long = "squeue did not answer within 10 s, and neither did the one before\x1b[2J"
    states = (
        SourceState(source=Source.PROMETHEUS, taken_at_s=NOW_S, where="http://mon:9090"),
        SourceState(source=Source.SLURM, taken_at_s=NOW_S - 300, problem=long, hint="see `scontrol ping`"),
    )

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "scontrol ping" not in text(app)
        await press(pilot, "question_mark", "end")
        shown = " ".join(text(app).split())
        assert "prometheus ✓ http://mon:9090, 4 s" in shown
        assert "neither did the one before\\x1b[2J (see `scontrol ping`), last 5 min ago" in shown

    play(script, feed=Still(replace(cluster().view(), sources=states)), size=(80, 60))


def test_slurm_alone_is_enough_and_what_is_missing_is_said() -> None:
    view = replace(cluster().view(), gpus=None, fabric=None, events=(), reports=())

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "no source tells it" in text(app)
        for key, said in (
            ("4", "No source reports the fabric"),
            ("5", "Nothing has failed."),
            ("6", "No reports yet."),
        ):
            await press(pilot, key)
            assert said in text(app)

    play(script, feed=Still(view))


@pytest.mark.parametrize("name", SCREENS)
def test_an_empty_cluster_breaks_no_key(name: str) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, str(SCREENS.index(name) + 1))
        await press(pilot, *"mMsSptxowbiedu,.ncHR", "plus", "minus", "enter", "escape", "up", "end", "tab", "left")
        assert app.is_running

    play(script, feed=Still(ClusterView(taken_at_s=NOW_S)), size=(80, 24))


@pytest.mark.parametrize("size", [(40, 12), (20, 6), (300, 100)])
def test_no_window_is_too_small_or_too_large(size: tuple[int, int]) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        for key in "123456":
            await press(pilot, key, "plus", "down", "right", "pagedown")
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert app.is_running
        assert max(len(line) for line in text(app).splitlines()) <= 80

    play(script, size=size)


def test_what_nobody_foresaw_is_said_and_ends_nothing() -> None:
    class Broken(NotedActions):
        async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
            raise ZeroDivisionError("[b]division\x1b[2J")

    class Torn(Still):
        async def views(self) -> AsyncIterator[ClusterView]:
            yield cluster().view()
            raise InputError("no way to Slurm\x1b[2J", hint="see the log")

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "slurm ✗ no way to Slurm\\x1b[2J (see the log)" in text(app)
        await press(pilot, "5", "enter")
        assert "division" in text(app)
        assert app.is_running
        await press(pilot, "escape", "1")
        assert app.current_mode == "cluster"

    play(script, actions=Broken(cluster()), feed=Torn())


def test_slow_details_hold_up_no_key() -> None:
    class Slow(BigFeed):
        async def job_details(self, job_id: int) -> JobDetails:
            await asyncio.sleep(3600)
            raise AssertionError

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "3", "full_stop", "m", "i")
        assert "Measured against predicted" in text(app)
        await press(pilot, "1")
        assert app.current_mode == "cluster"

    play(script, feed=Slow(cluster()))


def test_the_page_on_accuracy_is_opened_and_closed() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "6", "a")
        assert "12 of 14 predicted jobs measured" in text(app)
        assert "straggler at n3: 20% of the step" in text(app)
        assert "4722 \\x1b[31m megatron-lm" in text(app)
        await press(pilot, "b")
        assert "calibration against 214 runs" in text(app)

    play(script)


def test_a_report_is_opened_and_closed() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await press(pilot, "6", "enter")
        assert "root cause: [b]gpu_hardware[/b]\\x1b[31m" in text(app)
        await press(pilot, "slash", *"root", "enter")
        assert "evidence 3" not in text(app)
        await press(pilot, "escape", "escape")
        assert "calibration against 214 runs" in text(app)

    play(script)
