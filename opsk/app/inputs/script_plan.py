"""Reads the plan from a job's own script with ``opsk check``, for jobs whose record in Slurm has none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from opsk.errors import InputError, OpskError
from opsk.slurm.commands.current_job import find_own_job, read_batch_script
from opsk.slurm.commands.job_script import check_script
from opsk.slurm.records import JobRecord
from opsk.workload.plan import Plan

_SCRIPT_S, _READING_S = 5.0, 12.0
"""How long a starting job waits for Slurm, and for ``opsk check``: short against the cost of a wrong rank order."""


def read_script_plan(job: JobRecord) -> Plan | None:
    """Return the plan in the script of this process's own job; ``None`` where it cannot be read."""
    if find_own_job(os.environ) != str(job.id):
        return None
    try:
        script = read_batch_script(job.id, os.environ, deadline_s=_SCRIPT_S)
        checked = check_script(script, max(job.node_count, len(job.nodes), 1), deadline_s=_READING_S)
        return parse_checked_plan(checked, max(job.gpus, 1))
    except (OpskError, OSError, subprocess.SubprocessError, ValueError):
        return None


def parse_checked_plan(document: Mapping[str, Any], gpus: int) -> Plan | None:
    """Return the plan in the answer of ``opsk check``; ``None`` where it lacks the parallelism."""
    stated = document["workload"]["plan"]
    assumed = {item["field"]: item["value"] for item in document["assumed"]}
    sizes = {axis: stated.get(axis) or assumed.get(f"plan.{axis}") for axis in ("tp", "pp", "cp", "ep", "dp")}
    is_known = document["workload"]["framework"] is not None or stated.get("tp") is not None
    if not is_known or None in (sizes["tp"], sizes["pp"]):
        return None
    tp, pp, cp, ep = (int(sizes[axis] or 1) for axis in ("tp", "pp", "cp", "ep"))
    dp = int(sizes["dp"] or max(gpus // (tp * pp * cp), 1))
    try:
        return Plan(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp, global_batch=dp * 4 * pp)
    except (OpskError, ValueError) as error:
        raise InputError("the script's plan contradicts itself") from error
