"""Defers loading the planner until the first action, so that the screens open sooner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from threading import Lock

from opsk.slurm.commands.remap_commands import Command
from opsk_tui.data.feed_port import Actions, Outcome, Proposal, Undoing


class LateActions:
    """Implements `feed_port.Actions` by `SlurmActions` of `opsk_tui.data.actions`, which loads in half a second."""

    def __init__(self) -> None:
        self._actions: Actions | None = None
        self._lock = Lock()

    async def propose(self, failed: Sequence[str], job_id: int, avoid: Collection[str] = ()) -> Proposal:
        """Return the options for a job after events."""
        return await (await asyncio.to_thread(self._load)).propose(failed, job_id, avoid)

    async def apply(self, proposal: Proposal, choice: int, tell: Callable[[str], None]) -> Outcome:
        """Execute one choice of a proposal."""
        return await (await asyncio.to_thread(self._load)).apply(proposal, choice, tell)

    async def undoing(self, journal: str) -> Undoing:
        """Return the commands that would undo an applied option."""
        return await (await asyncio.to_thread(self._load)).undoing(journal)

    async def undo(self, journal: str, undoing: Undoing, tell: Callable[[str], None]) -> Outcome:
        """Undo an applied option."""
        return await (await asyncio.to_thread(self._load)).undo(journal, undoing, tell)

    async def run(self, commands: Sequence[Command], tell: Callable[[str], None]) -> Outcome:
        """Run single commands."""
        return await (await asyncio.to_thread(self._load)).run(commands, tell)

    def _load(self) -> Actions:
        with self._lock:
            if self._actions is None:
                from opsk_tui.data.actions import SlurmActions

                self._actions = SlurmActions()
            return self._actions
