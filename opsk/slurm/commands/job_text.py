"""What does the text of ``squeue`` and ``scontrol show job`` say of jobs, when users may write anything into it?

Names, comments and paths may hold new lines and whole forged records (tried on 22.05). ``squeue`` is therefore asked
with a separator that is drawn for each question, and no field of ``scontrol`` is believed that a user could have
written: see `details_of`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opsk import hostlist
from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.fields import count, duration_s, exit_status, gpu_indices, gpus_of, moment, optional
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


def _nodes(text: str) -> tuple[str, ...]:
    """Return the names of a host list; none for the words with which Slurm says "nothing"."""
    listed = optional(text)
    if listed is None:
        return ()
    try:
        return hostlist.expand(listed)
    except InputError as error:
        raise SlurmError(f"Slurm answered a node list that cannot be read: {error.message}") from error


_PLAIN: dict[str, tuple[str, Callable[[str], Any]]] = {
    "user": ("UserName", str.strip),
    "name": ("Name", str),
    "reason": ("Reason", optional),
    "partition": ("Partition", str.strip),
    "account": ("Account", optional),
    "qos": ("QOS", optional),
    "nodes": ("NodeList", _nodes),
    "tasks": ("NumTasks", count),
    "array_task": ("ArrayTaskID", optional),
    "comment": ("Comment", optional),
    "reservation": ("Reservation", optional),
    "required_nodes": ("ReqNodes", _nodes),
    "excluded_nodes": ("ExcNodes", _nodes),
    "submit_time": ("SubmitTime", moment),
    "start_time": ("StartTime", moment),
    "end_time": ("EndTime", moment),
    "time_limit_s": ("TimeLimit", duration_s),
    "run_time_s": ("TimeUsed", duration_s),
    "restarts": ("RestartCnt", count),
    "work_dir": ("WorkDir", optional),
    "command": ("Command", optional),
    "std_out": ("STDOUT", optional),
    "std_err": ("STDERR", optional),
}
"""Fields of a job that one column says: the column, and how it is read."""


def parse_jobs(text: str, columns: Sequence[str], separator: str) -> tuple[JobRecord, ...]:
    """Return the jobs of ``squeue -h -O`` in which ``separator`` ends every column.

    Raises
    ------
    SlurmError
        The output ends within a record, or a record has no job id.
    """
    return tuple(job_of(row) for row in rows(text, columns, separator))


def rows(text: str, columns: Sequence[str], separator: str) -> Iterator[dict[str, str]]:
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


def job_of(row: Mapping[str, str]) -> JobRecord:
    """Return one job from the columns of ``squeue -O``; columns that were not asked for are "not said".

    Raises
    ------
    SlurmError
        The job id is no number, or a node list cannot be read.
    """
    number = count(row.get("JobID", ""))
    if number is None:
        raise SlurmError(f"Slurm answered a job without id: {row.get('JobID', '')[:40]!r}")
    said = {field: read(row.get(column, "")) for field, (column, read) in _PLAIN.items()}
    state = row.get("State", "").strip().upper()
    state = COMPACT_STATES.get(state, state)
    code, signal = (None, None) if state in _UNENDED else exit_status(row.get("exit_code", ""))
    node_count = count(row.get("NumNodes", "")) or len(said["nodes"])
    gpus, per_node, gpu_type = gpus_asked_for(row, node_count)
    in_array = said["array_task"] is not None
    het = count(row.get("HetJobID", "")) or None
    return JobRecord(
        **said,
        id=number,
        label=optional(row.get("JobArrayID", "")) or _label(row, number),
        state=state,
        node_count=node_count,
        cpus=count(row.get("NumCPUs", "")) or 0,
        gpus=gpus,
        gpus_per_node=per_node,
        gpu_type=gpu_type,
        array_job_id=count(row.get("ArrayJobID", "")) if in_array else None,
        het_job_id=het,
        het_offset=count(row.get("HetJobOffset", "")) if het else None,
        exit_code=code,
        exit_signal=signal,
    )


def _label(row: Mapping[str, str], number: int) -> str:
    """Return the id as people write it, where ``squeue`` was not asked for it."""
    task = optional(row.get("ArrayTaskID", ""))
    if task:
        array = count(row.get("ArrayJobID", "")) or number
        return f"{array}_{task}" if task.isdecimal() else f"{array}_[{task}]"
    het = count(row.get("HetJobID", ""))
    return f"{het}+{count(row.get('HetJobOffset', '')) or 0}" if het else str(number)


def gpus_asked_for(row: Mapping[str, str], node_count: int) -> tuple[int, int | None, str | None]:
    """Return GPUs in all (allocated, else asked for), GPUs on each node where that is fixed, and their type."""
    total, gpu_type = gpus_of(row.get("tres-alloc", ""))
    per_node, node_type = gpus_of(row.get("tres-per-node", ""))
    per_job, job_type = gpus_of(row.get("tres-per-job", ""))
    per_task, task_type = gpus_of(row.get("tres-per-task", ""))
    tasks = count(row.get("NumTasks", "")) or 0
    total = total or per_job or per_node * node_count or per_task * tasks
    if not per_node and node_count == 1:
        per_node = total
    return total, (per_node or None), gpu_type or node_type or job_type or task_type


def records_by_id(text: str) -> dict[int, list[str]]:
    """Return the records of ``scontrol show job`` by job id; forged ones make an id have several."""
    starts = [(match.start(), int(match.group(1))) for match in _RECORD.finditer(text)]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    records: dict[int, list[str]] = {}
    for (start, number), end in zip(starts, ends, strict=True):
        records.setdefault(number, []).append(text[start:end])
    return records


def details_of(job: JobRecord, record: str) -> JobRecord:
    """Return ``job`` with what only ``scontrol -d show job`` says, as far as no user can have written it.

    Slurm prints the administrator's comment directly below the working directory. It is believed only when there is
    one such place in the record and the directory has the name that ``squeue`` gave. GPU indices are believed when
    they are on nodes of the job, each node once, and as many as the job holds.
    """
    return dataclasses.replace(
        with_indices(job, _told_indices(record)),
        admin_comment=_admin_comment(job, record),
        excluded_nodes=job.excluded_nodes or _excluded(job, record),
    )


def with_indices(job: JobRecord, told: Mapping[str, tuple[int, ...]]) -> JobRecord:
    """Return ``job`` with the GPU indices that Slurm tells, where they are on its nodes and as many as it holds."""
    is_sound = set(told) <= set(job.nodes) and sum(map(len, told.values())) == job.gpus
    indices = dict(told) if is_sound else {}
    even = {len(held) for held in indices.values()}
    return dataclasses.replace(
        job,
        gpu_indices=indices,
        gpus_per_node=even.pop() if len(even) == 1 and len(indices) == len(job.nodes) else job.gpus_per_node,
    )


def _excluded(job: JobRecord, record: str) -> tuple[str, ...]:
    """Return the nodes that a job does not want, which ``squeue`` tells from 24.11 on; none where it may be forged."""
    told = _ASKED_NODES.findall(record)
    if len(told) != 1 or set(_nodes(told[0][0])) != set(job.required_nodes):
        return ()
    return _nodes(told[0][1])


def _admin_comment(job: JobRecord, record: str) -> str | None:
    """Return the administrator's comment, or ``None`` where there is none or it may be forged."""
    places = list(_WORK_DIR.finditer(record))
    if len(places) != 1 or places[0].group(1).strip() != (job.work_dir or ""):
        return None
    below = record[places[0].end() + 1 :].partition("\n")[0]
    match = _ADMIN.fullmatch(below)
    return optional(match.group(1)) if match else None


def _told_indices(record: str) -> dict[str, tuple[int, ...]]:
    """Return node to GPU indices; empty where the record does not say, or names a node twice."""
    held: dict[str, tuple[int, ...]] = {}
    for listed, gres in _GRES_LINE.findall(record):
        indices = gpu_indices(gres)
        if not indices:
            continue
        for node in _nodes(listed):
            if node in held:
                return {}
            held[node] = indices
    return held
