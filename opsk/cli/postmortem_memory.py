"""What was predicted for a job whose GPU's memory ran out, and what would have fit?"""

from __future__ import annotations

from opsk.app.inputs.job_work import documents_of_job
from opsk.errors import OpskError
from opsk.postmortem.reasoning.memory import with_prediction
from opsk.postmortem.values import FailureClass, JobFacts, Report
from opsk.slurm.records import JobRecord


def with_prediction_of_job(report: Report) -> Report:
    """Return a report with the terms of the predicted memory and what would fit, where advice or script are kept."""
    job, root = report.job, report.root
    if job is None or root is None or root.failure is not FailureClass.GPU_MEMORY:
        return report
    record = _record(job)
    if record is None:
        return report
    try:
        document = next((each for each in documents_of_job(record) if isinstance(each.get("memory"), dict)), None)
    except OpskError:
        return report
    return with_prediction(report, document) if document is not None else report


def _record(job: JobFacts) -> JobRecord | None:
    """Return what is needed of a job to find its advice and its script."""
    number = job.job_id.partition("_")[0].partition("+")[0]
    if not number.isdecimal() or len(number) > 10:
        return None
    return JobRecord(
        id=int(number), label=job.job_id, user=job.user, name=job.name, state=job.state, nodes=job.nodes,
        node_count=len(job.nodes), admin_comment=job.admin_comment or None,
    )  # fmt: skip
