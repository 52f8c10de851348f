"""Provides the entries of the command palette: screens, themes, metrics, and every job by its number or name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from opsk_tui.data.view import Metric
from opsk_tui.text.format import METRIC_TITLES
from opsk_tui.text.safe_text import safe
from opsk_tui.theme import PALETTES

if TYPE_CHECKING:
    from opsk_tui.app import TopApp

_MAX_JOBS = 20


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
        yield "Ask all sources now", "key r", top.action_ask_now
        yield "Quit", "key q", top.exit

    def _metric(self, metric: Metric) -> None:
        top = cast("TopApp", self.app)
        top.action_go("cluster")

        def choose() -> None:
            from opsk_tui.screens.cluster import ClusterScreen

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
