"""Runs processes beside the advisor: starts them, restarts them when they end, and ends them with the advisor."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from opsk.config import SiteConfig
from opsk.process_folder import ProcessFolder
from opsk_jobcheck.cluster_state.state_header import MAX_AGE_S, OLD_S, LiveHead
from opsk_jobcheck.submission.protocol import frame

log = logging.getLogger(__name__)

WATCHER_COMMAND = ("watcher",)
"""The watcher's name in the fork server."""
FOLDER_VARIABLE = "OPSK_ADVISOR_LIVE"
"""Passes the folder of live states to workers."""
RESTART_PAUSE_S = 30.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A login node has many cores, and numpy would start a thread for each."""


class RunningProcess(Protocol):
    """A process that was executed or forked."""

    @property
    def pid(self) -> int:
        """Process id."""

    @property
    def returncode(self) -> int | None:
        """How it ended, ``None`` while it runs."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None:
        """Its standard input."""

    def kill(self) -> None:
        """End it at once."""

    async def wait(self) -> int | None:
        """Wait for its end."""


OnStart = Callable[[RunningProcess], Awaitable[None]]
"""Receives each process as it starts, to send it its input."""
Launch = Callable[[Sequence[str], Mapping[str, str]], Awaitable[RunningProcess]]
"""Starts a command with these variables in addition to the advisor's own; raises OSError where it cannot."""


async def execute(command: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a program.

    Raises
    ------
    OSError
        It cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **environment},
    )


class SupervisedProcess:
    """One process that runs for as long as the advisor needs it.

    Parameters
    ----------
    consequence
        The missing function while it cannot be started, for the log.
    pause_s
        Pause before it is started again [s].
    on_start
        Receives each process as it starts.
    launch
        Starts it.
    """

    def __init__(
        self, consequence: str, pause_s: float, on_start: OnStart | None = None, *, launch: Launch = execute
    ) -> None:
        self._consequence = consequence
        self._pause_s = pause_s
        self._on_start = on_start
        self._launch = launch
        self._process: RunningProcess | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def process(self) -> RunningProcess | None:
        """The process, ``None`` while none runs."""
        return self._process if self._process is not None and self._process.returncode is None else None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a command from now on, with these variables beside the advisor's own, unless one runs already."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise(command, environment or {}))

    async def stop(self) -> None:
        """End it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _supervise(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run it again and again."""
        while True:
            try:
                await self._run(command, environment)
            except (OSError, RuntimeError) as error:
                # uvloop raises RuntimeError where a process ends before it got all of its input
                log.warning("%s: %s", self._consequence, getattr(error, "strerror", None) or error)
            await asyncio.sleep(self._pause_s)

    async def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run it until it ends."""
        process = await self._launch(command, environment)
        self._process = process
        try:
            if self._on_start is not None:
                await self._on_start(process)
            await process.wait()
        finally:
            self._process = None
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


class FolderProcess:
    """A process that publishes files in a folder of the advisor's, by the site configuration that it is sent.

    Parameters
    ----------
    name
        Part of the folder's name.
    command
        Program; it gets the folder as its last argument and the site configuration as its first frame.
    consequence
        The missing function while it cannot be started, for the log.
    launch
        Starts it.
    """

    def __init__(self, name: str, command: Sequence[str], consequence: str, *, launch: Launch = execute) -> None:
        self._name = name
        self._command = command
        self._site: SiteConfig | None = None
        self._folder: ProcessFolder | None = None
        self._process = SupervisedProcess(consequence, RESTART_PAUSE_S, self._send_setup, launch=launch)

    @property
    def path(self) -> Path:
        """The folder, created on first use."""
        if self._folder is None:
            self._folder = ProcessFolder(self._name)
        return self._folder.path

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` where none runs."""
        return self._process.process.pid if self._process.process is not None else None

    def start(self, site: SiteConfig, environment: Mapping[str, str] | None = None) -> None:
        """Run the program for a configuration from now on, unless it runs already."""
        self._site = site
        self._process.start((*self._command, str(self.path)), environment)

    async def stop(self) -> None:
        """End the process; the folder stays."""
        await self._process.stop()

    async def close(self) -> None:
        """End the process and remove the folder."""
        await self.stop()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    async def _send_setup(self, process: RunningProcess) -> None:
        """Send the configuration, and make sure that the folder exists."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        if self._site is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(frame(self._site.model_dump_json().encode()))
                await process.stdin.drain()


def is_watched(site: SiteConfig) -> bool:
    """Return whether Slurm is polled for running jobs: only with a fabric are they of use."""
    return bool(site.fabric) and site.advisor.live_interval_s > 0


class WatcherSupervisor:
    """The watcher of one advisor.

    Parameters
    ----------
    launch
        Starts it.
    command
        Program that watches; it gets the folder as its last argument and the site configuration as its first frame.
    """

    def __init__(self, site: SiteConfig, launch: Launch, *, command: Sequence[str] = WATCHER_COMMAND) -> None:
        self._site = site
        self._head: LiveHead | None = None
        self._watcher = FolderProcess("live", command, "running jobs are not watched", launch=launch)

    def environment(self, site: SiteConfig) -> dict[str, str]:
        """Return the variables for workers of this configuration; the folder is created on first use."""
        if not is_watched(site):
            return {}
        folder = site.advisor.live_folder or self._watcher.path
        self._head = LiveHead(folder, time.monotonic)
        return {FOLDER_VARIABLE: str(folder)}

    @property
    def pid(self) -> int | None:
        """Process id of the watcher, ``None`` where none runs."""
        return self._watcher.pid

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
        if self.environment(self._site) and self._site.advisor.live_folder is None:
            self._watcher.start(self._site)

    async def renew(self, site: SiteConfig) -> None:
        """Watch with a new configuration; the folder stays."""
        await self._watcher.stop()
        self._site = site
        self.start()

    async def close(self) -> None:
        """End the watcher and remove the folder."""
        await self._watcher.close()
