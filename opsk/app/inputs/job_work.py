"""Finds the model and plan that a job trains.

The record in Slurm has the plan alone; advice in the site's store and the job's script have the model too. Advice comes
first, since it is what was predicted. Otherwise ``opsk check`` reads the script that Slurm stores, in a process of the
job's user where the caller is root: a script names files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsk.app.site_store import open_site_store
from opsk.config import load_site
from opsk.errors import InputError, OpskError
from opsk.slurm.commands.current_job import find_own_job, read_batch_script
from opsk.slurm.commands.job_script import check_job, check_script
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.completion import Assumption, complete_answer
from opsk.workload.model import ModelShape
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


_MAX_ADVICE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """The model and plan that a job trains, and the assumptions."""

    model: ModelShape
    plan: Plan
    assumed: tuple[Assumption, ...]


def find_job_work(job: JobRecord) -> JobWork | None:
    """Return model and plan of a job; ``None`` where neither its advice nor its script has both."""
    return next((work for document in find_job_documents(job) if (work := parse_job_work(document, job))), None)


def parse_job_work(document: Mapping[str, Any], job: JobRecord) -> JobWork | None:
    """Return model and plan from an answer of ``opsk check``; ``None`` where they cannot be predicted."""
    completion = complete_answer(document)
    if (
        completion is None
        or completion.model is None
        or completion.plan is None
        or (job.gpus and completion.plan.gpus > job.gpus)
    ):
        return None
    is_named = bool(document["workload"]["model"].get("name"))
    model = completion.model if is_named or not job.name else replace(completion.model, name=job.name)
    return JobWork(model=model, plan=completion.plan, assumed=completion.assumed)


def find_job_documents(job: JobRecord) -> Iterator[Mapping[str, Any]]:
    """Yield answers of ``opsk check``, the most reliable first; unavailable ones are left out."""
    record = AdviceRecord.parse(job.admin_comment or "")
    if record is not None and record.hash:
        yield from _read_stored_advice(record)
    checked = check_job(job)
    if checked is not None:
        yield checked


def _read_stored_advice(record: AdviceRecord) -> list[Mapping[str, Any]]:
    """Return the stored advice on the job's script; advice with the same prediction comes first."""
    if load_site().store.url is None:
        return []
    try:
        engine = open_site_store(writing=False)
        from opsk.store.records.advice import find_advice

        stored = [item.document for item in find_advice(engine, script_hash=record.hash, limit=_MAX_ADVICE)]
    except OpskError:
        return []
    documents = [item for item in stored if isinstance(item, Mapping)]
    return sorted(documents, key=lambda item: AdviceRecord.parse(str(item.get("record"))) != record)
