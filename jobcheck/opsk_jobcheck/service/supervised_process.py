"""Runs a process beside the advisor: starts it, restarts it when it ends, and ends it with the advisor."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

log = logging.getLogger(__name__)

OnStart = Callable[[asyncio.subprocess.Process], Awaitable[None]]
"""Receives each process as it starts, to send it its input."""


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
    """

    def __init__(self, consequence: str, pause_s: float, on_start: OnStart | None = None) -> None:
        self._consequence = consequence
        self._pause_s = pause_s
        self._on_start = on_start
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The process, ``None`` while none runs."""
        return self._process if self._process is not None and self._process.returncode is None else None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a command from now on, with these variables beside the advisor's own, unless one runs already."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise(command, {**os.environ, **(environment or {})}))

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
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
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
