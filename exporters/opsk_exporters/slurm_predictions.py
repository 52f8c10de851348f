"""What was predicted for the jobs that run now? The numbers of the records that opsk left in their AdminComment.

``job`` is the job as people write it and ``job_id`` Slurm's own number of it: the collectors of a node name a task of
an array by the one or, where they may read no process's environment, by the other. Only ``admin_comment`` is read,
which operators write: a user's own comment may say anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsk.slurm.queue_text import QueuedJobs
from opsk.workload.advice_record import AdviceRecord
from opsk_exporters.families import Families
from opsk_exporters.slurm_words import job_state

MAX_JOBS = 2000
"""Jobs whose predictions are told, those with the most GPUs first: an array of single GPUs is no reason for more."""

_SAID = "that opsk predicted in the job's record (AdminComment); running jobs with a record only."
PREDICTED = (
    ("step_seconds", f"Time of one step {_SAID}", "step_s"),
    ("memory_bytes", f"Memory of the fullest GPU {_SAID}", "mem_bytes"),
    ("tokens_per_second_per_gpu", f"Tokens that one GPU trains in a second {_SAID}", "tokens_per_s_per_gpu"),
    ("tflops_per_gpu", f"Model TFLOP/s of one GPU {_SAID}", "tflops"),
    ("mfu_ratio", f"Model FLOP utilisation {_SAID}", "mfu"),
)


def add_predictions(families: Families, queue: Sequence[QueuedJobs], most: int = MAX_JOBS) -> None:
    """Add what was predicted for each running job that has a record.

    Parameters
    ----------
    most
        For how many jobs at most.
    """
    found = {row.id: (row, record) for row in queue if (record := _record(row)) is not None}
    largest = sorted(found.values(), key=lambda each: (-each[0].gpus, each[0].id))
    families.gauge(
        "opsk_slurm_predicted_jobs",
        f"Running jobs that have a record of opsk; series of their own have the {MAX_JOBS:,} with the most GPUs.",
        len(found),
    )
    for row, record in largest[:most]:
        for name, help_text, key in PREDICTED:
            value = getattr(record, key) or None
            families.gauge(f"opsk_slurm_job_predicted_{name}", help_text, value, job=row.label, job_id=str(row.id))


def _record(row: QueuedJobs) -> AdviceRecord | None:
    """Return the record of a running job; ``None`` where there is none, or no job of its own."""
    if not row.admin_comment or "opsk:v1" not in row.admin_comment or not row.label or row.tasks != 1:
        return None
    return AdviceRecord.parse(row.admin_comment) if job_state(row.state) == "running" else None
