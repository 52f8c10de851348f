"""Runs the process that copies from the store what the advisor looks up: earlier runs, and the site's own errors.

It reads the store, which the advisor never waits for: all earlier runs once, then those that changed since, and at
intervals all jobs that were predicted. It ends when its standard input does.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from opsk.app.accuracy.fit import compute_current_errors, find_fit_since
from opsk.app.accuracy.jobs import read_compared_jobs
from opsk.config import SiteConfig
from opsk.diagnosis.accuracy.comparison import ComparedJob
from opsk.errors import OpskError
from opsk.hardware.catalog_index import normalise_key
from opsk.history.runs import PastRun
from opsk.history.submission import GPUS
from opsk.store.database.engine import open_store
from opsk.store.database.urls import default_url
from opsk.store.records.use import JobUsed, find_used
from opsk_jobcheck.advice.site_errors_file import FILE_NAME as SITE_ERRORS
from opsk_jobcheck.advice.site_errors_file import write_site_errors
from opsk_jobcheck.cluster_state.coordinators import CoordinatorLookup
from opsk_jobcheck.history.gpu_memory import list_gpu_memory
from opsk_jobcheck.history.index_file import FILE_NAME, Level, build_account_key, build_key, write_index
from opsk_jobcheck.submission.protocol import read_frame

NICENESS = 10
ERRORS_EVERY_S = 900.0
"""The site's errors change with every job that ends, and slowly."""
OVERLAP_S = 600.0
"""Each query goes back so far: the clock of another writer may be slow."""
Key = tuple[str, str, datetime]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RunIndex:
    """All runs that count, by user and program.

    Parameters
    ----------
    runs
        Number of runs of one program, the last ones.
    days
        Older runs do not count.
    """

    runs: int
    days: int
    _by_key: dict[bytes, dict[Key, tuple[datetime, bytes]]] = field(default_factory=lambda: defaultdict(dict))
    _accounts: dict[bytes, str] = field(default_factory=dict)
    _capacities: dict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, rows: Iterable[JobUsed], now: datetime) -> bool:
        """Add runs that have ended; return whether there was any."""
        oldest = now - timedelta(days=self.days)
        is_changed = False
        for row in rows:
            if row.ended_at is None or row.ended_at < oldest:
                continue
            packed = (row.ended_at, json.dumps(build_past_run(row).pack()).encode("ascii"))
            key: Key = (row.cluster, row.job, row.submitted_at)
            for index_key in self._build_keys(row):
                runs = self._by_key[index_key]
                is_changed = is_changed or runs.get(key) != packed
                runs[key] = packed
                if len(runs) > self.runs:
                    del runs[next(iter(runs))]
            if row.capacity_bytes:
                self._capacities[normalise_key(row.gpu_type or "")][row.capacity_bytes] += 1
        return is_changed

    def _build_keys(self, row: JobUsed) -> list[bytes]:
        """Return the keys of a run: those of its user, and those of its account, for the account's coordinators."""
        levels: tuple[tuple[Level, str], ...] = (("script", row.script_key), ("command", row.command_key))
        keys = [build_key(row.uid, level, key) for level, key in levels]
        if row.account:
            of_account = [build_account_key(row.account, level, key) for level, key in levels]
            self._accounts |= dict.fromkeys(of_account, row.account)
            keys += of_account
        return keys

    def documents(self, now: datetime, coordinated: Collection[str] = ()) -> dict[bytes, bytes]:
        """Return the runs of each program as a JSON list.

        Parameters
        ----------
        coordinated
            Accounts that have a coordinator; nobody may see those of others.
        """
        oldest = now - timedelta(days=self.days)
        documents = {}
        for key, runs in list(self._by_key.items()):
            recent = [packed for ended_at, packed in runs.values() if ended_at >= oldest]
            if not recent:
                del self._by_key[key]
                self._accounts.pop(key, None)
            elif key not in self._accounts or self._accounts[key] in coordinated:
                documents[key] = b"[" + b",".join(recent) + b"]"
        return documents

    def capacities(self) -> dict[str, float]:
        """Return the memory of a GPU of each type that runs had, by its name in Slurm [bytes]."""
        return {name: counts.most_common(1)[0][0] for name, counts in self._capacities.items()}


def build_past_run(row: JobUsed) -> PastRun:
    """Return a row as a run."""
    settings = {str(name): str(value) for name, value in row.settings.items()} if isinstance(row.settings, dict) else {}
    ended_at = row.ended_at or row.at
    return PastRun(
        job=row.job,
        ended_at_s=ended_at.timestamp(),
        settings=settings | ({GPUS: str(row.gpus)} if row.gpus else {}),
        gpu_type=row.gpu_type or "",
        gpus=row.gpus or 0,
        capacity_bytes=row.capacity_bytes,
        memory_peak_bytes=row.memory_peak_bytes,
        activity=row.activity,
        idle_gpus=row.idle_gpus,
        power_w=row.power_w,
        host_memory_peak_bytes=row.host_memory_peak_bytes,
        observed_s=row.observed_s or 0.0,
        elapsed_s=(ended_at - row.started_at).total_seconds() if row.started_at is not None else None,
        time_limit_s=row.time_limit_s,
        state=row.state or "",
    )


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Brings the file up to date.

    Parameters
    ----------
    path
        The file.
    index
        What it is written from.
    read
        Returns rows that were recorded since a time.
    known_capacities
        Memory of GPUs by the names that Slurm may have for them, for types that no run had [bytes].
    read_coordinators
        Returns the accounts that each uid coordinates.
    """

    path: Path
    index: RunIndex
    read: Callable[[datetime], list[JobUsed]]
    known_capacities: Mapping[str, float] = field(default_factory=dict)
    read_coordinators: Callable[[], Mapping[int, Sequence[str]]] = dict
    _coordinators: Mapping[int, Sequence[str]] = field(default_factory=dict)
    _since: datetime | None = None

    def publish(self, now: datetime) -> None:
        """Read what is new, and replace the file where anything changed.

        Raises
        ------
        OpskError
            The store does not answer.
        OSError
            The file cannot be written.
        """
        rows = self.read(self._since or now - timedelta(days=self.index.days))
        if self.index.add(rows, now) or self._since is None:
            self._write(now)
        coordinators = self.read_coordinators()  # slurmdbd may be slow: the runs themselves do not wait for it
        if coordinators != self._coordinators:
            self._coordinators = coordinators
            self._write(now)
        self._since = max((row.at for row in rows), default=self._since or now) - timedelta(seconds=OVERLAP_S)

    def _write(self, now: datetime) -> None:
        """Replace the file."""
        header = {
            "capacities": {**self.known_capacities, **self.index.capacities()},
            "coordinators": {str(uid): list(accounts) for uid, accounts in self._coordinators.items()},
        }
        coordinated = {account for accounts in self._coordinators.values() for account in accounts}
        write_index(self.path, self.index.documents(now, coordinated), header)


@dataclass(slots=True, kw_only=True)
class SiteErrorsPublisher:
    """Computes the site's own errors again from time to time.

    Parameters
    ----------
    path
        The file.
    read
        Returns the compared jobs that were submitted since a time.
    days
        Older jobs do not count.
    find_fit_since
        Returns since when predictions use the present fit of the site; ``None``: there is none.
    clock
        A monotonic clock [s].
    """

    path: Path
    read: Callable[[datetime], Iterable[ComparedJob]]
    days: int
    find_fit_since: Callable[[], datetime | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    _due_s: float = float("-inf")

    def publish(self, now: datetime) -> bool:
        """Replace the file where that is due; return whether it was.

        Raises
        ------
        OpskError
            The store does not answer.
        OSError
            The file cannot be written.
        """
        began_s = self.clock()
        if began_s < self._due_s:
            return False
        jobs = self.read(now - timedelta(days=self.days))
        write_site_errors(self.path, compute_current_errors(jobs, self.find_fit_since()))
        self._due_s = self.clock() + max(ERRORS_EVERY_S, 100 * (self.clock() - began_s))
        return True


def _has_ended(timeout_s: float) -> bool:
    """Wait, and return whether the advisor has closed the input."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return bool(ready)


def main() -> None:
    """Publish until the input ends; its first frame is the site configuration."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    setup = read_frame(sys.stdin.buffer)
    if setup is None:
        return
    site = SiteConfig.model_validate_json(setup)
    url = site.store.url or default_url()
    engine = None
    index = RunIndex(runs=site.history.runs, days=site.history.days)
    known = list_gpu_memory(site.cluster)
    publisher = Publisher(
        path=Path(sys.argv[-1]) / FILE_NAME, index=index, known_capacities=known,
        read=lambda since: find_used(engine, since=since) if engine is not None else [],
        read_coordinators=CoordinatorLookup(site.advisor.live_folder),
    )  # fmt: skip
    errors = SiteErrorsPublisher(
        path=Path(sys.argv[-1]) / SITE_ERRORS, days=site.history.days, find_fit_since=lambda: find_fit_since(site),
        read=lambda since: read_compared_jobs(engine, since=since).jobs if engine is not None else (),
    )  # fmt: skip
    problem = ""
    while True:
        began_s = time.monotonic()
        before, problem, refreshed_s = problem, "", 0.0
        try:
            engine = engine or open_store(url, writing=False)
            publisher.publish(datetime.now(UTC))
            refreshed_s = time.monotonic() - began_s
            errors.publish(datetime.now(UTC))
        except OpskError as error:
            problem = error.message
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and problem != before:
            log.warning("earlier runs are not up to date: %s", problem)
        # a slow store is read less often
        if _has_ended(max(site.history.refresh_s, 10 * (refreshed_s or time.monotonic() - began_s))):
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: history: %(levelname)s %(message)s")
    main()
