"""How does the advisor hand all jobs and nodes to whoever asks, without asking Slurm itself and without thinking?

A process of its own asks (`snapshots`) and leaves a file; the advisor reads it when it has changed, cuts out what the
asking user may not see, and sends bytes. It does so once for all users who see the same.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.own_folder import OwnFolder
from opsk.slurm.snapshot import LARGEST_BYTES, Packed, seen_by, unpack
from opsk_jobcheck.cluster_state.snapshots import SNAPSHOT, WANTED
from opsk_jobcheck.service.supervised_process import SupervisedProcess
from opsk_jobcheck.submission.protocol import frame

ASKER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.cluster_state.snapshots")
RESTART_PAUSE_S = 30.0
WANTED_EVERY_S = 1.0
MOST_FRAMES = 256

log = logging.getLogger(__name__)


class SharedCluster:
    """What the advisor knows of all jobs and nodes.

    Parameters
    ----------
    sees_all
        Tells whether Slurm hides nothing from a uid.
    command
        Program that asks; it gets the folder and the interval as its last words.
    """

    def __init__(
        self, site: SiteConfig, sees_all: Callable[[int], bool], *, command: Sequence[str] = ASKER_COMMAND
    ) -> None:
        self._site = site
        self._sees_all = sees_all
        self._command = command
        self._folder: Path | None = site.advisor.live_folder
        self._own: OwnFolder | None = None
        self._asker = SupervisedProcess("jobs and nodes are not shared", RESTART_PAUSE_S)
        self._wanted_at_s = float("-inf")
        self._seen: tuple[int, int] | None = None
        self._packed: Packed | None = None
        self._frames: dict[tuple[int | None, str], bytes] = {}

    @property
    def is_off(self) -> bool:
        """Whether this site shares nothing."""
        return self._site.top.slurm_interval_s <= 0

    def frame_for(self, uid: int, have: str) -> bytes | None:
        """Return what a user is sent; ``None`` while nothing is known.

        Parameters
        ----------
        have
            Digest of what he has already.
        """
        self._want()
        packed = self._newest()
        if packed is None:
            return None
        sees_all = not packed.head.get("private") or self._sees_all(uid)
        key = (None if sees_all else uid, have)
        found = self._frames.get(key)
        if found is None:
            if len(self._frames) >= MOST_FRAMES:
                self._frames.clear()
            found = self._frames[key] = frame(seen_by(packed, uid, sees_all=sees_all, have=have).to_bytes())
        return found

    async def renew(self, site: SiteConfig) -> None:
        """Take over a new configuration; whoever asks next starts the process again."""
        await self.close()
        self._site, self._folder = site, site.advisor.live_folder

    async def close(self) -> None:
        """End the process and remove the folder."""
        await self._asker.stop()
        self._seen, self._packed, self._wanted_at_s = None, None, float("-inf")
        self._frames.clear()
        if self._own is not None:
            await asyncio.to_thread(self._own.remove)
            self._folder, self._own = None, None

    def _want(self) -> None:
        """Say that somebody wants to know, and have somebody ask."""
        now_s = time.monotonic()
        if now_s - self._wanted_at_s < WANTED_EVERY_S:
            return
        self._wanted_at_s = now_s
        if self._folder is None:
            self._own = OwnFolder("cluster")
            self._folder = self._own.path
        with suppress(OSError):
            (self._folder / WANTED).touch(mode=0o600)
        if self._own is not None:
            self._asker.start((*self._command, str(self._own.path), str(self._site.top.slurm_interval_s)))

    def _newest(self) -> Packed | None:
        """Return what lies in the folder, read once; where that is damaged, what lay there before."""
        path = (self._folder or Path()) / SNAPSHOT
        try:
            facts = path.stat()
            seen = (facts.st_mtime_ns, facts.st_ino)
            if seen != self._seen:
                self._seen = seen
                if facts.st_size <= LARGEST_BYTES:
                    self._packed = unpack(path.read_bytes())
                    self._frames.clear()
        except InputError as error:
            log.warning("jobs and nodes are not shared anew: %s", error.message)
        except OSError:
            return None
        return self._packed
