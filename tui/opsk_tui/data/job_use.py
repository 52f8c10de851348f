"""Records what each job with GPUs used, and which program it was, for the advice on the program's next submission.

The advisor records a submission a moment before Slurm gives the job its number; the two are joined here, by user, name,
time and GPUs. A job that no submission explains is not recorded: nothing would recognise its program again.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from opsk.slurm.records import JobRecord
from opsk.store.records.jobs import JobSeen
from opsk.store.records.use import JobSubmitted, JobUsed
from opsk_tui.data.recording import EVERY_S, Endings, EndLookup
from opsk_tui.data.view import ClusterView, GpuTable, JobView, Metric

BEFORE_S, AFTER_S = 12.0, 2.0
"""A submission is recorded at most so long before, or by another clock after, Slurm's time of it."""
SETTLE_S = 15.0
"""After so long a submission is in the store, if ever."""
GIVEN_UP_AFTER_S = 120.0
OLDEST = timedelta(days=7)
"""Jobs that were submitted before are not looked up when the recorder starts."""
MAX_GAP_S = 60.0
"""A longer time without a view was not observed."""
IDLE_RATIO = 0.005
"""A GPU with a smaller share of busy time, over the whole run, had nothing to do."""
Key = tuple[str, datetime]
SubmissionLookup = Callable[[str, datetime], Sequence[JobSubmitted]]
"""Returns the submissions to a cluster since a time, in their order."""


def find_uid(user: str) -> int | None:
    """Return the uid of a user; ``None`` where this host does not know it."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None


def match_submissions(
    jobs: Iterable[JobRecord],
    submissions: Sequence[JobSubmitted],
    *,
    uid_of: Callable[[str], int | None],
    used: Mapping[int, JobSubmitted],
) -> dict[int, JobSubmitted]:
    """Return the submission of each job, by Slurm's number of the job, or of its array.

    A later job takes a later submission, so that one that Slurm refused is left over.

    Parameters
    ----------
    used
        Earlier results: their submissions are taken.
    """
    matched = dict(used)
    taken = {id(submission) for submission in used.values()}
    taken_keys = {(one.uid, one.at) for one in used.values()}
    owners = {job.array_job_id or job.id: job for job in jobs}
    for owner, job in sorted(owners.items(), reverse=True):
        uid = uid_of(job.user)
        if owner in matched or uid is None or job.submit_time is None:
            continue
        for submission in reversed(submissions):
            lead_s = (job.submit_time - submission.at).total_seconds()
            is_free = id(submission) not in taken and (submission.uid, submission.at) not in taken_keys
            if is_free and -AFTER_S <= lead_s <= BEFORE_S and submission.uid == uid and _agree(job, submission):
                matched[owner] = submission
                taken.add(id(submission))
                break
    return matched


def _agree(job: JobRecord, submission: JobSubmitted) -> bool:
    """Return whether name and GPUs are the same, as far as both are known."""
    if submission.name and job.name and submission.name != job.name:
        return False
    return submission.gpus is None or not job.gpus or submission.gpus == job.gpus


@dataclass(slots=True)
class _Use:
    """What one run has used so far: sums over time, and peaks by GPU."""

    submission: JobSubmitted
    observed_s: float = 0.0
    busy_s: dict[str, float] = field(default_factory=dict)
    power_j: float = 0.0
    powered_s: float = 0.0
    peaks: dict[str, float] = field(default_factory=dict)
    capacity_bytes: float | None = None
    seen_s: float | None = None
    sent_s: float = float("-inf")

    def observe(self, table: GpuTable, nodes: Sequence[str], places: NDArray[np.intp], now_s: float) -> None:
        """Add the present values of the job's GPUs."""
        elapsed_s = 0.0 if self.seen_s is None else now_s - self.seen_s
        self.seen_s = now_s
        if not 0 <= elapsed_s <= MAX_GAP_S:
            elapsed_s = 0.0
        slots = table.job.shape[1]
        names = [f"{nodes[place // slots]}/{place % slots}" for place in places.tolist()]
        busy, ratio, power = (_pick(table.values.get(metric), places) for metric in _METRICS)
        sizes = _pick(table.memory_size_bytes, places)
        if not np.isnan(busy).all():
            self.observed_s += elapsed_s
            # A GPU that a scrape missed is taken to be as busy as the others: it must not look idle.
            for name, value in zip(names, np.nan_to_num(busy, nan=float(np.nanmean(busy))).tolist(), strict=True):
                self.busy_s[name] = self.busy_s.get(name, 0.0) + value * elapsed_s
        if not np.isnan(power).all():
            self.power_j += float(np.nanmean(power)) * elapsed_s
            self.powered_s += elapsed_s
        used = ratio * sizes
        for name, value in zip(names, used.tolist(), strict=True):
            if value == value and value > self.peaks.get(name, 0.0):
                self.peaks[name] = value
        if not np.isnan(sizes).all():
            self.capacity_bytes = float(np.nanmin(sizes))


_METRICS = (Metric.UTILISATION, Metric.MEMORY, Metric.POWER)


def _pick(values: NDArray[np.float32] | None, places: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the values at some places; NaN where there are none."""
    if values is None:
        return np.full(len(places), np.nan)
    return values.ravel()[places].astype(np.float64)


class JobUseRecorder:
    """Observes jobs from view to view.

    Parameters
    ----------
    submitted
        Finds submissions.
    unfinished
        Runs without an end in the store: they go on, or have ended meanwhile.
    ended
        Queries how a job ended that is no longer listed.
    host_peak
        Returns the highest host memory of an ended job [bytes]; ``None`` where it is unknown.
    uid_of
        Returns the uid of a user.
    every_s
        Interval of records on a running job [s].
    """

    def __init__(
        self,
        *,
        submitted: SubmissionLookup,
        unfinished: Iterable[JobUsed] = (),
        ended: EndLookup = lambda job, submitted: None,
        host_peak: Callable[[str], float | None] = lambda job: None,
        uid_of: Callable[[str], int | None] = find_uid,
        every_s: float = EVERY_S,
    ) -> None:
        self._submitted, self._host_peak, self._uid_of = submitted, host_peak, uid_of
        self._every_s = every_s
        self._endings = Endings(ended)
        self._unfinished = {(row.cluster, row.job, row.submitted_at): row for row in unfinished}
        self._matched: dict[int, JobSubmitted] = {}
        self._first_seen_s: dict[int, float] = {}
        self._uses: dict[Key, _Use] = {}
        self._last: dict[Key, JobUsed] = {}

    def records(self, view: ClusterView, *, is_last: bool = False) -> list[JobUsed]:
        """Return the new records of a view; with ``is_last`` those of running jobs as well."""
        if not view.cluster:
            return []
        jobs = [job for job in view.jobs if job.record.gpus and job.record.submit_time is not None]
        self._match(view, [job.record for job in jobs])
        live: set[Key] = set()
        new_records = []
        places = _find_places(view.gpus) if view.gpus is not None else {}
        for job in jobs:
            owner = job.record.array_job_id or job.record.id
            key = (job.record.label, job.record.submit_time or datetime.now(UTC))
            if not job.record.is_active:
                continue
            live.add(key)
            use = self._uses.get(key) or self._begin(view.cluster, key, owner)
            if use is None:
                continue
            if view.gpus is not None and job.record.id in places:
                names = [node.name for node in view.nodes]
                use.observe(view.gpus, names, places[job.record.id], view.taken_at_s)
            self._last[key] = self._build(view, job, key, use)
            if is_last or view.taken_at_s - use.sent_s >= self._every_s:
                use.sent_s = view.taken_at_s
                new_records.append(self._last[key])
        return [*new_records, *self._end(view, live)]

    def _match(self, view: ClusterView, records: Sequence[JobRecord]) -> None:
        """Find the submissions of new jobs; a job whose submission does not appear is given up."""
        owners = {record.array_job_id or record.id for record in records}
        for gone in self._matched.keys() - owners:
            del self._matched[gone]
        self._first_seen_s = {owner: self._first_seen_s.get(owner, view.taken_at_s) for owner in owners}
        oldest = _to_datetime(view.taken_at_s) - OLDEST
        settled = _to_datetime(view.taken_at_s - SETTLE_S)
        waiting = [
            record
            for record in records
            if (owner := record.array_job_id or record.id) not in self._matched
            and view.taken_at_s - self._first_seen_s[owner] <= GIVEN_UP_AFTER_S
            and record.submit_time is not None
            and oldest <= record.submit_time <= settled
        ]
        if not waiting:
            return
        since = min(record.submit_time for record in waiting if record.submit_time is not None)
        submissions = self._submitted(view.cluster, since - timedelta(seconds=BEFORE_S))
        self._matched = match_submissions(waiting, submissions, uid_of=self._uid_of, used=self._matched)

    def _begin(self, cluster: str, key: Key, owner: int) -> _Use | None:
        """Return the use of a run that was not observed yet: as an earlier recorder left it, or new."""
        row = self._unfinished.pop((cluster, *key), None)
        if row is not None:
            use = _restore(row)
        elif owner in self._matched:
            use = _Use(self._matched[owner])
        else:
            return None
        self._uses[key] = use
        return use

    def _build(self, view: ClusterView, job: JobView, key: Key, use: _Use) -> JobUsed:
        record, submission = job.record, use.submission
        peak = max(use.peaks.values(), default=None)
        busy = list(use.busy_s.values())
        is_observed = use.observed_s > 0 and bool(busy)
        return JobUsed(
            cluster=view.cluster, job=key[0], submitted_at=key[1], at=_to_datetime(view.taken_at_s), uid=submission.uid,
            user=record.user or None, account=record.account or None, script_key=submission.script_key,
            command_key=submission.command_key, command=submission.command, settings=submission.settings,
            gpu_type=record.gpu_type or None, gpus=record.gpus or None, nodes=record.node_count or None,
            started_at=record.start_time, time_limit_s=record.time_limit_s, observed_s=use.observed_s or None,
            capacity_bytes=use.capacity_bytes, memory_peak_bytes=peak,
            memory_peaks={name: int(value) for name, value in use.peaks.items()} or None,
            activity=min(1.0, sum(busy) / len(busy) / use.observed_s) if is_observed else None,
            idle_gpus=sum(value < IDLE_RATIO * use.observed_s for value in busy) if is_observed else None,
            power_w=use.power_j / use.powered_s if use.powered_s else None,
        )  # fmt: skip

    def _end(self, view: ClusterView, live: set[Key]) -> list[JobUsed]:
        """Return the last records of jobs that are no longer active, as soon as their ends are known."""
        for key in [key for key in self._uses if key not in live]:
            del self._uses[key]
            if key in self._last:
                self._endings.add(_as_seen(self._last[key]), view.taken_at_s)
        for (cluster, job, submitted_at), row in list(self._unfinished.items()):
            if cluster == view.cluster and (job, submitted_at) not in live and view.jobs:
                del self._unfinished[(cluster, job, submitted_at)]
                self._last[job, submitted_at] = row
                self._endings.add(_as_seen(row), view.taken_at_s)
        self._endings.forget(live)
        ended = []
        for seen in self._endings.pop_ended(view.taken_at_s):
            last = self._last.pop((seen.job, seen.submitted_at), None)
            if last is not None:
                ended.append(_with_end(last, seen, self._host_peak(seen.job)))
        return ended


def _find_places(table: GpuTable) -> dict[int, NDArray[np.intp]]:
    """Return the places of each job's GPUs in the flattened table."""
    held = table.job.ravel()
    places = np.flatnonzero(held >= 0)
    order = places[np.argsort(held[places], kind="stable")]
    jobs, starts = np.unique(held[order], return_index=True)
    return dict(zip(jobs.tolist(), np.split(order, starts[1:]), strict=True)) if len(jobs) else {}


def _restore(row: JobUsed) -> _Use:
    """Return the use of a run as far as the store has it."""
    observed_s = row.observed_s or 0.0
    peaks = row.memory_peaks if isinstance(row.memory_peaks, dict) else {}
    submission = JobSubmitted(
        cluster=row.cluster, at=row.submitted_at, uid=row.uid, script_key=row.script_key, command_key=row.command_key,
        command=row.command, settings=row.settings, gpus=row.gpus,
    )  # fmt: skip
    return _Use(
        submission,
        observed_s=observed_s,
        busy_s=dict.fromkeys(peaks, (row.activity or 0.0) * observed_s),
        power_j=(row.power_w or 0.0) * observed_s,
        powered_s=observed_s if row.power_w is not None else 0.0,
        peaks={name: float(value) for name, value in peaks.items()},
        capacity_bytes=row.capacity_bytes,
    )


def _with_end(last: JobUsed, seen: JobSeen, host_peak_bytes: float | None) -> JobUsed:
    """Return the last record of a job with its end."""
    return replace(
        last,
        at=max(seen.at, last.at),
        state=seen.state,
        started_at=seen.started_at or last.started_at,
        ended_at=seen.ended_at,
        host_memory_peak_bytes=host_peak_bytes,
    )


def _as_seen(row: JobUsed) -> JobSeen:
    """Return a run as the record whose end is queried."""
    return JobSeen(
        cluster=row.cluster, job=row.job, submitted_at=row.submitted_at, at=row.at, started_at=row.started_at,
        gpus=row.gpus, nodes=row.nodes,
    )  # fmt: skip


def _to_datetime(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
