"""Exports Slurm's queue: jobs and their GPUs by state, pending reasons, waiting times, and verdicts of opsk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.slurm.commands.job_text import QueuedJobs
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_exporters.core.exposition import Families
from opsk_exporters.slurm.states import JOB_STATES, WAITING_ON_PURPOSE, classify_job_state, classify_pending_reason

MAX_JOBS = 2000
"""Limit of the jobs whose predictions are exported, those with the most GPUs first."""

_PREDICTED_SUFFIX = "that opsk predicted in the job's record (AdminComment); running jobs with a record only."
PREDICTED = (
    ("step_seconds", f"Time of one step {_PREDICTED_SUFFIX}", "step_s"),
    ("memory_bytes", f"Memory of the fullest GPU {_PREDICTED_SUFFIX}", "mem_bytes"),
    (
        "tokens_per_second_per_gpu",
        f"Tokens that one GPU trains in a second {_PREDICTED_SUFFIX}",
        "tokens_per_s_per_gpu",
    ),
    ("tflops_per_gpu", f"Model TFLOP/s of one GPU {_PREDICTED_SUFFIX}", "tflops"),
    ("mfu_ratio", f"Model FLOP utilisation {_PREDICTED_SUFFIX}", "mfu"),
)
_COUNTED_STATES = ("pending", "running")
NO_ADVICE = "none"
_EVERY = "of a pending job of several partitions in each of them"


def add_predictions(families: Families, queue: Sequence[QueuedJobs], max_jobs: int = MAX_JOBS) -> None:
    """Add what was predicted for each running job that has a record.

    Parameters
    ----------
    max_jobs
        For how many jobs at most.
    """
    recorded = {row.id: (row, record) for row in queue if (record := _find_record(row)) is not None}
    largest = sorted(recorded.values(), key=lambda each: (-each[0].gpus, each[0].id))
    families.gauge(
        "opsk_slurm_predicted_jobs",
        f"Running jobs that have a record of opsk; series of their own have the {MAX_JOBS:,} with the most GPUs.",
        len(recorded),
    )
    for row, record in largest[:max_jobs]:
        for name, help_text, key in PREDICTED:
            value = getattr(record, key) or None
            families.gauge(f"opsk_slurm_job_predicted_{name}", help_text, value, job=row.label, job_id=str(row.id))


def _find_record(row: QueuedJobs) -> AdviceRecord | None:
    """Return the record of a running job; ``None`` where there is none, or no job of its own."""
    if not row.admin_comment or "opsk:v1" not in row.admin_comment or not row.label or row.tasks != 1:
        return None
    return AdviceRecord.parse(row.admin_comment) if classify_job_state(row.state) == "running" else None


@dataclass(slots=True)
class _Tally:
    """Jobs and GPUs of one partition, or of all."""

    jobs: Counter[str] = field(default_factory=Counter)
    gpus: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    waits: list[tuple[float, int]] = field(default_factory=list)

    def add(self, row: QueuedJobs, state: str, now_unix_s: float) -> None:
        """Count a row."""
        self.jobs[state] += row.tasks
        self.gpus[state] += row.tasks * row.gpus
        if state != "pending":
            return
        reason = classify_pending_reason(row.reason)
        self.reasons[reason] += row.tasks
        is_eligible = row.eligible_unix_s is not None and row.eligible_unix_s <= now_unix_s
        if row.eligible_unix_s is not None and is_eligible and reason not in WAITING_ON_PURPOSE:
            self.waits.append((now_unix_s - row.eligible_unix_s, row.tasks))


def add_queue(
    families: Families, queue: Sequence[QueuedJobs], partitions: Iterable[str], now_unix_s: float, users: int = 0
) -> None:
    """Add the series of the queue.

    Parameters
    ----------
    partitions
        Those that are exported even if no job waits for them.
    now_unix_s
        When the queue was queried.
    users
        For how many users their own series are written.
    """
    cluster, by_partition = _Tally(), {name: _Tally() for name in partitions}
    by_verdict: Counter[tuple[str, str]] = Counter()
    for row in queue:
        state = classify_job_state(row.state)
        cluster.add(row, state, now_unix_s)
        for partition in row.partitions:
            by_partition.setdefault(partition, _Tally()).add(row, state, now_unix_s)
        if state in _COUNTED_STATES:
            by_verdict[_find_verdict(row.admin_comment), state] += row.tasks
    for partition, tally in by_partition.items():
        _add_partition(families, partition, tally)
    _add_cluster(families, cluster)
    for verdict in (*Verdict, NO_ADVICE):
        for state in _COUNTED_STATES:
            families.gauge(
                "opsk_slurm_advised_jobs",
                "Pending and running jobs by the verdict that opsk left in their AdminComment; none is without one.",
                by_verdict[verdict, state],
                verdict=str(verdict),
                state=state,
            )
    if users:
        _add_users(families, queue, users)


def _find_verdict(admin_comment: str | None) -> str:
    """Return the verdict in a job's record."""
    if not admin_comment or "opsk:v1" not in admin_comment:
        return NO_ADVICE
    record = AdviceRecord.parse(admin_comment)
    return NO_ADVICE if record is None else record.verdict.value


def _add_partition(families: Families, partition: str, tally: _Tally) -> None:
    """Add one partition."""
    for state in (*JOB_STATES, *sorted(set(tally.jobs) - set(JOB_STATES))):
        families.gauge(
            "opsk_slurm_jobs",
            f"Jobs in Slurm's queue, every task of an array being one; {_EVERY}.",
            tally.jobs[state],
            state=state,
            partition=partition,
        )
        families.gauge(
            "opsk_slurm_job_gpus",
            f"GPUs that jobs hold, or ask for while pending; {_EVERY}.",
            tally.gpus[state],
            state=state,
            partition=partition,
        )
    for reason, number in sorted(tally.reasons.items()):
        families.gauge(
            "opsk_slurm_pending_jobs",
            f"Pending jobs by the class of the reason that Slurm gives; {_EVERY}.",
            number,
            reason=reason,
            partition=partition,
        )
    waits = sorted(tally.waits)
    for name, help_text, share in (
        (
            "p50",
            "Of the jobs that wait for nodes now, half have waited longer than this since they were eligible.",
            0.5,
        ),
        ("p90", "Of the jobs that wait for nodes now, a tenth has waited longer than this since being eligible.", 0.9),
        ("oldest", "How long the job that waits longest for nodes has waited since it was eligible.", 1.0),
    ):
        families.gauge(
            f"opsk_slurm_pending_wait_{name}_seconds", help_text, compute_quantile(waits, share), partition=partition
        )


def _add_cluster(families: Families, tally: _Tally) -> None:
    """Add the whole cluster, every job once."""
    for state in (*JOB_STATES, *sorted(set(tally.jobs) - set(JOB_STATES))):
        families.gauge(
            "opsk_slurm_cluster_jobs",
            "Jobs in Slurm's queue, each once, every task of an array being one.",
            tally.jobs[state],
            state=state,
        )
        families.gauge(
            "opsk_slurm_cluster_job_gpus",
            "GPUs that jobs hold, or ask for while pending, each job once.",
            tally.gpus[state],
            state=state,
        )


def compute_quantile(values: Sequence[tuple[float, int]], share: float) -> float | None:
    """Return the smallest value that at least this share of the weight is not above; ``None`` of nothing.

    Examples
    --------
    >>> quantile([(1.0, 8), (5.0, 1), (9.0, 1)], 0.9), quantile([], 0.5)
    (5.0, None)
    """
    target = share * sum(weight for _, weight in values)
    weight_so_far = 0
    for value, weight in values:
        weight_so_far += weight
        if weight_so_far >= target:
            return value
    return None


def _add_users(families: Families, queue: Sequence[QueuedJobs], max_users: int) -> None:
    """Add the users with the most GPUs, then with the most requested GPUs, then with the most jobs."""
    jobs: dict[str, Counter[str]] = {}
    gpus: dict[str, Counter[str]] = {}
    for row in queue:
        state = classify_job_state(row.state)
        if state in _COUNTED_STATES:
            jobs.setdefault(row.user, Counter())[state] += row.tasks
            gpus.setdefault(row.user, Counter())[state] += row.tasks * row.gpus
    for user in sorted(jobs, key=lambda name: _rank_user(jobs[name], gpus[name], name))[:max_users]:
        for state in _COUNTED_STATES:
            families.gauge(
                "opsk_slurm_user_jobs", "Jobs of the largest users.", jobs[user][state], user=user, state=state
            )
            families.gauge(
                "opsk_slurm_user_gpus",
                "GPUs that jobs of the largest users hold, or ask for while pending.",
                gpus[user][state],
                user=user,
                state=state,
            )


def _rank_user(jobs: Mapping[str, int], gpus: Mapping[str, int], user: str) -> tuple[int, int, int, str]:
    """Sort key that puts the largest user first."""
    return -gpus["running"], -gpus["pending"], -sum(jobs.values()), user
