"""Parses the whole queue from the output of ``squeue``, in the few columns that counting it takes.

No column holds text that a user may write freely, node lists are not requested, and one row represents all tasks of an
array that are still pending: a queue of 20,000 jobs is a few megabytes of text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern

from opsk.errors import SlurmError
from opsk.slurm.commands.fields import parse_count, parse_optional
from opsk.slurm.commands.job_text import COMPACT_STATES, count_requested_gpus, parse_rows

QUEUE_COLUMNS = (
    "JobID",
    "JobArrayID",
    "ArrayTaskID",
    "Partition",
    "State",
    "Reason",
    "UserName",
    "NumNodes",
    "NumTasks",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "EligibleTime",
    "admin_comment",
)
"""Fields of ``squeue -O`` that every supported release knows; it has no name but ``admin_comment`` for that one."""

MAX_TASKS = 4_000_001
"""Slurm's own limit of an array (``MaxArraySize``); more is damaged text."""

_TASKS = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJobs:
    """One row of the queue: a job, or the similar tasks of an array that are still pending.

    Parameters
    ----------
    id
        Slurm's own number of it, which each task of an array has once it runs.
    label
        The job as people write it: ``12``, ``10_3``, ``12+1``; ``10_[4-9]`` is what still waits of an array.
    tasks
        Number of jobs in this row.
    state
        Base state in upper case.
    partitions
        Where it runs, or may run while it is pending.
    gpus
        GPUs of each, allocated or requested.
    reason
        Why it is pending; ``None`` when there is no reason.
    eligible_unix_s
        When it could have started, were everything free; ``None`` for what is held or waits for another job.
    admin_comment
        Written by ``job_submit.lua`` or an administrator.
    """

    id: int = 0
    label: str = ""
    tasks: int
    state: str
    user: str
    partitions: tuple[str, ...] = ()
    gpus: int = 0
    reason: str | None = None
    eligible_unix_s: int | None = None
    admin_comment: str | None = None


def parse_queue(text: str, columns: Sequence[str], separator: str) -> tuple[QueuedJobs, ...]:
    """Return the rows of ``squeue -h -O`` in which ``separator`` ends every column.

    Raises
    ------
    SlurmError
        The output ends within a record, or a record has no job id.
    """
    return tuple(_parse_row(row) for row in parse_rows(text, columns, separator))


def _parse_row(row: Mapping[str, str]) -> QueuedJobs:
    """Return one row."""
    number = parse_count(row["JobID"])
    if number is None:
        raise SlurmError(f"Slurm answered a job without id: {row['JobID'][:40]!r}")
    state, reason = row["State"].strip().upper(), parse_optional(row["Reason"])
    return QueuedJobs(
        id=number,
        label=parse_optional(row["JobArrayID"]) or str(number),
        tasks=count_tasks(row["ArrayTaskID"]),
        state=intern(COMPACT_STATES.get(state, state)),
        user=intern(row["UserName"].strip()),
        partitions=_split_partitions(row["Partition"]),
        gpus=count_requested_gpus(row, parse_count(row["NumNodes"]) or 0)[0],
        reason=intern(reason) if reason else None,
        eligible_unix_s=parse_count(row["EligibleTime"]),
        admin_comment=parse_optional(row["admin_comment"]),
    )


@lru_cache(maxsize=1024)
def _split_partitions(text: str) -> tuple[str, ...]:
    """Return the partitions that a job names; thousands of jobs share one tuple."""
    return tuple(dict.fromkeys(filter(None, text.strip().split(","))))


def count_tasks(text: str) -> int:
    """Return how many tasks an expression of an array names; 1 for what is no array.

    Examples
    --------
    >>> task_count("N/A"), task_count("3"), task_count("1,3-4%2"), task_count("0-9:3")
    (1, 1, 3, 4)
    """
    total = 0
    for part in text.strip().partition("%")[0].split(","):
        match = _TASKS.fullmatch(part.strip())
        if match:
            first, last, step = (int(group) if group else None for group in match.groups())
            total += 1 if first is None or last is None else max(0, last - first) // (step or 1) + 1
    return min(max(total, 1), MAX_TASKS)
