"""Parses the job records of ``squeue`` and ``scontrol show job``, and discards fields that a user may have forged.

Names, comments and paths may hold new lines and whole forged records (tried on 22.05). ``squeue`` is therefore called
with a random separator, and no field of ``scontrol`` is trusted that a user could have written: see `add_details`.

The whole queue is read in the few columns that counting takes: no column holds text that a user may write freely, node
lists are not requested, and one row represents all tasks of an array that are still pending, so that a queue of 20,000
jobs is a few megabytes of text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any

from opsk import hostlist
from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.fields import (
    parse_count,
    parse_duration_s,
    parse_exit_status,
    parse_gpu_indices,
    parse_gpus,
    parse_optional,
    parse_time,
)
from opsk.slurm.records import JobRecord

JOB_COLUMNS = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Reason",
    "NodeList",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "TimeLimit",
    "TimeUsed",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "exit_code",
    "RestartCnt",
    "Reservation",
    "ReqNodes",
    "Name",
    "Comment",
    "WorkDir",
    "Command",
    "STDOUT",
    "STDERR",
)
"""Fields of ``squeue -O`` that every supported release knows."""

_RECORD = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_GRES_LINE = re.compile(r"^     Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)\s*$", re.MULTILINE)
_WORK_DIR = re.compile(r"^   WorkDir=(.*)$", re.MULTILINE)
_ASKED_NODES = re.compile(r"^   ReqNodeList=(\S*) ExcNodeList=(\S*) *$", re.MULTILINE)
_ADMIN = re.compile(r"   AdminComment=(.*)")
COMPACT_STATES = {
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "R": "RUNNING",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "TO": "TIMEOUT",
}
"""Abbreviations of ``squeue``'s ``StateCompact``."""

_UNENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "RESIZING"})
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


def _parse_nodes(text: str) -> tuple[str, ...]:
    """Return the names of a host list; none for the words with which Slurm writes "nothing"."""
    listed = parse_optional(text)
    if listed is None:
        return ()
    try:
        return hostlist.expand(listed)
    except InputError as error:
        raise SlurmError(f"Slurm answered a node list that cannot be read: {error.message}") from error


_PLAIN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "user": ("UserName", str.strip),
    "name": ("Name", str),
    "reason": ("Reason", parse_optional),
    "partition": ("Partition", str.strip),
    "account": ("Account", parse_optional),
    "qos": ("QOS", parse_optional),
    "nodes": ("NodeList", _parse_nodes),
    "tasks": ("NumTasks", parse_count),
    "array_task": ("ArrayTaskID", parse_optional),
    "comment": ("Comment", parse_optional),
    "reservation": ("Reservation", parse_optional),
    "required_nodes": ("ReqNodes", _parse_nodes),
    "excluded_nodes": ("ExcNodes", _parse_nodes),
    "submit_time": ("SubmitTime", parse_time),
    "start_time": ("StartTime", parse_time),
    "end_time": ("EndTime", parse_time),
    "time_limit_s": ("TimeLimit", parse_duration_s),
    "run_time_s": ("TimeUsed", parse_duration_s),
    "restarts": ("RestartCnt", parse_count),
    "work_dir": ("WorkDir", parse_optional),
    "command": ("Command", parse_optional),
    "std_out": ("STDOUT", parse_optional),
    "std_err": ("STDERR", parse_optional),
}
"""Fields of a job that one column holds: the column, and its parser."""


def parse_jobs(text: str, columns: Sequence[str], separator: str) -> tuple[JobRecord, ...]:
    """Return the jobs of ``squeue -h -O`` in which ``separator`` ends every column.

    Raises
    ------
    SlurmError
        The output ends within a record, or a record has no job id.
    """
    return tuple(parse_job(row) for row in parse_rows(text, columns, separator))


def parse_rows(text: str, columns: Sequence[str], separator: str) -> Iterator[dict[str, str]]:
    """Yield the records of an output in which ``separator`` ends every column and a new line every record.

    Raises
    ------
    SlurmError
        The output ends within a record.
    """
    cells: list[str] = []
    begin, fields = 0, 0
    while (end := text.find(separator, begin)) >= 0:
        cells.append(text[begin:end])
        begin = end + len(separator)
        if len(cells) == len(columns):
            row = dict(zip(columns, cells, strict=True))
            row[columns[0]] = row[columns[0]].removeprefix("\n")
            fields += len(cells)
            cells = []
            yield row
    if cells or text[begin:].strip():
        raise SlurmError(
            f"Slurm's answer ends within a record ({fields + len(cells)} fields, {len(columns)} a record)",
            hint="ask again",
        )


def parse_job(row: Mapping[str, str]) -> JobRecord:
    """Return one job from the columns of ``squeue -O``; columns that were not requested are "not reported".

    Raises
    ------
    SlurmError
        The job id is no number, or a node list cannot be read.
    """
    number = parse_count(row.get("JobID", ""))
    if number is None:
        raise SlurmError(f"Slurm answered a job without id: {row.get('JobID', '')[:40]!r}")
    values = {field: read(row.get(column, "")) for field, (column, read) in _PLAIN.items()}
    state = row.get("State", "").strip().upper()
    state = COMPACT_STATES.get(state, state)
    code, signal = (None, None) if state in _UNENDED else parse_exit_status(row.get("exit_code", ""))
    node_count = parse_count(row.get("NumNodes", "")) or len(values["nodes"])
    gpus, per_node, gpu_type = count_requested_gpus(row, node_count)
    in_array = values["array_task"] is not None
    het = parse_count(row.get("HetJobID", "")) or None
    return JobRecord(
        **values,
        id=number,
        label=parse_optional(row.get("JobArrayID", "")) or _format_label(row, number),
        state=state,
        node_count=node_count,
        cpus=parse_count(row.get("NumCPUs", "")) or 0,
        gpus=gpus,
        gpus_per_node=per_node,
        gpu_type=gpu_type,
        array_job_id=parse_count(row.get("ArrayJobID", "")) if in_array else None,
        het_job_id=het,
        het_offset=parse_count(row.get("HetJobOffset", "")) if het else None,
        exit_code=code,
        exit_signal=signal,
    )


def _format_label(row: Mapping[str, str], number: int) -> str:
    """Return the id as people write it, where ``squeue`` was not queried for it."""
    task = parse_optional(row.get("ArrayTaskID", ""))
    if task:
        array = parse_count(row.get("ArrayJobID", "")) or number
        return f"{array}_{task}" if task.isdecimal() else f"{array}_[{task}]"
    het = parse_count(row.get("HetJobID", ""))
    return f"{het}+{parse_count(row.get('HetJobOffset', '')) or 0}" if het else str(number)


def count_requested_gpus(row: Mapping[str, str], node_count: int) -> tuple[int, int | None, str | None]:
    """Return total GPUs (allocated, else requested), GPUs on each node where that is fixed, and their type."""
    total, gpu_type = parse_gpus(row.get("tres-alloc", ""))
    per_node, node_type = parse_gpus(row.get("tres-per-node", ""))
    per_job, job_type = parse_gpus(row.get("tres-per-job", ""))
    per_task, task_type = parse_gpus(row.get("tres-per-task", ""))
    tasks = parse_count(row.get("NumTasks", "")) or 0
    total = total or per_job or per_node * node_count or per_task * tasks
    if not per_node and node_count == 1:
        per_node = total
    return total, (per_node or None), gpu_type or node_type or job_type or task_type


def split_records(text: str) -> dict[int, list[str]]:
    """Return the records of ``scontrol show job`` by job id; forged ones make an id have several."""
    starts = [(match.start(), int(match.group(1))) for match in _RECORD.finditer(text)]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    records: dict[int, list[str]] = {}
    for (start, number), end in zip(starts, ends, strict=True):
        records.setdefault(number, []).append(text[start:end])
    return records


def add_details(job: JobRecord, record: str) -> JobRecord:
    """Return ``job`` with what only ``scontrol -d show job`` reports, as far as no user can have written it.

    Slurm prints the administrator's comment directly below the working directory. It is trusted only when there is
    one such place in the record and the directory has the name that ``squeue`` gave. GPU indices are trusted when
    they are on nodes of the job, each node once, and as many as the job holds.
    """
    return dataclasses.replace(
        add_gpu_indices(job, _parse_indices_by_node(record)),
        admin_comment=_parse_admin_comment(job, record),
        excluded_nodes=job.excluded_nodes or _parse_excluded(job, record),
    )


def add_gpu_indices(job: JobRecord, indices_by_node: Mapping[str, tuple[int, ...]]) -> JobRecord:
    """Return ``job`` with the GPU indices of Slurm, where they are on its nodes and as many as it holds."""
    is_sound = set(indices_by_node) <= set(job.nodes) and sum(map(len, indices_by_node.values())) == job.gpus
    indices = dict(indices_by_node) if is_sound else {}
    even = {len(held) for held in indices.values()}
    return dataclasses.replace(
        job,
        gpu_indices=indices,
        gpus_per_node=even.pop() if len(even) == 1 and len(indices) == len(job.nodes) else job.gpus_per_node,
    )


def _parse_excluded(job: JobRecord, record: str) -> tuple[str, ...]:
    """Return the excluded nodes of a job, which ``squeue`` reports from 24.11 on; none where they may be forged."""
    matches = _ASKED_NODES.findall(record)
    if len(matches) != 1 or set(_parse_nodes(matches[0][0])) != set(job.required_nodes):
        return ()
    return _parse_nodes(matches[0][1])


def _parse_admin_comment(job: JobRecord, record: str) -> str | None:
    """Return the administrator's comment, or ``None`` where there is none or it may be forged."""
    places = list(_WORK_DIR.finditer(record))
    if len(places) != 1 or places[0].group(1).strip() != (job.work_dir or ""):
        return None
    below = record[places[0].end() + 1 :].partition("\n")[0]
    match = _ADMIN.fullmatch(below)
    return parse_optional(match.group(1)) if match else None


def _parse_indices_by_node(record: str) -> dict[str, tuple[int, ...]]:
    """Return node to GPU indices; empty where the record lacks them, or names a node twice."""
    held: dict[str, tuple[int, ...]] = {}
    for listed, gres in _GRES_LINE.findall(record):
        indices = parse_gpu_indices(gres)
        if not indices:
            continue
        for node in _parse_nodes(listed):
            if node in held:
                return {}
            held[node] = indices
    return held


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
