"""Serves the shared snapshot of all jobs and nodes, without asking Slurm itself and without computing anything.

A process of its own asks (`snapshots`) and writes a file; the advisor reads it when it has changed, removes what the
requesting user may not see, and sends bytes. It does so once for all users who see the same.
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
from opsk.process_folder import ProcessFolder
from opsk.slurm.snapshot import MAX_BYTES, Packed, filter_visible, unpack
from opsk_jobcheck.cluster_state.snapshots import REQUEST_FILE, SNAPSHOT
from opsk_jobcheck.submission.protocol import frame
from opsk_jobcheck.workers.supervision import SupervisedProcess

ASKER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.cluster_state.snapshots")
RESTART_PAUSE_S = 30.0
REQUEST_EVERY_S = 1.0
MAX_FRAMES = 256

log = logging.getLogger(__name__)


class SharedCluster:
    """The shared snapshot of all jobs and nodes.

    Parameters
    ----------
    sees_all
        Returns whether Slurm hides nothing from a uid.
    command
        Program that queries Slurm; it gets the folder and the interval as its last arguments.
    """

    def __init__(
        self, site: SiteConfig, sees_all: Callable[[int], bool], *, command: Sequence[str] = ASKER_COMMAND
    ) -> None:
        self._site = site
        self._sees_all = sees_all
        self._command = command
        self._folder: Path | None = site.advisor.live_folder
        self._local_folder: ProcessFolder | None = None
        self._asker = SupervisedProcess("jobs and nodes are not shared", RESTART_PAUSE_S)
        self._requested_at_s = float("-inf")
        self._file_stamp: tuple[int, int] | None = None
        self._packed: Packed | None = None
        self._frames: dict[tuple[int | None, str], bytes] = {}

    @property
    def is_off(self) -> bool:
        """Whether this site shares nothing."""
        return self._site.top.slurm_interval_s <= 0

    def frame_for(self, uid: int, have: str) -> bytes | None:
        """Return the frame for a user; ``None`` while nothing is known.

        Parameters
        ----------
        have
            Digest of the snapshot that the user has already.
        """
        self._request_snapshot()
        packed = self._read_newest()
        if packed is None:
            return None
        sees_all = not packed.head.get("private") or self._sees_all(uid)
        key = (None if sees_all else uid, have)
        frame_bytes = self._frames.get(key)
        if frame_bytes is None:
            if len(self._frames) >= MAX_FRAMES:
                self._frames.clear()
            frame_bytes = self._frames[key] = frame(
                filter_visible(packed, uid, sees_all=sees_all, have=have).to_bytes()
            )
        return frame_bytes

    async def renew(self, site: SiteConfig) -> None:
        """Apply a new configuration; the next request starts the process again."""
        await self.close()
        self._site, self._folder = site, site.advisor.live_folder

    async def close(self) -> None:
        """End the process and remove the folder."""
        await self._asker.stop()
        self._file_stamp, self._packed, self._requested_at_s = None, None, float("-inf")
        self._frames.clear()
        if self._local_folder is not None:
            await asyncio.to_thread(self._local_folder.remove)
            self._folder, self._local_folder = None, None

    def _request_snapshot(self) -> None:
        """Request a snapshot, and start the process that queries Slurm."""
        now_s = time.monotonic()
        if now_s - self._requested_at_s < REQUEST_EVERY_S:
            return
        self._requested_at_s = now_s
        if self._folder is None:
            self._local_folder = ProcessFolder("cluster")
            self._folder = self._local_folder.path
        with suppress(OSError):
            (self._folder / REQUEST_FILE).touch(mode=0o600)
        if self._local_folder is not None:
            self._asker.start((*self._command, str(self._local_folder.path), str(self._site.top.slurm_interval_s)))

    def _read_newest(self) -> Packed | None:
        """Return the snapshot in the folder, read once; the previous one where it is damaged."""
        path = (self._folder or Path()) / SNAPSHOT
        try:
            facts = path.stat()
            stamp = (facts.st_mtime_ns, facts.st_ino)
            if stamp != self._file_stamp:
                self._file_stamp = stamp
                if facts.st_size <= MAX_BYTES:
                    self._packed = unpack(path.read_bytes())
                    self._frames.clear()
        except InputError as error:
            log.warning("a damaged snapshot of jobs and nodes is skipped: %s", error.message)
        except OSError:
            return None
        return self._packed
