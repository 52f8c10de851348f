"""Implements the ``opsk top`` application: its screens, and the delivery of cluster views to them.

Views arrive through an asyncio worker and are shown by the active screen; the others update when they become active.
"""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from opsk.errors import OpskError
from opsk.slurm.commands import remap_commands
from opsk.slurm.commands.remap_commands import Command, Who
from opsk_tui.data.feed_port import Actions, Feed
from opsk_tui.data.view import ClusterView, JobView, Metric, Source, SourceState, ViewIndex
from opsk_tui.screens.cluster import ClusterScreen
from opsk_tui.screens.confirm import Confirmation, ConfirmScreen
from opsk_tui.screens.fabric import FabricScreen
from opsk_tui.screens.failures import FailuresScreen
from opsk_tui.screens.job import JobScreen
from opsk_tui.screens.jobs import JobsScreen
from opsk_tui.screens.reports import ReportsScreen
from opsk_tui.screens.view_screen import ViewScreen
from opsk_tui.text import METRIC_TITLES, Glyphs, glyphs_for, safe
from opsk_tui.theme import DARK, MONOCHROME, PALETTES, themes

_MAX_JOBS = 20
_MASK_S = 0.01
SCREENS = ("cluster", "jobs", "job", "fabric", "failures", "reports")


class TopCommands(Provider):
    """Commands by name."""

    def _commands(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Yield names, descriptions and calls."""
        top = cast("TopApp", self.app)
        for name in top.MODES:
            yield f"Go to {name}", "a screen", partial(top.action_go, name)
        for name in PALETTES:
            yield f"Theme {name.removeprefix('opsk-')}", "colours of all screens", partial(setattr, top, "theme", name)
        for metric in Metric:
            yield f"Colour GPUs by {METRIC_TITLES[metric]}", "the cluster's map", partial(self._metric, metric)
        active_screen = top.active_screen
        if active_screen is not None:
            for binding in active_screen.shown_bindings():
                yield (
                    f"{active_screen.NAME.capitalize()}: {binding.description}",
                    f"key {binding.key_display or binding.key}",
                    partial(self._run, binding.action),
                )  # fmt: skip
        yield "Refresh all sources", "key r", top.action_ask_now
        yield "Quit", "key q", top.exit

    def _metric(self, metric: Metric) -> None:
        top = cast("TopApp", self.app)
        top.action_go("cluster")

        def choose() -> None:
            if isinstance(top.active_screen, ClusterScreen):
                top.active_screen.choose(metric=metric)

        top.call_later(choose)

    def _run(self, action: str) -> None:
        active_screen = cast("TopApp", self.app).active_screen
        if active_screen is not None:
            active_screen.call_later(active_screen.run_action, action)

    async def discover(self) -> Hits:
        """Offer everything but jobs before a word is typed."""
        for name, about, call in self._commands():
            yield DiscoveryHit(name, call, help=about)

    async def search(self, query: str) -> Hits:
        """Offer what matches."""
        matcher = self.matcher(query)
        for name, about, call in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), call, help=about)
        top = cast("TopApp", self.app)
        count = 0
        for number, job in top.known.jobs.items():
            text = f"Job {safe(job.record.label)} {safe(job.record.name)} {safe(job.record.user)}"
            if query.casefold() in text.casefold():
                yield Hit(0.5, Text(text), partial(top.open_job, number), text=text, help="opens the job")
                count += 1
                if count >= _MAX_JOBS:
                    return


class TopApp(App[None]):
    """The six screens.

    Parameters
    ----------
    feed
        Delivers the cluster.
    actions
        Changes it; ``None`` is a read-only screen.
    clock
        Seconds since 1970; ``None`` stands for a clock that ticks, a given one is only read.
    user
        Name of the caller, who may act on their own jobs.
    details_every_s
        Interval of queries for the details of the shown job [s].
    """

    TITLE = "opsk top"
    CSS_PATH = Path(__file__).with_name("opsk.tcss")
    COMMANDS: ClassVar[set[object]] = {TopCommands}  # type: ignore[assignment]
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(place), f"app.go('{name}')", f"To {name}", show=False)
            for place, name in enumerate(SCREENS, start=1)
        ),
        Binding("right_square_bracket", "app.step(1)", "Next screen", show=False),
        Binding("left_square_bracket", "app.step(-1)", "Previous screen", show=False),
        Binding("r", "app.ask_now", "Refresh all sources", show=False),
        Binding("T", "app.next_theme", "Next theme", show=False),
        Binding("q", "app.quit", "Quit", show=False),
    ]
    MODES: ClassVar[dict[str, Callable[[], Screen[None]]]] = {  # type: ignore[assignment]
        "cluster": ClusterScreen, "jobs": JobsScreen, "job": JobScreen, "fabric": FabricScreen,
        "failures": FailuresScreen, "reports": ReportsScreen,
    }  # fmt: skip
    DEFAULT_MODE = "cluster"

    def __init__(
        self,
        feed: Feed,
        *,
        actions: Actions | None = None,
        clock: Callable[[], float] | None = None,
        user: str | None = None,
        glyphs: Glyphs | None = None,
        theme: str | None = None,
        details_every_s: float = 5.0,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.actions = actions
        self._ticks = clock is None
        self.clock = clock or time.time
        self.user = user if user is not None else _caller_name()
        self.glyphs = glyphs or glyphs_for(os.environ, sys.stdout.encoding)
        self.details_every_s = details_every_s
        self.known = ViewIndex(ClusterView(taken_at_s=0.0), self.user)
        self.chosen_job: int | None = None
        self._history: list[str] = []
        self.animation_level = "none"
        for theme_definition in themes():
            self.register_theme(theme_definition)
        self.theme = theme or (MONOCHROME if os.environ.get("NO_COLOR") else DARK)

    def on_mount(self) -> None:
        """Follow the feed."""
        self.theme_changed_signal.subscribe(self, lambda _theme: self.call_later(self.show))
        self.run_worker(self._follow(), name="feed", exit_on_error=False)
        if self._ticks:
            self.set_interval(1.0, self._tick)

    async def _follow(self) -> None:
        """Receive every view that is delivered."""
        try:
            async for view in self.feed.views():
                self.take(view)
        except OpskError as error:
            state = SourceState(source=Source.SLURM, problem=error.message, hint=error.hint or "")
            self.take(replace(self.known.view, sources=(state,)))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show why a background worker has failed."""
        self.worker_failed(event)

    def worker_failed(self, event: Worker.StateChanged) -> str:
        """Show why a background worker has failed, and return the message; empty where it has not."""
        if event.state is not WorkerState.ERROR:
            return ""
        words = safe(f"{event.worker.name or 'this'} failed: {event.worker.error!r}")
        self.notify(words, severity="error", markup=False, timeout=10)
        return words

    async def on_unmount(self) -> None:
        """Stop the sources."""
        close = getattr(self.feed, "close", None)
        if close is not None:
            await close()

    def delay_update(self, delay: float = 0.05) -> None:
        """Mask a change of screens for a frame; Textual's own time is what a key may cost in all."""
        super().delay_update(min(delay, _MASK_S))

    def take(self, view: ClusterView) -> None:
        """Show a view."""
        self.known = ViewIndex(view, self.user)
        self.show()

    @property
    def active_screen(self) -> ViewScreen | None:
        """The screen of this mode, below any dialog."""
        stack = self.screen_stack
        return stack[0] if stack and isinstance(stack[0], ViewScreen) else None

    def show(self) -> None:
        """Update the active screen."""
        if self.active_screen is not None:
            self.active_screen.show()

    def _tick(self) -> None:
        if self.active_screen is not None and self.active_screen.is_current:
            self.active_screen.tick()

    def counts(self, name: str) -> str:
        """Return the count beside the name of a tab."""
        events = self.known.view.events
        if name == "failures" and events:
            count = sum(not event.is_over for event in events)
            return f" {self.glyphs.watch}{count}" if count else ""
        return ""

    def action_go(self, name: str) -> None:
        """Go to a screen."""
        if name != self.current_mode:
            self._history = [*self._history[-8:], self.current_mode]
            self.switch_mode(name)

    def action_step(self, step: int) -> None:
        """Go to the next screen."""
        here = SCREENS.index(self.current_mode)
        self.action_go(SCREENS[(here + step) % len(SCREENS)])

    def action_go_back(self) -> None:
        """Go to the previous screen."""
        if self._history:
            self.switch_mode(self._history.pop())

    def open_job(self, number: int) -> None:
        """Show one job."""
        self.chosen_job = number
        self.action_go("job")

    def action_ask_now(self) -> None:
        """Refresh all sources."""
        self.feed.ask_now()
        self.notify("refreshing all sources", timeout=1)

    def action_next_theme(self) -> None:
        """Use the next theme."""
        names = list(PALETTES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    def ask_job(self, what: str, job: JobView) -> None:
        """Ask whether to cancel, hold or requeue a job."""
        number = str(job.record.id)
        make = {"cancel": cancel, "hold": remap_commands.requeue_hold, "requeue": remap_commands.requeue}[what]
        title = f"{what} job {safe(job.record.label)} {safe(job.record.name)} of {safe(job.record.user)}"
        self.ask_and_run(title, [make(number)], owner=job.record.user)

    def ask_and_run(self, title: str, commands: Sequence[Command], owner: str = "") -> None:
        """Show commands, ask for confirmation, and run those that the caller may."""
        allowed_flags = [self.actions is not None and self.known.may(command, owner) for command in commands]
        allowed = [command for command, is_allowed in zip(commands, allowed_flags, strict=True) if is_allowed]

        def on_answer(yes: bool | None) -> None:
            if yes and allowed:
                self.run_worker(self._run(allowed), exit_on_error=False)

        self.push_screen(ConfirmScreen(Confirmation(title=title, commands=commands, mine=allowed_flags)), on_answer)

    async def _run(self, commands: Sequence[Command]) -> None:
        """Run the confirmed commands, and report the outcome."""
        assert self.actions is not None
        try:
            outcome = await self.actions.run(commands, lambda _line: None)
        except OpskError as error:
            self.notify(safe(error.message), severity="error", markup=False)
            return
        if outcome.refused or outcome.message:
            self.notify(safe(f"{outcome.refused}: {outcome.message}"), severity="error", markup=False)
        else:
            self.notify(safe("done: " + "; ".join(outcome.done)), markup=False)
        self.feed.ask_now()


def _caller_name() -> str:
    """Return the caller's name; empty for a uid that has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def cancel(job: str) -> Command:
    """End a job."""
    checked = remap_commands.requeue(job)
    return Command(argv=("scancel", checked.argv[-1]), who=Who.USER, why="ends the job; it does not come back")
