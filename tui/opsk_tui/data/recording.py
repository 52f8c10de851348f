"""Converts cluster views into records for the store, each sent once.

A job is recorded when it has advice or reports progress. Measurements are recorded in intervals, so that the store
grows by minutes and not by refreshes. A failure is recorded when it begins and when it is over.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median

from opsk.diagnosis.events.observations import Event, Severity
from opsk.diagnosis.losses.values import Losses
from opsk.errors import InputError, OpskError, SlurmError
from opsk.hostlist import fold
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient
from opsk.slurm.records import JobRecord
from opsk.store.records.clusters import ClusterSeen
from opsk.store.records.failures import FailureSeen
from opsk.store.records.jobs import JobSeen
from opsk.store.records.measurements import Measured
from opsk.store.writing import Record
from opsk_tui.data.loss_reports import build_loss_report
from opsk_tui.data.view import ClusterView, JobView, Source

QUESTIONS_A_MINUTE = 30
AGAIN_AFTER_S = 5.0
GIVEN_UP_AFTER_S = 900.0
"""After this time a job that Slurm does not know is taken to have ended."""
EndLookup = Callable[[str, datetime], JobRecord | None]
"""Returns Slurm's record of a job by its id and submission time; ``None``: there is none. Raises an `OpskError`
where Slurm does not answer.
"""
EVERY_S = 300.0
SOURCE = "events"
"""The source of failures recorded here; those of others are left alone."""
SETTLE_S = 120.0
"""Failures that were open before and do not appear within this time are over."""
_XID = re.compile(r"\bXID (\d{1,4})\b")
_RATES = ("step_s", "tokens_per_s", "tflops_per_gpu", "mfu")


@dataclass(slots=True, kw_only=True)
class _PendingEnd:
    """A job that is not listed: its last record, since when it is gone, and when to query again."""

    seen: JobSeen
    since_s: float
    due_s: float


class Endings:
    """Jobs that are gone, until their ends are known.

    Parameters
    ----------
    ended
        Queries Slurm.
    """

    def __init__(self, ended: EndLookup) -> None:
        self._ended = ended
        self._pending: dict[tuple[str, datetime], _PendingEnd] = {}

    def add(self, seen: JobSeen, now_s: float) -> None:
        """Query from now on how a job ended."""
        self._pending.setdefault((seen.job, seen.submitted_at), _PendingEnd(seen=seen, since_s=now_s, due_s=now_s))

    def forget(self, keys: Iterable[tuple[str, datetime]]) -> None:
        """Stop querying jobs that are listed again."""
        for key in keys:
            self._pending.pop(key, None)

    def pop_ended(self, now_s: float) -> list[JobSeen]:
        """Return the jobs whose ends have become known; those that Slurm has forgotten ended by now."""
        ended = []
        for key, pending in list(self._pending.items()):
            if now_s < pending.due_s <= now_s + AGAIN_AFTER_S:
                continue
            pending.due_s = now_s + AGAIN_AFTER_S
            record = self._resolve(pending, now_s)
            if record is not None:
                ended.append(record)
                del self._pending[key]
        return ended

    def _resolve(self, pending: _PendingEnd, now_s: float) -> JobSeen | None:
        seen = pending.seen
        at = max(seen.at, datetime.fromtimestamp(now_s, UTC))
        has_waited_long = abs(now_s - pending.since_s) > GIVEN_UP_AFTER_S
        try:
            last = self._ended(seen.job, seen.submitted_at)
        except OpskError:
            return _with_unknown_end(seen, at) if has_waited_long else None
        if last is None:
            return _with_unknown_end(seen, at)
        if last.is_active and not has_waited_long:
            return None
        return _with_unknown_end(seen, at) if last.is_active else _with_known_end(seen, last, at)


class SlurmEnds:
    """Queries how jobs ended, a bounded number per minute: slurmctld, then the accounting."""

    def __init__(
        self,
        *,
        slurm: SlurmClient | None = None,
        accounting: AccountingClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slurm, self._accounting = slurm or slurm_client(), accounting or AccountingClient()
        self._clock = clock
        self._query_times: deque[float] = deque(maxlen=QUESTIONS_A_MINUTE)

    def __call__(self, job: str, submitted: datetime) -> JobRecord | None:
        """Return Slurm's record of one submission of a job; ``None``: there is none.

        Raises
        ------
        SlurmError
            It does not answer, or the limit of queries is reached.
        """
        now_s = self._clock()
        if len(self._query_times) == QUESTIONS_A_MINUTE and now_s - self._query_times[0] < 60:
            raise SlurmError("Slurm has been asked often enough for a minute")
        self._query_times.append(now_s)
        try:
            known = self._slurm.job(job)
        except InputError:
            known = None
        if known is not None and known.submit_time == submitted:
            return known
        try:
            runs = self._accounting.runs(job)
        except InputError:
            return None
        matching = [run for run in runs if run.submit_s == submitted.timestamp()]
        return build_job_record(matching[-1]) if matching else None


def build_job_record(run: AccountedRun) -> JobRecord:
    """Return a run of the accounting as a job."""
    return JobRecord(
        id=run.id, label=run.label, user=run.user, account=run.account, partition=run.partition, qos=run.qos,
        name=run.name, admin_comment=run.admin_comment or None, state=run.state, nodes=run.nodes,
        node_count=len(run.nodes), gpus=run.gpus, exit_code=run.exit_code, exit_signal=run.exit_signal,
        submit_time=_to_time(run.submit_s), start_time=_to_time(run.start_s), end_time=_to_time(run.end_s),
    )  # fmt: skip


def _to_time(unix_s: float | None) -> datetime | None:
    return None if unix_s is None else _to_datetime(unix_s)


def format_exit(record: JobRecord) -> str | None:
    """Return status and signal as Slurm writes them; ``None`` while there are none."""
    return f"{record.exit_code}:{record.exit_signal or 0}" if record.exit_code is not None else None


def _with_known_end(seen: JobSeen, last: JobRecord, at: datetime) -> JobSeen:
    """Return a job with the end that Slurm reports."""
    return replace(
        seen,
        at=at,
        state=last.state,
        exit_code=format_exit(last),
        started_at=last.start_time,
        ended_at=last.end_time or at,
        node_list=fold(last.nodes) if last.nodes else seen.node_list,
        nodes=last.node_count or seen.nodes,
        gpus=last.gpus or seen.gpus,
    )


def _with_unknown_end(seen: JobSeen, at: datetime) -> JobSeen:
    """Return a job whose end is unknown."""
    return replace(seen, at=at, state=None, ended_at=at)


@dataclass(slots=True, kw_only=True)
class _Interval:
    """The measurements of one start of a job since ``from_s``."""

    source: str
    from_s: float
    first: int | None
    last: int | None
    until_s: float
    peak_bytes: float | None = None
    rates: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _RATES})

    @property
    def has_advanced(self) -> bool:
        """Whether any step has ended in it."""
        return bool(self.rates["step_s"]) and (self.first is None or self.last != self.first)


@dataclass(slots=True, kw_only=True)
class _KnownFailure:
    """A failure that was recorded, and whether its end was."""

    records: tuple[FailureSeen, ...]
    is_end_sent: bool = False


class ViewRecorder:
    """Remembers what is recorded already.

    Parameters
    ----------
    every_s
        Length of an interval [s].
    still_open
        Failures without an end in the store: an earlier recorder recorded them.
    unfinished
        Jobs without an end in the store: those that are not listed have ended meanwhile.
    ended
        Queries how a job ended that is no longer listed.
    """

    def __init__(
        self,
        *,
        every_s: float = EVERY_S,
        still_open: Iterable[FailureSeen] = (),
        unfinished: Iterable[JobSeen] = (),
        ended: EndLookup = lambda job, submitted: None,
    ) -> None:
        self._every_s, self._endings = every_s, Endings(ended)
        self._still_open, self._unfinished = tuple(still_open), tuple(unfinished)
        self._is_taken_over = False
        self._sent_at: dict[tuple[str, datetime], datetime] = {}
        self._intervals: dict[tuple[str, datetime], _Interval] = {}
        self._jobs: dict[tuple[str, datetime], tuple[JobView, JobSeen]] = {}
        self._losses: dict[tuple[str, datetime], Losses] = {}
        self._failures: dict[tuple[str, float], _KnownFailure] = {}
        self._before: dict[str, list[FailureSeen]] = {}
        self._cluster: tuple[str, int, int] | None = None
        self._began_s: float | None = None

    def records(self, view: ClusterView, *, is_last: bool = False) -> list[Record]:
        """Return the new records of a view; with ``is_last`` the measurements so far as well.

        Nothing is recorded for a cluster without a name.
        """
        if not view.cluster:
            return []
        self._take_over(view.cluster)
        new_records: list[Record] = [*self._record_cluster(view)]
        live = set()
        for job in view.jobs:
            if job.record.is_active and job.record.submit_time is not None:
                live.add((job.record.label, job.record.submit_time))
                new_records += self._record_job(view, job, job.record.submit_time, is_last=is_last)
        new_records += self._end_jobs(view, live)
        new_records += self._record_events(view)
        return new_records

    def _take_over(self, cluster: str) -> None:
        """Take over an earlier recorder's state for this cluster; a store may have others with equal part names."""
        if self._is_taken_over:
            return
        self._is_taken_over = True
        self._unfinished = tuple(earlier for earlier in self._unfinished if earlier.cluster == cluster)
        self._sent_at = {(earlier.job, earlier.submitted_at): earlier.at for earlier in self._unfinished}
        for earlier in self._still_open:
            if earlier.cluster == cluster and earlier.source == SOURCE and earlier.cleared_at is None:
                self._before.setdefault(earlier.what, []).append(earlier)

    def _record_cluster(self, view: ClusterView) -> list[ClusterSeen]:
        summary = (view.cluster, len(view.nodes), sum(node.gpus for node in view.nodes))
        if summary == self._cluster or not view.nodes:
            return []
        self._cluster = summary
        return [ClusterSeen(cluster=summary[0], at=_to_datetime(view.taken_at_s), nodes=summary[1], gpus=summary[2])]

    def _record_job(self, view: ClusterView, job: JobView, submitted: datetime, *, is_last: bool) -> list[Record]:
        measures = job.measured is not None and job.measured.step_s is not None
        key = (job.record.label, submitted)
        if job.advice is None and not measures and key not in self._jobs:
            return []
        new_records: list[Record] = []
        before = self._jobs.get(key)
        if before is None or before[0].record is not job.record or before[0].advice is not job.advice:
            seen = build_job_seen(view.cluster, job, submitted, view.taken_at_s)
            sent_at = before[1].at if before is not None else self._sent_at.pop(key, None)
            if sent_at is not None and sent_at > seen.at:  # this clock was set back, and what is newest counts
                seen = replace(seen, at=sent_at)
            if before is None or replace(before[1], at=seen.at) != seen:
                new_records.append(seen)
            self._jobs[key] = (job, seen)
        if job.losses is not None:
            self._losses[key] = job.losses
        if measures:
            new_records += self._measure(view, job, key, is_last=is_last)
        return new_records

    def _measure(self, view: ClusterView, job: JobView, key: tuple[str, datetime], *, is_last: bool) -> list[Measured]:
        """Add the present measurements; return the interval that they end, if any."""
        measured, now_s = job.measured, view.taken_at_s
        assert measured is not None
        closed: list[Measured] = []
        interval = self._intervals.get(key)
        is_another = interval is not None and (
            interval.source != (measured.source or "log")
            or (interval.last is not None and (measured.iteration is None or measured.iteration < interval.last))
        )
        if interval is not None and is_another:
            closed += _close_interval(view.cluster, key[0], interval, job.record.gpus)
            interval = None
        if interval is None:
            self._intervals[key] = _Interval(
                source=measured.source or "log", from_s=now_s, until_s=now_s, first=measured.iteration,
                last=measured.iteration,
            )  # fmt: skip
            return closed
        if measured.iteration is None or measured.iteration != interval.last:
            interval.last, interval.until_s = measured.iteration, now_s
            for name in _RATES:
                if (value := getattr(measured, name)) is not None:
                    interval.rates[name].append(value)
        if measured.memory_peak_bytes is not None:
            interval.peak_bytes = max(interval.peak_bytes or 0.0, measured.memory_peak_bytes)
        if interval.has_advanced and (is_last or now_s - interval.from_s >= self._every_s):
            closed += _close_interval(view.cluster, key[0], interval, job.record.gpus)
            self._intervals[key] = _Interval(
                source=interval.source, from_s=interval.until_s, until_s=interval.until_s, first=interval.last,
                last=interval.last,
            )  # fmt: skip
        return closed

    def _end_jobs(self, view: ClusterView, live: set[tuple[str, datetime]]) -> list[Record]:
        """Return the ends of jobs that are no longer listed, or that wait again after a requeue."""
        ended: list[Record] = []
        if self._unfinished and any(state.source is Source.SLURM and not state.problem for state in view.sources):
            for seen in self._unfinished:
                if (seen.job, seen.submitted_at) not in live:
                    self._endings.add(seen, view.taken_at_s)
            self._unfinished = ()
        for key in [key for key in self._jobs if key not in live]:
            job, seen = self._jobs.pop(key)
            interval = self._intervals.pop(key, None)
            if interval is not None:
                ended += _close_interval(view.cluster, key[0], interval, job.record.gpus)
            losses = self._losses.pop(key, None)
            at = _to_datetime(view.taken_at_s)
            report = build_loss_report(view.cluster, key[0], losses, at) if losses is not None else None
            ended += [report] if report is not None else []
            self._endings.add(seen, view.taken_at_s)
        self._endings.forget(live)
        return [*ended, *self._endings.pop_ended(view.taken_at_s)]

    def _record_events(self, view: ClusterView) -> list[FailureSeen]:
        new_records: list[FailureSeen] = []
        present_keys = set()
        self._began_s = view.taken_at_s if self._began_s is None and _has_node_source(view) else self._began_s
        for event in view.events:
            key = (event.key, event.first_seen_s)
            present_keys.add(key)
            known = self._failures.get(key)
            if known is None:
                known = self._failures[key] = self._begin_failure(view.cluster, event)
                new_records += known.records
            if event.is_over and not known.is_end_sent:
                new_records += self._end_failure(known, event.last_seen_s)
        for key in [key for key in self._failures if key not in present_keys]:
            known = self._failures.pop(key)
            if not known.is_end_sent:
                new_records += self._end_failure(known, view.taken_at_s)
        if self._before and self._began_s is not None and view.taken_at_s - self._began_s > SETTLE_S:
            for records in self._before.values():
                new_records += self._end_failure(_KnownFailure(records=tuple(records)), view.taken_at_s)
            self._before.clear()
        return new_records

    def _begin_failure(self, cluster: str, event: Event) -> _KnownFailure:
        """Return a failure's records; for one of an earlier recorder, the existing ones."""
        before = self._before.pop(event.failed, None)
        if before is not None and not event.is_over and event.severity is not Severity.WATCH:
            return _KnownFailure(records=tuple(before))
        records = build_failures_seen(cluster, event)
        return _KnownFailure(records=records, is_end_sent=event.severity is Severity.WATCH)

    @staticmethod
    def _end_failure(known: _KnownFailure, at_s: float) -> list[FailureSeen]:
        known.is_end_sent = True
        return [replace(each, cleared_at=max(each.at, _to_datetime(at_s))) for each in known.records]


def build_job_seen(cluster: str, job: JobView, submitted: datetime, at_s: float) -> JobSeen:
    """Return a job as a store record; plan and prediction are those of its advice record."""
    record, advice = job.record, job.advice
    plan = {name: value for name in ("tp", "pp", "dp", "cp", "ep") if (value := getattr(advice, name, None))}
    prediction = {
        "verdict": advice.verdict.value,
        "memory": {"total_bytes": advice.mem_bytes, "capacity_bytes": advice.capacity_bytes,
                   "fit_probability": advice.fit},
        "time": {"step_s": {"expected": advice.step_s}, "mfu": {"expected": advice.mfu}},
    } if advice is not None else None  # fmt: skip
    return JobSeen(
        cluster=cluster,
        job=record.label,
        submitted_at=submitted,
        at=_to_datetime(at_s),
        user=record.user or None,
        account=record.account or None,
        partition=record.partition or None,
        qos=record.qos or None,
        name=record.name or None,
        state=record.state or None,
        exit_code=format_exit(record),
        started_at=record.start_time,
        ended_at=None if record.is_active else record.end_time or _to_datetime(at_s),
        node_list=fold(record.nodes) if record.nodes else None,
        nodes=record.node_count or None,
        gpus=record.gpus or None,
        script_hash=advice.hash if advice is not None else None,
        verdict=advice.verdict.value if advice is not None else None,
        predicted_step_s=advice.step_s if advice is not None else None,
        predicted_tokens_per_s_per_gpu=advice.tokens_per_s_per_gpu if advice is not None else None,
        predicted_tflops_per_gpu=advice.tflops if advice is not None else None,
        predicted_mfu=advice.mfu if advice is not None else None,
        predicted_memory_bytes=advice.mem_bytes if advice is not None else None,
        plan={"plan": plan} if plan else None,
        prediction=prediction,
    )


def build_failures_seen(cluster: str, event: Event) -> tuple[FailureSeen, ...]:
    """Return the store records of an event: one for each job that it affected when it was first seen, else one.

    An event that needs no action affects no job, and is cleared at once.
    """
    at = _to_datetime(event.first_seen_s)
    is_watched = event.severity is Severity.WATCH
    code = _XID.search(event.text)
    one = FailureSeen(
        cluster=cluster,
        at=at,
        failure=event.part.value,
        what=event.failed,
        source=SOURCE,
        node=event.nodes[0] if len(event.nodes) == 1 else None,
        code=code[1] if code is not None else None,
        text=event.text or None,
        cleared_at=at if is_watched else None,
        document={"severity": event.severity.value, "action": event.action, "nodes": list(event.nodes),
                  "jobs": list(event.jobs)},
    )  # fmt: skip
    if is_watched or not event.jobs:
        return (one,)
    return tuple(replace(one, job=str(job)) for job in event.jobs)


def batches(records: Sequence[Record], max_size: int = 200) -> Iterable[Sequence[Record]]:
    """Yield records in batches that a writer accepts at once."""
    for start in range(0, len(records), max_size):
        yield records[start : start + max_size]


def _close_interval(cluster: str, job: str, interval: _Interval, gpus: int) -> list[Measured]:
    if not interval.has_advanced:
        return []
    rates = {name: median(values) for name, values in interval.rates.items() if values}
    steps = None if interval.first is None or interval.last is None else interval.last - interval.first
    tokens_per_s = rates.get("tokens_per_s")
    return [
        Measured(
            cluster=cluster,
            job=job,
            source=interval.source,
            from_at=_to_datetime(interval.from_s),
            until_at=_to_datetime(interval.until_s),
            steps=steps,
            first_iteration=interval.first,
            last_iteration=interval.last,
            tokens_per_s_per_gpu=tokens_per_s / gpus if tokens_per_s is not None and gpus else None,
            memory_peak_bytes=int(interval.peak_bytes) if interval.peak_bytes is not None else None,
            step_s=rates.get("step_s"),
            tokens_per_s=tokens_per_s,
            tflops_per_gpu=rates.get("tflops_per_gpu"),
            mfu=rates.get("mfu"),
        )
    ]


def _has_node_source(view: ClusterView) -> bool:
    """Return whether the sources of failures answer."""
    return any(
        state.source in (Source.PROMETHEUS, Source.EXPORTERS) and not state.problem and state.taken_at_s is not None
        for state in view.sources
    )


def _to_datetime(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
