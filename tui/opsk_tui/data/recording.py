"""What of what is seen is worth keeping? From views of the cluster to records for the store, each told once.

A job is kept when it has advice or tells of progress; what was measured of it in intervals, so that the store grows by
minutes and not by refreshes; a failure when it begins and when it is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median

from opsk.diagnosis.events.values import Event, Severity
from opsk.hostlist import fold
from opsk.store.records.clusters import ClusterSeen
from opsk.store.records.failures import FailureSeen
from opsk.store.records.jobs import JobSeen
from opsk.store.records.measured import Measured
from opsk.store.writing import Record
from opsk_tui.data.ends import Ended, Endings, exit_words
from opsk_tui.data.view import ClusterView, JobView, Source

EVERY_S = 300.0
SOURCE = "events"
"""Who tells of failures here; those of others are left alone."""
SETTLE_S = 120.0
"""What was open before and does not show within this time is over."""
_XID = re.compile(r"\bXID (\d{1,4})\b")
_RATES = ("step_s", "tokens_per_s", "tflops_per_gpu", "mfu")


@dataclass(slots=True, kw_only=True)
class _Interval:
    """What was measured of one start of a job since ``from_s``."""

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
class _Failing:
    """A failure that was told of, and whether its end was."""

    records: tuple[FailureSeen, ...]
    is_told_over: bool = False


class Keeper:
    """Remembers what is kept already.

    Parameters
    ----------
    every_s
        Length of an interval [s].
    still_open
        Failures of which the store knows no end: a keeper before this one told of them.
    unfinished
        Jobs of which the store knows no end: those that are not listed have ended meanwhile.
    ended
        Asks Slurm how a job ended that is not listed any more.
    """

    def __init__(
        self,
        *,
        every_s: float = EVERY_S,
        still_open: Iterable[FailureSeen] = (),
        unfinished: Iterable[JobSeen] = (),
        ended: Ended = lambda job, submitted: None,
    ) -> None:
        self._every_s, self._endings = every_s, Endings(ended)
        self._still_open, self._unfinished = tuple(still_open), tuple(unfinished)
        self._is_taken_over = False
        self._told_at: dict[tuple[str, datetime], datetime] = {}
        self._intervals: dict[tuple[str, datetime], _Interval] = {}
        self._jobs: dict[tuple[str, datetime], tuple[JobView, JobSeen]] = {}
        self._failing: dict[tuple[str, float], _Failing] = {}
        self._before: dict[str, list[FailureSeen]] = {}
        self._cluster: tuple[str, int, int] | None = None
        self._began_s: float | None = None

    def records(self, view: ClusterView, *, is_last: bool = False) -> list[Record]:
        """Return what is new in a view; with ``is_last`` what was measured so far as well.

        Nothing is kept of a cluster that has not said its name.
        """
        if not view.cluster:
            return []
        self._take_over(view.cluster)
        found: list[Record] = [*self._of_cluster(view)]
        live = set()
        for job in view.jobs:
            if job.record.is_active and job.record.submit_time is not None:
                live.add((job.record.label, job.record.submit_time))
                found += self._of_job(view, job, job.record.submit_time, is_last=is_last)
        found += self._gone(view, live)
        found += self._of_events(view)
        return found

    def _take_over(self, cluster: str) -> None:
        """Take over what an earlier keeper told of this cluster; a store may have others, with parts called alike."""
        if self._is_taken_over:
            return
        self._is_taken_over = True
        self._unfinished = tuple(each for each in self._unfinished if each.cluster == cluster)
        self._told_at = {(each.job, each.submitted_at): each.at for each in self._unfinished}
        for each in self._still_open:
            if each.cluster == cluster and each.source == SOURCE and each.cleared_at is None:
                self._before.setdefault(each.what, []).append(each)

    def _of_cluster(self, view: ClusterView) -> list[ClusterSeen]:
        said = (view.cluster, len(view.nodes), sum(node.gpus for node in view.nodes))
        if said == self._cluster or not view.nodes:
            return []
        self._cluster = said
        return [ClusterSeen(cluster=said[0], at=_time(view.taken_at_s), nodes=said[1], gpus=said[2])]

    def _of_job(self, view: ClusterView, job: JobView, submitted: datetime, *, is_last: bool) -> list[Record]:
        measures = job.measured is not None and job.measured.step_s is not None
        key = (job.record.label, submitted)
        if job.advice is None and not measures and key not in self._jobs:
            return []
        found: list[Record] = []
        before = self._jobs.get(key)
        if before is None or before[0].record is not job.record or before[0].advice is not job.advice:
            seen = job_seen(view.cluster, job, submitted, view.taken_at_s)
            told_at = before[1].at if before is not None else self._told_at.pop(key, None)
            if told_at is not None and told_at > seen.at:  # this clock was set back, and what is newest counts
                seen = replace(seen, at=told_at)
            if before is None or replace(before[1], at=seen.at) != seen:
                found.append(seen)
            self._jobs[key] = (job, seen)
        if measures:
            found += self._measure(view, job, key, is_last=is_last)
        return found

    def _measure(self, view: ClusterView, job: JobView, key: tuple[str, datetime], *, is_last: bool) -> list[Measured]:
        """Add what is measured now; return the interval that it ends, if any."""
        measured, now_s = job.measured, view.taken_at_s
        assert measured is not None
        done: list[Measured] = []
        interval = self._intervals.get(key)
        is_another = interval is not None and (
            interval.source != (measured.source or "log")
            or (interval.last is not None and (measured.iteration is None or measured.iteration < interval.last))
        )
        if interval is not None and is_another:
            done += _closed(view.cluster, key[0], interval, job.record.gpus)
            interval = None
        if interval is None:
            self._intervals[key] = _Interval(
                source=measured.source or "log", from_s=now_s, until_s=now_s, first=measured.iteration,
                last=measured.iteration,
            )  # fmt: skip
            return done
        if measured.iteration is None or measured.iteration != interval.last:
            interval.last, interval.until_s = measured.iteration, now_s
            for name in _RATES:
                if (value := getattr(measured, name)) is not None:
                    interval.rates[name].append(value)
        if measured.memory_peak_bytes is not None:
            interval.peak_bytes = max(interval.peak_bytes or 0.0, measured.memory_peak_bytes)
        if interval.has_advanced and (is_last or now_s - interval.from_s >= self._every_s):
            done += _closed(view.cluster, key[0], interval, job.record.gpus)
            self._intervals[key] = _Interval(
                source=interval.source, from_s=interval.until_s, until_s=interval.until_s, first=interval.last,
                last=interval.last,
            )  # fmt: skip
        return done

    def _gone(self, view: ClusterView, live: set[tuple[str, datetime]]) -> list[Record]:
        """Return the end of jobs that Slurm lists no more, or that wait again after a requeue."""
        found: list[Record] = []
        if self._unfinished and any(state.source is Source.SLURM and not state.problem for state in view.sources):
            for seen in self._unfinished:
                if (seen.job, seen.submitted_at) not in live:
                    self._endings.add(seen, view.taken_at_s)
            self._unfinished = ()
        for key in [key for key in self._jobs if key not in live]:
            job, seen = self._jobs.pop(key)
            interval = self._intervals.pop(key, None)
            if interval is not None:
                found += _closed(view.cluster, key[0], interval, job.record.gpus)
            self._endings.add(seen, view.taken_at_s)
        self._endings.forget(live)
        return [*found, *self._endings.told(view.taken_at_s)]

    def _of_events(self, view: ClusterView) -> list[FailureSeen]:
        found: list[FailureSeen] = []
        here = set()
        self._began_s = view.taken_at_s if self._began_s is None and _sees_nodes(view) else self._began_s
        for event in view.events:
            key = (event.key, event.first_seen_s)
            here.add(key)
            known = self._failing.get(key)
            if known is None:
                known = self._failing[key] = self._begun(view.cluster, event)
                found += known.records
            if event.is_over and not known.is_told_over:
                found += self._over(known, event.last_seen_s)
        for key in [key for key in self._failing if key not in here]:
            known = self._failing.pop(key)
            if not known.is_told_over:
                found += self._over(known, view.taken_at_s)
        if self._before and self._began_s is not None and view.taken_at_s - self._began_s > SETTLE_S:
            for records in self._before.values():
                found += self._over(_Failing(records=tuple(records)), view.taken_at_s)
            self._before.clear()
        return found

    def _begun(self, cluster: str, event: Event) -> _Failing:
        """Return a failure's records; of one that an earlier keeper told of, those that there are."""
        before = self._before.pop(event.failed, None)
        if before is not None and not event.is_over and event.severity is not Severity.WATCH:
            return _Failing(records=tuple(before))
        records = failures_seen(cluster, event)
        return _Failing(records=records, is_told_over=event.severity is Severity.WATCH)

    @staticmethod
    def _over(known: _Failing, at_s: float) -> list[FailureSeen]:
        known.is_told_over = True
        return [replace(each, cleared_at=max(each.at, _time(at_s))) for each in known.records]


def job_seen(cluster: str, job: JobView, submitted: datetime, at_s: float) -> JobSeen:
    """Return a job as the store keeps it; plan and prediction are those that its record carries."""
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
        at=_time(at_s),
        user=record.user or None,
        account=record.account or None,
        partition=record.partition or None,
        qos=record.qos or None,
        name=record.name or None,
        state=record.state or None,
        exit_code=exit_words(record),
        started_at=record.start_time,
        ended_at=None if record.is_active else record.end_time or _time(at_s),
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


def failures_seen(cluster: str, event: Event) -> tuple[FailureSeen, ...]:
    """Return what is kept of an event: one record for each job that it hit when it was first seen, else one.

    What asks for nothing hits no job, and is well at once.
    """
    at = _time(event.first_seen_s)
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


def batches(records: Sequence[Record], most: int = 200) -> Iterable[Sequence[Record]]:
    """Yield records in parts that a writer takes at once."""
    for start in range(0, len(records), most):
        yield records[start : start + most]


def _closed(cluster: str, job: str, interval: _Interval, gpus: int) -> list[Measured]:
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
            from_at=_time(interval.from_s),
            until_at=_time(interval.until_s),
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


def _sees_nodes(view: ClusterView) -> bool:
    """Tell whether those who know of failures answer."""
    return any(
        state.source in (Source.PROMETHEUS, Source.EXPORTERS) and not state.problem and state.taken_at_s is not None
        for state in view.sources
    )


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
