"""Does a published fit reach a running advisor, without the configuration, and without a reload for nothing?"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from opsk.app.learning.fits import publish_fit, undo_fit
from opsk.config import LearningConfig, SiteConfig
from opsk_jobcheck.service.reloads import FitWatch, Reloads

NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def learning(folder: Path, *, enabled: bool = True) -> SiteConfig:
    return SiteConfig(learning=LearningConfig(enabled=enabled, folder=folder))


def test_a_fit_that_is_published_replaced_or_undone_is_noticed_once(tmp_path: Path) -> None:
    site = learning(tmp_path)
    watch = FitWatch(site)
    assert not watch.has_changed(site)
    for _ in range(2):
        publish_fit(tmp_path, 'fit = "x"\n', {}, made_at=NIGHT)
        assert (watch.has_changed(site), watch.has_changed(site)) == (True, False)
    undo_fit(tmp_path, now=NIGHT)
    assert (watch.has_changed(site), watch.has_changed(site)) == (True, False)
    undo_fit(tmp_path, now=NIGHT)
    assert watch.has_changed(site)


def test_a_site_that_does_not_learn_is_left_alone(tmp_path: Path) -> None:
    site = learning(tmp_path, enabled=False)
    watch = FitWatch(site)
    publish_fit(tmp_path, 'fit = "x"\n', {}, made_at=NIGHT)
    assert not watch.has_changed(site)


def test_a_fit_asks_for_no_other_configuration_and_sighup_does(tmp_path: Path) -> None:
    async def collect() -> list[bool]:
        reloads = Reloads()
        reloads.request_fit()
        fit_alone = await reloads.wait()
        reloads.request_fit()
        reloads.request_configuration()
        return [fit_alone, await reloads.wait()]

    assert asyncio.run(collect()) == [False, True]


def test_the_watch_requests_a_reload(tmp_path: Path) -> None:
    async def follow() -> bool:
        site, reloads = learning(tmp_path), Reloads()
        watch = FitWatch(site)
        publish_fit(tmp_path, 'fit = "x"\n', {}, made_at=NIGHT)
        watching = asyncio.create_task(watch.watch(lambda: site, reloads, interval_s=0.001))
        try:
            return await asyncio.wait_for(reloads.wait(), 10)
        finally:
            watching.cancel()

    assert asyncio.run(follow()) is False
