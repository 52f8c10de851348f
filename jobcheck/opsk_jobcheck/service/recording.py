"""How does the advisor pass records on to the store without ever waiting for it?

A process of its own writes (`recorder`); between the two is a pipe, and a queue that has an end: what does not fit is
refused at once, and whoever sent it sends it again later.
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
from opsk_jobcheck.service.supervised_process import SupervisedProcess
from opsk_jobcheck.submission.protocol import frame

RECORDER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.service.recorder")
MOST_WAITING_BYTES = 8 * MIB
MOST_OF_USERS_BYTES = MOST_WAITING_BYTES // 2
OF_ONE_USER_BYTES_A_MINUTE = 2 * MIB
"""While the store is away users together leave room for the site's own records, and one of them for the others."""
RESTART_PAUSE_S = 10.0

log = logging.getLogger(__name__)


class Recording:
    """The queue to the store.

    Parameters
    ----------
    is_trusted
        Tells whether a uid may write any record; others may write what was measured of their own jobs.
    command
        Program that writes; the site configuration is its first frame.
    """

    def __init__(
        self, site: SiteConfig, is_trusted: Callable[[int], bool], *, command: Sequence[str] = RECORDER_COMMAND
    ) -> None:
        self._site = site
        self._is_trusted = is_trusted
        self._command = command
        self._writer = SupervisedProcess("records are not kept", RESTART_PAUSE_S, self._begun)
        self._stdin: asyncio.StreamWriter | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._has_lost = False
        self._minute = 0
        self._sent_bytes: Counter[int] = Counter()

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Take records; tell whether there was room for them."""
        is_trusted = self._is_trusted(uid)
        data = frame(json.dumps({"uid": uid, "trusted": is_trusted, "records": list(records)}).encode("ascii"))
        if is_trusted:
            return self._put(data)
        return self._has_share(uid, len(data)) and self._put(data, most_bytes=MOST_OF_USERS_BYTES)

    def analysis(self, advice: Mapping[str, Any]) -> None:
        """Keep advice that was given, where the site has a store; advice that finds no room is lost."""
        if self._site.store.url is None:
            return
        said = {"kind": "advice", "at": datetime.now(UTC).isoformat(), **advice}
        body = {"uid": 0, "trusted": True, "records": [json.dumps(said)]}
        if not self._put(frame(json.dumps(body).encode("ascii"))) and not self._has_lost:
            self._has_lost = True
            log.warning("the store is too slow: advice is given and not kept")

    async def renew(self, site: SiteConfig) -> None:
        """Take over a new configuration; what waits is written by the new process."""
        await self._writer.stop()
        self._site = site
        if self._waiting:
            self._writer.start(self._command)

    async def close(self) -> None:
        """Let what was taken be written, for a short while, and end."""
        process = self._writer.process
        if process is not None and process.stdin is not None:
            with suppress(OSError, RuntimeError):
                process.stdin.close()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 2.0)
        await self._writer.stop()

    def _has_share(self, uid: int, size_bytes: int) -> bool:
        """Tell whether a user may send so much more this minute, and count it."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._sent_bytes = minute, Counter()
        if self._sent_bytes[uid] + size_bytes > OF_ONE_USER_BYTES_A_MINUTE:
            return False
        self._sent_bytes[uid] += size_bytes
        return True

    def _put(self, data: bytes, *, most_bytes: int = MOST_WAITING_BYTES) -> bool:
        stdin = self._stdin if self._writer.process is not None else None
        if stdin is not None and stdin.is_closing():
            stdin = None
        buffered = stdin.transport.get_write_buffer_size() if stdin is not None else 0
        if self._waiting_bytes + buffered + len(data) > most_bytes:
            return False
        if stdin is None:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self._writer.start(self._command)
        else:
            stdin.write(data)
        return True

    async def _begun(self, process: asyncio.subprocess.Process) -> None:
        """Hand over the configuration and what has waited; from now on records go to it at once."""
        if process.stdin is not None:
            process.stdin.write(frame(self._site.model_dump_json().encode()))
            for data in self._waiting:
                process.stdin.write(data)
        self._waiting, self._waiting_bytes, self._stdin = [], 0, process.stdin
