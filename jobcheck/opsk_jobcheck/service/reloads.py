"""Requests of a running advisor to load again: its configuration on SIGHUP, or a fit that the site has published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from opsk.config import PUBLISHED_FIT, SiteConfig

log = logging.getLogger(__name__)

FIT_INTERVAL_S = 15.0
"""Interval at which the published fit is looked at [s]."""
Stamp = tuple[int, int] | None


class Reloads:
    """The pending request; several that arrive during one are one.

    A published fit does not have the configuration read again: an administrator may be changing it.
    """

    def __init__(self) -> None:
        self._pending = asyncio.Event()
        self._reads_configuration = False

    def request_configuration(self) -> None:
        """Have the configuration read again, and all that it names."""
        self._reads_configuration = True
        self._pending.set()

    def request_fit(self) -> None:
        """Have the published fit loaded."""
        self._pending.set()

    async def wait(self) -> bool:
        """Wait for a request; return whether the configuration is read again."""
        await self._pending.wait()
        self._pending.clear()
        reads, self._reads_configuration = self._reads_configuration, False
        return reads


def read_fit_stamp(site: SiteConfig) -> Stamp:
    """Return what changes with the published fit; ``None`` where the site has none."""
    if not site.learning.enabled:
        return None
    return _read_stamp(site.learning.folder / PUBLISHED_FIT)


def _read_stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino


class FitWatch:
    """Notices that another fit was published than the one in use."""

    def __init__(self, site: SiteConfig) -> None:
        self._stamp = read_fit_stamp(site)

    def has_changed(self, site: SiteConfig) -> bool:
        """Return whether the fit is another than at the last call."""
        before, self._stamp = self._stamp, read_fit_stamp(site)
        return self._stamp != before

    async def watch(
        self, get_site: Callable[[], SiteConfig], reloads: Reloads, *, interval_s: float = FIT_INTERVAL_S
    ) -> None:
        """Request a reload after each change, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if await asyncio.to_thread(self.has_changed, get_site()):
                log.info("the site's fit has changed")
                reloads.request_fit()
