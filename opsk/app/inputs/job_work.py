"""What does a job train, model and all? Its record in Slurm has the plan alone; its advice and its script have more.

What the site's store keeps of the advice comes first: it is what was predicted. Else the script that Slurm keeps is
read by ``opsk check``, by a process that is the job's user where the caller is root: a script names files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsk.app.store_opening import site_store
from opsk.config import load_site
from opsk.errors import OpskError
from opsk.slurm.commands.job_script import checked_job
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.checked import completion_of
from opsk.workload.completion import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_MOST_ADVICE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """What a job trains, and what had to be assumed."""

    model: ModelShape
    plan: Plan
    assumed: tuple[Assumption, ...]


def work_of_job(job: JobRecord) -> JobWork | None:
    """Return model and plan of a job; ``None`` where neither its advice nor its script tells both."""
    return next((found for document in documents_of_job(job) if (found := work_of_document(document, job))), None)


def work_of_document(document: Mapping[str, Any], job: JobRecord) -> JobWork | None:
    """Return what an answer of ``opsk check`` says that is trained; ``None`` where it cannot be predicted."""
    found = completion_of(document)
    if found is None or found.model is None or found.plan is None or (job.gpus and found.plan.gpus > job.gpus):
        return None
    is_named = bool(document["workload"]["model"].get("name"))
    model = found.model if is_named or not job.name else replace(found.model, name=job.name)
    return JobWork(model=model, plan=found.plan, assumed=found.assumed)


def documents_of_job(job: JobRecord) -> Iterator[Mapping[str, Any]]:
    """Yield answers of ``opsk check``, the surest first; what cannot be had is left out."""
    record = AdviceRecord.parse(job.admin_comment or "")
    if record is not None and record.hash:
        yield from _kept_advice(record)
    read = checked_job(job)
    if read is not None:
        yield read


def _kept_advice(record: AdviceRecord) -> list[Mapping[str, Any]]:
    """Return what the store keeps of the advice on the job's script; what predicted the same comes first."""
    if load_site().store.url is None:
        return []
    try:
        engine = site_store(writing=False)
        from opsk.store.records.advice import advice

        kept = [each.document for each in advice(engine, script_hash=record.hash, limit=_MOST_ADVICE)]
    except OpskError:
        return []
    found = [each for each in kept if isinstance(each, Mapping)]
    return sorted(found, key=lambda each: AdviceRecord.parse(str(each.get("record"))) != record)
