"""Which plan does a job's own script state, where its record in Slurm carries none? ``opsk check`` reads it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from opsk.errors import InputError, OpskError
from opsk.slurm.commands.job_script import checked_script
from opsk.slurm.commands.own_job import batch_script, own_job
from opsk.slurm.records import JobRecord
from opsk.workload.plan import Plan

_SCRIPT_S, _READING_S = 5.0, 12.0
"""How long a job waits at its start for Slurm, and for ``opsk check``: little beside a wrong order of ranks."""


def plan_of_script(job: JobRecord) -> Plan | None:
    """Return the plan that the script of this process's own job states; ``None`` where nobody can tell."""
    if own_job(os.environ) != str(job.id):
        return None
    try:
        script = batch_script(job.id, os.environ, deadline_s=_SCRIPT_S)
        checked = checked_script(script, max(job.node_count, len(job.nodes), 1), deadline_s=_READING_S)
        return plan_of_check(checked, max(job.gpus, 1))
    except (OpskError, OSError, subprocess.SubprocessError, ValueError):
        return None


def plan_of_check(document: Mapping[str, Any], gpus: int) -> Plan | None:
    """Return the plan in the answer of ``opsk check``; ``None`` where it cannot tell how the model is split."""
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
