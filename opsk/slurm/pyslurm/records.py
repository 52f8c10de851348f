"""Converts pyslurm's attributes of jobs and nodes to the columns of Slurm's commands.

The columns are then parsed by the same code, so that both adapters give the same records. Errors of pyslurm 25.11 are
corrected on the way: a task or a component with number 0 is ``None``, a GPU that is counted by type is counted without
type as well, and a node of which only GPUs are in use is reported as idle.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opsk.slurm.commands.fields import parse_gpu_indices
from opsk.slurm.commands.job_text import add_gpu_indices, parse_job
from opsk.slurm.commands.node_text import parse_node
from opsk.slurm.records import JobRecord, NodeRecord

ENDED_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
)  # fmt: skip
"""States of jobs that ``squeue`` leaves out by default."""


def build_job(raw: Mapping[str, Any], *, details: bool, now_s: float | None = None) -> JobRecord:
    """Return one job from what the child process read."""
    job = parse_job(_job_row(raw, time.time() if now_s is None else now_s))
    if not details:
        return job
    layout: Mapping[str, str] = raw.get("layout") or {}
    held = {node: parse_gpu_indices(f"gpu(IDX:{indices})") for node, indices in layout.items()}
    admin_comment = _text(raw, "admin_comment").strip() or None
    return dataclasses.replace(add_gpu_indices(job, held), admin_comment=admin_comment)


def is_exit_code_doubtful(raw: Mapping[str, Any]) -> bool:
    """Return whether the job's exit code may be one of 128 and above: pyslurm takes 128 off those."""
    is_over = raw.get("state") in ENDED_STATES
    return is_over and not raw.get("exit_code_signal") and (bool(raw.get("exit_code")) or raw["state"] == "FAILED")


def _job_row(raw: Mapping[str, Any], now_s: float) -> dict[str, str]:
    """Return the columns of ``squeue`` for one job."""
    number, array, task = _number(raw, "id"), _number(raw, "array_id"), _task(raw)
    limit_min, end_s = _number(raw, "time_limit"), _number(raw, "end_time")
    is_endless = limit_min is None and end_s is not None and end_s > now_s
    signal, code = _number(raw, "exit_code_signal") or 0, _number(raw, "exit_code") or 0
    values = {
        "JobID": number,
        "JobArrayID": _label(raw),
        "ArrayJobID": array if array is not None else number,
        "ArrayTaskID": task,
        "HetJobID": _number(raw, "heterogeneous_id"),
        "HetJobOffset": _number(raw, "heterogeneous_offset") or 0,
        "NumNodes": _number(raw, "num_nodes"),
        "NumCPUs": _number(raw, "cpus"),
        "NumTasks": _number(raw, "ntasks"),
        "tres-alloc": _tres(raw.get("gpus")),
        "tres-per-node": _tres(raw.get("gpus_per_node")),
        "tres-per-task": _tres(raw.get("gpus_per_task")),
        "TimeLimit": None if limit_min is None else f"{limit_min}:00",
        "TimeUsed": f"0:{_number(raw, 'run_time') or 0}",
        "SubmitTime": _number(raw, "submit_time"),
        "StartTime": _number(raw, "start_time"),
        "EndTime": None if is_endless else end_s,
        "exit_code": f"{code}:{signal}",
        "RestartCnt": _number(raw, "requeue_count") or 0,
    }
    row = {column: "" if value is None else str(value) for column, value in values.items()}
    return row | {column: _text(raw, name) for column, name in _TEXTS.items()}


_TEXTS = {
    "UserName": "user", "Account": "account", "Partition": "partition", "QOS": "qos", "State": "state",
    "Reason": "state_reason", "NodeList": "allocated_nodes", "Reservation": "reservation",
    "ReqNodes": "required_nodes", "ExcNodes": "excluded_nodes", "Name": "name", "Comment": "comment",
    "WorkDir": "working_directory", "Command": "command", "STDOUT": "standard_output", "STDERR": "standard_error",
}  # fmt: skip
"""Columns of ``squeue`` that are one text of pyslurm's."""


def _task(raw: Mapping[str, Any]) -> str | None:
    """Return the task of an array, or those that wait with how many may run at once; task 0 comes as ``None``."""
    if _number(raw, "array_id") is None:
        return None
    waiting, at_once = _text(raw, "array_tasks_waiting"), _number(raw, "array_tasks_parallel")
    if waiting:
        return f"{waiting}%{at_once}" if at_once else waiting
    return str(_number(raw, "array_task_id") or 0)


def _label(raw: Mapping[str, Any]) -> str:
    """Return the id as ``squeue`` writes it."""
    task, array, het = _task(raw), _number(raw, "array_id"), _number(raw, "heterogeneous_id")
    if task is not None:
        return f"{array}_[{task}]" if _text(raw, "array_tasks_waiting") else f"{array}_{task}"
    return f"{het}+{_number(raw, 'heterogeneous_offset') or 0}" if het else str(_number(raw, "id"))


def build_nodes(raw: Mapping[str, Any]) -> tuple[tuple[NodeRecord, ...], bool]:
    """Return the nodes, and whether the visible jobs hold all GPUs that the nodes report as in use.

    They do not while a job ends, and for users from whom Slurm hides the jobs of others.
    """
    nodes = tuple(_node(node, raw["held"].get(node.get("name"), ())) for node in raw["nodes"])
    return nodes, all(len(node.gpu_indices_used) == node.gpus_used for node in nodes)


def _node(raw: Mapping[str, Any], held: Sequence[str]) -> NodeRecord:
    used = raw.get("allocated_gres") or {}
    cpus, busy = _number(raw, "total_cpus") or 0, _number(raw, "allocated_cpus") or 0
    values = {
        "NodeList": _text(raw, "name"),
        "StateComplete": _state(raw),
        "Features": ",".join(map(str, raw.get("available_features") or ())),
        "Gres": _tres(raw.get("configured_gres")),
        "GresUsed": _tres(used),
        "CPUsState": f"{busy}/0/0/{cpus}",
        "Memory": str(_number(raw, "real_memory") or 0),
        "NodeAddr": _text(raw, "address"),
        "Port": str(_number(raw, "slurmd_port") or ""),
        "Version": _text(raw, "slurm_version"),
        "Reason": _text(raw, "reason"),
        "Comment": _text(raw, "comment"),
    }
    node = parse_node(values)
    indices = sorted({index for text in held for index in parse_gpu_indices(f"gpu(IDX:{text})")})
    return dataclasses.replace(
        node,
        partitions=tuple(map(str, raw.get("partitions") or ())),
        gpus_used=node.gpus_used or len(indices),
        gpu_indices_used=tuple(indices),
    )


def _state(raw: Mapping[str, Any]) -> str:
    """Return the state as ``sinfo`` writes it: a node of which jobs hold no CPU but GPUs or memory is mixed."""
    state = _text(raw, "state")
    if raw.get("allocated_tres") and not _number(raw, "allocated_cpus"):
        return "+".join(["MIXED", *state.split("+")[1:]])
    return state


def _tres(counts: Any) -> str:
    """Return GPUs by name as Slurm writes them: ``gpu=5,gpu:h100=5``, of which the first already counts the second."""
    named = counts.items() if isinstance(counts, Mapping) else ()
    return ",".join(f"{name}={count}" for name, count in named if isinstance(count, int))


def _number(raw: Mapping[str, Any], name: str) -> int | None:
    """Return a count; pyslurm writes words such as ``UNLIMITED`` where there is none."""
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""
