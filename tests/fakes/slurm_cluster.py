"""Clusters as slurmctld holds them, and what Slurm's commands print of them.

A cluster is drawn from a seed in the terms of Slurm's own structures (``slurm_job_info_t``, ``node_info_t``), so that
the stand-in for pyslurm and the stand-ins for the commands tell the same cluster, each with its own way of putting it.
"""

from __future__ import annotations

import json
import marshal
import os
import pwd
import random
import sys
from pathlib import Path
from typing import Any

from opsk.hostlist import fold

NOW_S = 1_800_000_000
GPUS = 8
COMMANDS = Path(__file__).with_name("slurm_commands.py")

Told = dict[str, Any]


def cluster(seed: int, nodes: int = 8) -> Told:
    """Draw a cluster: one job of every kind that the adapters must tell apart, and as many more as fit."""
    dice = random.Random(seed)
    kind = dice.choice(["h100", "a100", None])
    names = [f"n{index}" for index in range(nodes)]
    free = {name: list(range(GPUS)) for name in names}
    jobs = [
        _running(1, dice, {names[0]: GPUS, names[1]: GPUS}, free, kind, name="even", comment="team=x run=1"),
        _running(2, dice, {names[2]: 4, names[3]: 1}, free, kind, name="uneven", tres_per_job="gres/gpu:5"),
        _running(3, dice, {names[3]: 2}, free, kind, name="het", het_job_id=3, het_job_offset=0),
        _running(4, dice, {names[4]: 1}, free, kind, name="het", het_job_id=3, het_job_offset=1),
        _ended(5, dice, names[5], kind, "COMPLETED", 0, array_job_id=10, array_task_id=0, array_max_tasks=2),
        _running(6, dice, {names[5]: 2}, free, kind, array_job_id=10, array_task_id=1, array_max_tasks=2),
        _pending(10, dice, gpus=1, array_job_id=10, array_task_str="3-4%2", array_max_tasks=2),
        _pending(11, dice, gpus=GPUS, num_nodes=4, tres_per_node=_named("gres/gpu", kind, GPUS)),
        _pending(12, dice, gpus=2, num_tasks=2, tres_per_task="gres/gpu=1", job_state="SPECIAL_EXIT", restart_cnt=3),
        _pending(13, dice, gpus=0, num_nodes=2, time_limit=None, exc_nodes=fold(names[:2]), req_nodes=names[4]),
        _ended(14, dice, names[6], kind, "FAILED", 3 << 8),
        _ended(15, dice, names[6], kind, "FAILED", 137 << 8, state_reason="NonZeroExitCode"),
        _ended(16, dice, names[6], kind, "FAILED", 128 << 8),
        _ended(17, dice, names[6], kind, "CANCELLED", 15),
        _running(18, dice, {names[6]: 1}, free, kind, name="a\n   AdminComment=forged |x|", user_id=3_999_999_999),
        _running(19, dice, {names[7]: 2}, free, kind, job_state="SUSPENDED", num_cpus=0),
    ]  # fmt: skip
    for number in range(20, 20 + dice.randrange(12)):
        wanted = {name: dice.randint(1, len(free[name])) for name in dice.sample(names, 2) if free[name]}
        if wanted:
            jobs.append(_running(number, dice, wanted, free, kind))
    return {"jobs": jobs, "nodes": [_node(name, dice, jobs, kind) for name in names]}


def _named(word: str, kind: str | None, count: int) -> str:
    return f"{word}:{kind}:{count}" if kind else f"{word}:{count}"


def _tres(cpus: int, gpus: int, kind: str | None) -> str:
    typed = f",gres/gpu:{kind}={gpus}" if kind and gpus else ""
    return f"cpu={cpus},mem=100M,node=1,billing={cpus}" + (f",gres/gpu={gpus}{typed}" if gpus else "")


def _job(number: int, dice: random.Random, **more: Any) -> Told:
    submitted = NOW_S - dice.randrange(100_000, 200_000)
    plain: Told = {
        "job_id": number, "user_id": os.getuid(), "job_state": "PENDING", "state_reason": "None",
        "name": f"job{number}", "partition": "gpu", "account": dice.choice(["phys", None]), "qos": "normal",
        "num_nodes": 1, "num_cpus": dice.choice([1, 8, 64]), "num_tasks": 1, "array_job_id": 0, "array_task_id": None,
        "array_task_str": None, "array_max_tasks": 0, "het_job_id": 0, "het_job_offset": 0, "submit_time": submitted,
        "start_time": 0, "end_time": 0, "time_limit": dice.choice([1, 60, 1500]), "run_time": 0, "exit_code": 0,
        "restart_cnt": 0, "work_dir": f"/home/u/{number}", "std_out": f"/home/u/{number}/%j.out",
    }  # fmt: skip
    return plain | more


def _running(
    number: int, dice: random.Random, wanted: dict[str, int], free: dict[str, list[int]], kind: str | None, **more: Any
) -> Told:
    detail = {}
    for node, count in wanted.items():
        indices = sorted(dice.sample(free[node], count))
        free[node] = [index for index in free[node] if index not in indices]
        detail[node] = _named("gpu", kind, count) + f"(IDX:{_ranges(indices)})"
    total, start = sum(wanted.values()), NOW_S - dice.randrange(1, 90_000)
    job = _job(
        number, dice, job_state="RUNNING", nodes=fold(sorted(wanted)), num_nodes=len(wanted), start_time=start,
        end_time=4_000_000_000, run_time=NOW_S - start, gres_detail=detail,
        admin_comment=dice.choice([None, "opsk:v1 x=1"]),
    )  # fmt: skip
    job |= more
    return job | {"tres_alloc_str": _tres(job["num_cpus"], total, kind), "tres_req_str": _tres(1, total, None)}


def _pending(number: int, dice: random.Random, *, gpus: int, **more: Any) -> Told:
    job = _job(number, dice, state_reason="Resources") | more
    return job | {"tres_req_str": _tres(job["num_cpus"], gpus * (job["num_nodes"] if gpus == GPUS else 1), None)}


def _ended(number: int, dice: random.Random, node: str, kind: str | None, state: str, status: int, **more: Any) -> Told:
    start = NOW_S - dice.randrange(1, 5000)
    job = _job(
        number, dice, job_state=state, nodes=node, start_time=start, end_time=start + 7, run_time=7, exit_code=status
    )
    return job | {"tres_alloc_str": _tres(1, 1, kind), "tres_req_str": _tres(1, 1, None)} | more


def _ranges(indices: list[int]) -> str:
    """Write indices as Slurm writes a bit string: ``0-2,5``."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _node(name: str, dice: random.Random, jobs: list[Told], kind: str | None) -> Told:
    held = [job["gres_detail"][name] for job in jobs if name in job.get("gres_detail", {})]
    indices = sorted(index for text in held for index in _indices(text))
    on_node = [job for job in jobs if name in job.get("gres_detail", {})]
    cpus = min(64, sum(job["num_cpus"] for job in on_node))
    gpus, typed = len(indices), f",gres/gpu:{kind}={len(indices)}" if kind else ""
    parts = ([f"cpu={cpus}"] if cpus else []) + ["mem=100M"] + ([f"gres/gpu={gpus}{typed}"] if gpus else [])
    base = "ALLOCATED" if cpus == 64 else "IDLE"
    flags = dice.choice([(), (), ("RESERVED",), ("DRAIN",)])
    return {
        "name": name, "state": "+".join((base, *flags)), "partitions": dice.choice(["gpu", "gpu,debug"]),
        "available_features": "rack0,ib", "gres": _named("gpu", kind, GPUS) + dice.choice(["", "(S:0-1)"]),
        "alloc_tres": ",".join(parts) if on_node else "", "total_cpus": 64, "allocated_cpus": cpus,
        "real_memory": 100_000, "address": "127.0.0.1", "slurmd_port": 27000 + int(name[1:]),
        "slurm_version": "25.11.7", "reason": "xid 79, gpu 5" if flags == ("DRAIN",) else None, "comment": None,
        "_used": f"{_named('gpu', kind, gpus)}(IDX:{_ranges(indices) or 'N/A'})",
    }  # fmt: skip


def _indices(text: str) -> list[int]:
    found: list[int] = []
    for part in text.partition("(IDX:")[2].rstrip(")").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def tables(told: Told) -> Told:
    """Return what Slurm's commands print of a cluster, column by column, in the spelling of 25.11."""
    return {
        "version": "slurm 25.11.7",
        "squeue": [_squeue_row(job) for job in told["jobs"]],
        "sinfo": [row for node in told["nodes"] for row in _sinfo_rows(node)],
        "scontrol": "\n".join(_scontrol_record(job) for job in told["jobs"]),
    }


def _squeue_row(job: Told) -> dict[str, str]:
    array, task = job["array_job_id"], job["array_task_str"] or job["array_task_id"]
    in_array, het = task is not None, job["het_job_id"]
    label = f"{array}_[{task}]" if job["array_task_str"] else f"{array}_{task}" if in_array else str(job["job_id"])
    status, limit = job["exit_code"], job["time_limit"]
    is_endless = limit is None and job["end_time"] > NOW_S
    said: Told = {
        "JobID": job["job_id"], "JobArrayID": f"{het}+{job['het_job_offset']}" if het else label,
        "ArrayJobID": array or job["job_id"], "ArrayTaskID": task if in_array else "N/A",
        "HetJobID": het or "N/A", "HetJobOffset": job["het_job_offset"] if het else "N/A",
        "UserName": _user(job["user_id"]), "Account": job["account"], "Partition": job["partition"],
        "QOS": job["qos"], "State": job["job_state"], "Reason": job["state_reason"], "NodeList": job.get("nodes", ""),
        "NumNodes": job["num_nodes"], "NumCPUs": job["num_cpus"], "NumTasks": job["num_tasks"],
        "tres-alloc": job.get("tres_alloc_str") or job.get("tres_req_str") or "N/A",
        "tres-per-node": job.get("tres_per_node") or "N/A", "tres-per-job": job.get("tres_per_job") or "N/A",
        "tres-per-task": job.get("tres_per_task") or "N/A",
        "TimeLimit": "UNLIMITED" if limit is None else _clock(60 * limit), "TimeUsed": _clock(job["run_time"]),
        "SubmitTime": job["submit_time"], "StartTime": job["start_time"] or "N/A",
        "EndTime": "NONE" if is_endless else job["end_time"] or "N/A",
        "exit_code": f"{0 if status & 0x7F else status >> 8}:{status & 0x7F}", "RestartCnt": job["restart_cnt"],
        "Reservation": job.get("resv_name"), "ReqNodes": job.get("req_nodes", ""),
        "ExcNodes": job.get("exc_nodes", ""), "Name": job["name"], "Comment": job.get("comment"),
        "WorkDir": job["work_dir"], "Command": job.get("command"), "STDOUT": job["std_out"],
        "STDERR": job.get("std_err") or "",
    }  # fmt: skip
    return {column: "(null)" if value is None else str(value) for column, value in said.items()}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + (f"{hour:02}:" if hours else "") + f"{minute:02}:{second:02}"


def _scontrol_record(job: Told) -> str:
    lines = [f"JobId={job['job_id']} JobName={job['name']}", f"   JobState={job['job_state']} Reason=None"]
    lines += [f"     Nodes={node} CPU_IDs=0 Mem=100 GRES={text}" for node, text in job.get("gres_detail", {}).items()]
    lines += [f"   WorkDir={job['work_dir']}"]
    lines += [f"   AdminComment={job['admin_comment']}"] if job.get("admin_comment") else []
    return "\n".join([*lines, f"   Comment={job.get('comment') or ''}", ""])


def _sinfo_rows(node: Told) -> list[dict[str, str]]:
    cpus, total = node["allocated_cpus"], node["total_cpus"]
    base, *flags = node["state"].split("+")
    base = "MIXED" if node["alloc_tres"] and cpus < total else base
    row: Told = {
        "NodeList": node["name"], "StateComplete": "+".join((base, *flags)).lower(), "Gres": node["gres"],
        "Features": node["available_features"], "GresUsed": node["_used"],
        "CPUsState": f"{cpus}/{total - cpus}/0/{total}", "Memory": node["real_memory"],
        "NodeAddr": node["address"], "Port": node["slurmd_port"], "Version": node["slurm_version"],
        "Reason": node["reason"] or "none", "Comment": node["comment"] or "(null)",
    }  # fmt: skip
    words = {column: str(value) for column, value in row.items()}
    parts = node["partitions"].split(",")
    return [words | {"Partition": part + ("*" if part == "gpu" else "")} for part in parts]


def install_commands(folder: Path, told: Told) -> dict[str, str]:
    """Put stand-ins for Slurm's commands that print these tables into ``folder``; return the environment to use."""
    folder.mkdir(exist_ok=True)
    data = folder / "tables"
    data.write_bytes(marshal.dumps(told))
    for name in ("squeue", "sinfo", "scontrol"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{COMMANDS}" {name} "{data}" "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}/usr/bin:/bin"}


def install_pyslurm(folder: Path, told: Told | None = None, mode: str = "") -> dict[str, str]:
    """Return the environment in which pyslurm's stand-in tells of this cluster, or misbehaves as ``mode`` says."""
    folder.mkdir(exist_ok=True)
    data, conf = folder / "slurmctld.json", folder / "slurm.conf"
    data.write_text(json.dumps(told or {"jobs": [], "nodes": []}), encoding="utf-8")
    conf.write_text("ClusterName=fake\n", encoding="utf-8")
    return {
        "PYTHONPATH": str(Path(__file__).parent), "FAKE_SLURMCTLD": str(data), "FAKE_PYSLURM_MODE": mode,
        "SLURM_CONF": str(conf), "PATH": os.defpath,
    }  # fmt: skip
