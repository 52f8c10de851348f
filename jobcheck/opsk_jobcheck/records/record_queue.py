"""Queues records for the store without ever waiting for it.

A process of its own writes (`recorder`); between the two are a pipe and a bounded queue: what does not fit is refused
at once, and its sender sends it again later.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from opsk.config import SiteConfig
from opsk.units import MIB
from opsk_jobcheck.submission.protocol import frame
from opsk_jobcheck.workers.supervision import RunningProcess, SupervisedProcess

RECORDER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.records.recorder")
MAX_WAITING_BYTES = 8 * MIB
MAX_USERS_BYTES = MAX_WAITING_BYTES // 2
OF_ONE_USER_BYTES_A_MINUTE = 2 * MIB
"""While the store is away users together leave room for the site's own records, and one user for the others."""
RESTART_PAUSE_S = 10.0

log = logging.getLogger(__name__)


class RecordQueue:
    """The queue to the store.

    Parameters
    ----------
    is_trusted
        Returns whether a uid may write any record; others may write measurements of their own jobs.
    command
        Program that writes; the site configuration is its first frame.
    """

    def __init__(
        self, site: SiteConfig, is_trusted: Callable[[int], bool], *, command: Sequence[str] = RECORDER_COMMAND
    ) -> None:
        self._site = site
        self._is_trusted = is_trusted
        self._command = command
        self._writer = SupervisedProcess("records are not stored", RESTART_PAUSE_S, self._send_setup)
        self._stdin: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._has_lost = False
        self._minute = 0
        self._sent_bytes: Counter[int] = Counter()

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept records; return whether there was room for them."""
        is_trusted = self._is_trusted(uid)
        data = frame(json.dumps({"uid": uid, "trusted": is_trusted, "records": list(records)}).encode("ascii"))
        if is_trusted:
            return self._enqueue(data)
        return self._reserve_share(uid, len(data)) and self._enqueue(data, max_bytes=MAX_USERS_BYTES)

    def analysis(self, advice: Mapping[str, Any]) -> None:
        """Store advice that was given, where the site has a store; advice without room is lost."""
        self.add({"kind": "advice", **advice})

    def add(self, fields: Mapping[str, Any]) -> None:
        """Store a record of the advisor's own, as of now, where the site has a store; one without room is lost."""
        if self._site.store.url is None:
            return
        record = {"at": datetime.now(UTC).isoformat(), **fields}
        body = {"uid": 0, "trusted": True, "records": [json.dumps(record)]}
        if not self._enqueue(frame(json.dumps(body).encode("ascii"))) and not self._has_lost:
            self._has_lost = True
            log.warning("the store is too slow: advice is given and not stored")

    async def renew(self, site: SiteConfig) -> None:
        """Apply a new configuration; the new process writes what waits."""
        await self._writer.stop()
        self._site = site
        if self._waiting:
            self._writer.start(self._command)

    async def close(self) -> None:
        """Let the process write what was accepted, for a short while, and end it."""
        process = self._writer.process
        if process is not None and process.stdin is not None:
            with suppress(OSError, RuntimeError):
                process.stdin.close()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 2.0)
        await self._writer.stop()

    def _reserve_share(self, uid: int, size_bytes: int) -> bool:
        """Return whether a user may send so much more this minute, and count it."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._sent_bytes = minute, Counter()
        if self._sent_bytes[uid] + size_bytes > OF_ONE_USER_BYTES_A_MINUTE:
            return False
        self._sent_bytes[uid] += size_bytes
        return True

    def _enqueue(self, data: bytes, *, max_bytes: int = MAX_WAITING_BYTES) -> bool:
        stdin = self._stdin if self._writer.process is not None else None
        if stdin is not None and stdin.is_closing():
            stdin = None
        buffered = stdin.transport.get_write_buffer_size() if stdin is not None else 0
        if self._waiting_bytes + buffered + len(data) > max_bytes:
            return False
        if stdin is None:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self._writer.start(self._command)
        else:
            stdin.write(data)
        return True

    async def _send_setup(self, process: RunningProcess) -> None:
        """Send the configuration and the queued data; from now on records are sent at once."""
        if process.stdin is not None:
            process.stdin.write(frame(self._site.model_dump_json().encode()))
            for data in self._waiting:
                process.stdin.write(data)
        self._waiting, self._waiting_bytes, self._stdin = [], 0, process.stdin
