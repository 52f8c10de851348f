"""Runs the process that writes records from the advisor's socket into the store.

Its standard input carries frames of JSON: the sender, whether the sender may write any record, and the records. An
invalid record costs only that record. A store that is locked, full or away is retried with growing pauses, while later
frames wait in the pipe; the advisor takes no more when too many wait. The process ends when its input does.
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
from opsk_jobcheck.cluster_state.snapshots import WatcherJobs
from opsk_jobcheck.submission.protocol import read_frame

NICENESS = 10
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
GIVEN_UP_AFTER_S = 3600.0
"""Records are dropped when the store has been away for so long."""
OWNERS_KNOWN_FOR_S = 600.0
UNKNOWN_FOR_S = 60.0
"""A job that was unknown may have been too young."""
OWNER_QUESTIONS_A_MINUTE, OF_ONE_USER_A_MINUTE = 60, 20
"""A sender that names others' jobs uses up its own share of the queries, not that of others."""
MAX_OWNERS = 4096
MAX_REPORTED, MAX_REPORTED_CHARS = 3, 200
"""Number and length of the errors of one question that are logged."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Owners:
    """Looks up the owners of jobs, once per job and rarely.

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
        """Return whether a job belongs to a user; no, where Slurm does not answer."""
        now_s = self.clock()
        known_at_s, owner = self._known.get(job, (float("-inf"), None))
        if now_s - known_at_s > (UNKNOWN_FOR_S if owner is None else OWNERS_KNOWN_FOR_S):
            self._asked = [query for query in self._asked if now_s - query[0] < 60]
            user_queries = sum(asker == uid for _, asker in self._asked)
            if len(self._asked) >= OWNER_QUESTIONS_A_MINUTE or user_queries >= OF_ONE_USER_A_MINUTE:
                return False
            self._asked.append((now_s, uid))
            owner = self._look_up(job)
            if len(self._known) >= MAX_OWNERS:
                self._known.clear()
            self._known[job] = (now_s, owner)
        return owner == uid

    def _look_up(self, job: str) -> int | None:
        try:
            return pwd.getpwnam(self.user_of(job)).pw_uid
        except (OpskError, KeyError, ValueError):
            return None


def filter_records(lines: Iterable[str], *, cluster: Callable[[], str], may: Callable[[Record], bool]) -> list[Record]:
    """Return the valid records.

    Parameters
    ----------
    cluster
        Returns the cluster of a record that does not name one itself.
    may
        Returns whether the sender of a record may write it.
    """
    accepted = []
    refused: list[str] = []
    for line in lines:
        try:
            record = decode(_with_cluster(line, cluster))
        except InputError as error:
            refused.append(error.message)
            continue
        if may(record):
            accepted.append(record)
        else:
            refused.append(f"a record of {record.kind} that its sender may not write")
    # The reasons contain text from users: it must not start a line of the log, nor fill the log.
    for reason in refused[:MAX_REPORTED]:
        log.warning("%s", _excerpt(reason))
    if len(refused) > MAX_REPORTED:
        log.warning("and %d more of the same sender", len(refused) - MAX_REPORTED)
    return accepted


def _excerpt(text: str) -> str:
    return escape(text[:MAX_REPORTED_CHARS])


def _with_cluster(line: str, cluster: Callable[[], str]) -> str:
    """Return a record with its cluster."""
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(line)
        if isinstance(document, dict) and not document.get("cluster"):
            return json.dumps({**document, "cluster": cluster()})
    return line


def store_records(
    records: list[Record],
    writer: Writer,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write records, retrying until they are stored; records that are invalid one by one are left out."""
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
                log.warning("%s", _excerpt(error.message))
        except StoreError as error:
            if clock() - began_s > GIVEN_UP_AFTER_S:
                log.error("records are lost: %s", error.message)  # noqa: TRY400 - the store's own words
                return
            log.warning("records wait: %s", error.message)
            sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)


class _LazyStore:
    """Opens the store when there is something to write, and again after that failed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._writer: DirectWriter | None = None

    def write(self, records: Any) -> Any:
        """Write into the store; see `opsk.store.writing.Writer`."""
        if self._writer is None:
            self._writer = DirectWriter(open_store(self._url))
        return self._writer.write(records)


class _ClusterName:
    """The name of this cluster."""

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
    """Write incoming records; the first frame is the site configuration."""
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
    watcher_jobs = WatcherJobs(site.advisor.live_folder, site.top.slurm_interval_s)
    owners = Owners(user_of=lambda job: watcher_jobs.find_user(job) or slurm.job(job).user)
    cluster = _ClusterName(lambda: {"ClusterName": name} if (name := watcher_jobs.cluster()) else slurm.config())
    store = _LazyStore(site.store.url or default_url())
    while (body := read_frame(incoming)) is not None:
        try:
            message = json.loads(body)
            uid, is_trusted = int(message["uid"]), bool(message["trusted"])

            def may(record: Record, uid: int = uid, is_trusted: bool = is_trusted) -> bool:
                return is_trusted or (record.kind == "measured" and owners.is_owner(uid, record.job))

            records = filter_records(message["records"], cluster=cluster, may=may)
            if records:
                store_records(records, store)
        except Exception:
            log.exception("records that cannot be kept")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: records: %(levelname)s %(message)s")
    main()
