"""Supervises the advisor's watcher process: starts it, restarts it when it ends, and stops it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from opsk.config import SiteConfig
from opsk.process_folder import ProcessFolder
from opsk_jobcheck.cluster_state.state_header import MAX_AGE_S, OLD_S, LiveHead
from opsk_jobcheck.service.supervised_process import SupervisedProcess
from opsk_jobcheck.submission.protocol import frame

WATCHER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.service.watcher")
FOLDER_VARIABLE = "OPSK_ADVISOR_LIVE"
"""Passes the folder of live states to workers."""
RESTART_PAUSE_S = 30.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def is_watched(site: SiteConfig) -> bool:
    """Return whether Slurm is polled for running jobs: only with a fabric are they of use."""
    return bool(site.fabric) and site.advisor.live_interval_s > 0


class WatcherSupervisor:
    """The watcher of one advisor.

    Parameters
    ----------
    command
        Program that watches; it gets the folder as its last argument and the site configuration as its first frame.
    """

    def __init__(self, site: SiteConfig, *, command: Sequence[str] = WATCHER_COMMAND) -> None:
        self._site = site
        self._command = command
        self._folder: ProcessFolder | None = None
        self._head: LiveHead | None = None
        self._watcher = SupervisedProcess("running jobs are not watched", RESTART_PAUSE_S, self._send_setup)

    def environment(self, site: SiteConfig) -> dict[str, str]:
        """Return the variables for workers of this configuration; the folder is created on first use."""
        if not is_watched(site):
            return {}
        if site.advisor.live_folder is not None:
            self._head = LiveHead(site.advisor.live_folder, time.monotonic)
            return {FOLDER_VARIABLE: str(site.advisor.live_folder)}
        if self._folder is None:
            self._folder = ProcessFolder("live")
        self._head = LiveHead(self._folder.path, time.monotonic)
        return {FOLDER_VARIABLE: str(self._folder.path)}

    @property
    def pid(self) -> int | None:
        """Process id of the watcher, ``None`` where none runs."""
        return self._watcher.process.pid if self._watcher.process is not None else None

    def generation(self) -> str:
        """Return what advice on free nodes and shared links depends on, and "" where nothing is known."""
        if self._head is None:
            return ""
        age_s = self._head.age_s()
        if age_s is None:
            return ""
        return "old" if age_s > MAX_AGE_S else f"{self._head.generation()}/{age_s // OLD_S:.0f}"

    def start(self) -> None:
        """Start the watcher, where this site is watched."""
        folder = self.environment(self._site).get(FOLDER_VARIABLE)
        if folder and self._site.advisor.live_folder is None:
            self._watcher.start((*self._command, folder), ONE_THREAD)

    async def renew(self, site: SiteConfig) -> None:
        """Watch with a new configuration; the folder stays."""
        await self._watcher.stop()
        self._site = site
        self.start()

    async def close(self) -> None:
        """End the watcher and remove the folder."""
        await self._watcher.stop()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    async def _send_setup(self, process: asyncio.subprocess.Process) -> None:
        """Send the configuration to a watcher, and make sure that its folder exists."""
        if self._folder is not None:
            self._folder.path.mkdir(mode=0o700, exist_ok=True)
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(frame(self._site.model_dump_json().encode()))
                await process.stdin.drain()
