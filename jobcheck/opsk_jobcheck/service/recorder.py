"""How do records that came over the advisor's socket get into the store? The process that writes them.

Its standard input carries frames of JSON: who sent them, whether he may write anything, and the records. Whatever
is wrong with a record costs that record alone. A store that is locked, full or away is tried again, later and later,
while the frames behind it wait where they are; the advisor takes no more when too many wait. It ends when its input
does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsk.config import SiteConfig
from opsk.errors import InputError, OpskError, StoreError
from opsk.slurm.commands.command import CommandClient
from opsk.store.database.engine import open_store
from opsk.store.database.urls import default_url
from opsk.store.writing import DirectWriter, Record, Writer, decode
from opsk.text import escape
from opsk_jobcheck.cluster_state.handed_jobs import HandedJobs
from opsk_jobcheck.service.worker import read_frame

NICENESS = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
GIVEN_UP_AFTER_S = 3600.0
"""Records are not kept for a store that has been away for so long."""
OWNERS_KNOWN_FOR_S = 600.0
UNKNOWN_FOR_S = 60.0
"""A job that nobody knew may have been too young."""
OWNER_QUESTIONS_A_MINUTE, OF_ONE_USER_A_MINUTE = 60, 20
"""Who names jobs that are not his uses up his own questions, not those of others."""
MOST_OWNERS = 4096
MAX_CACHED, LONGEST_TOLD = 3, 200
"""Of what is wrong with the records of one question, so much goes into the log."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Owners:
    """Whose job is it? It is asked once a job, and seldom.

    Parameters
    ----------
    user_of
        Finds the name of a job's user.
    clock
        A monotonic clock [s].
    """

    user_of: Callable[[str], str]
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    _asked: list[tuple[float, int]] = field(default_factory=list)

    def is_owner(self, uid: int, job: str) -> bool:
        """Tell whether a job is a user's; no, where Slurm does not say."""
        now_s = self.clock()
        at_s, owner = self._known.get(job, (float("-inf"), None))
        if now_s - at_s > (UNKNOWN_FOR_S if owner is None else OWNERS_KNOWN_FOR_S):
            self._asked = [each for each in self._asked if now_s - each[0] < 60]
            of_user = sum(who == uid for _, who in self._asked)
            if len(self._asked) >= OWNER_QUESTIONS_A_MINUTE or of_user >= OF_ONE_USER_A_MINUTE:
                return False
            self._asked.append((now_s, uid))
            owner = self._ask(job)
            if len(self._known) >= MOST_OWNERS:
                self._known.clear()
            self._known[job] = (now_s, owner)
        return owner == uid

    def _ask(self, job: str) -> int | None:
        try:
            return pwd.getpwnam(self.user_of(job)).pw_uid
        except (OpskError, KeyError, ValueError):
            return None


def sound(lines: Iterable[str], *, cluster: Callable[[], str], may: Callable[[Record], bool]) -> list[Record]:
    """Return the records that can be kept.

    Parameters
    ----------
    cluster
        Names the cluster of a record that does not name one itself.
    may
        Tells whether who sent a record may write it.
    """
    found = []
    refused: list[str] = []
    for line in lines:
        try:
            record = decode(_with_cluster(line, cluster))
        except InputError as error:
            refused.append(error.message)
            continue
        if may(record):
            found.append(record)
        else:
            refused.append(f"a record of {record.kind} that its sender may not write")
    # What users sent is in these words: no line of the log may begin with it, nor all of the log be full of it.
    for words in refused[:MAX_CACHED]:
        log.warning("%s", _told(words))
    if len(refused) > MAX_CACHED:
        log.warning("and %d more of the same sender", len(refused) - MAX_CACHED)
    return found


def _told(words: str) -> str:
    return escape(words[:LONGEST_TOLD])


def _with_cluster(line: str, cluster: Callable[[], str]) -> str:
    """Return a record with the cluster that it is of."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(line)
        if isinstance(said, dict) and not said.get("cluster"):
            return json.dumps({**said, "cluster": cluster()})
    return line


def keep(
    records: list[Record],
    writer: Writer,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write records, again and again until they are kept; those that cannot be kept one by one are left out."""
    began_s, pause_s = clock(), FIRST_PAUSE_S
    waiting = [records]
    while waiting:
        try:
            writer.write(waiting[0])
            waiting.pop(0)
        except InputError as error:
            batch = waiting.pop(0)
            if len(batch) > 1:
                waiting[:0] = [[record] for record in batch]
            else:
                log.warning("%s", _told(error.message))
        except StoreError as error:
            if clock() - began_s > GIVEN_UP_AFTER_S:
                log.error("records are lost: %s", error.message)  # noqa: TRY400 - the store's own words
                return
            log.warning("records wait: %s", error.message)
            sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class _Opening:
    """Opens the store when something is to be written, and again after that failed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._writer: DirectWriter | None = None

    def write(self, records: Any) -> Any:
        """Write into the store; see `opsk.store.writing.Writer`."""
        if self._writer is None:
            self._writer = DirectWriter(open_store(self._url))
        return self._writer.write(records)


class _Cluster:
    """What this cluster is called."""

    def __init__(self, config: Callable[[], Mapping[str, str]]) -> None:
        self._config = config
        self._name = ""

    def __call__(self) -> str:
        """Return ``ClusterName``, else this host's name."""
        if not self._name:
            with contextlib.suppress(OpskError):
                self._name = self._config().get("ClusterName", "")
        return self._name or socket.gethostname() or "unknown"


def main() -> None:
    """Write what comes; the first frame is the site configuration."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    incoming = sys.stdin.buffer
    setup = read_frame(incoming)
    if setup is None:
        return
    site = SiteConfig.model_validate_json(setup)
    slurm = CommandClient()
    handed = HandedJobs(site.advisor.live_folder, site.top.slurm_interval_s)
    owners = Owners(user_of=lambda job: handed.user_of(job) or slurm.job(job).user)
    cluster = _Cluster(lambda: {"ClusterName": name} if (name := handed.cluster()) else slurm.config())
    store = _Opening(site.store.url or default_url())
    while (body := read_frame(incoming)) is not None:
        try:
            said = json.loads(body)
            uid, is_trusted = int(said["uid"]), bool(said["trusted"])

            def may(record: Record, uid: int = uid, is_trusted: bool = is_trusted) -> bool:
                return is_trusted or (record.kind == "measured" and owners.is_owner(uid, record.job))

            records = sound(said["records"], cluster=cluster, may=may)
            if records:
                keep(records, store)
        except Exception:
            log.exception("records that cannot be kept")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: records: %(levelname)s %(message)s")
    main()
