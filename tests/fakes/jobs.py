"""Jobs of a small cluster for the table of jobs: of every verdict, and one that a hostile user named."""

from __future__ import annotations

from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord, Verdict

HOSTILE_NAME = "[red]x[/red][@click=app.quit]y[/] \x1b]0;title\x07\u202etxt\x9b2J"


def record(number: int, name: str, **values: object) -> JobRecord:
    """Return a job record with plausible defaults."""
    defaults: dict[str, object] = {"user": "ada", "state": "RUNNING", "partition": "train", "node_count": 8, "gpus": 64}
    return JobRecord(id=number, label=str(number), name=name, **{**defaults, **values})  # type: ignore[arg-type]


def advised(**values: object) -> str:
    """Return a comment with advice."""
    return AdviceRecord(**{"capacity_bytes": 80e9, **values}).render()  # type: ignore[arg-type]


RECORDS = (
    record(
        4711,
        "llama3-70b",
        run_time_s=93_784,
        nodes=("gpu001", "gpu002"),
        admin_comment=advised(
            verdict=Verdict.FITS, fit=0.99, mem_bytes=60e9, step_s=12.34, tflops=412, mfu=0.417, tp=4, pp=2, dp=8
        ),
    ),
    record(
        4712,
        "mixtral-8x22b",
        user="grace",
        state="PENDING",
        reason="Resources",
        node_count=16,
        gpus=128,
        admin_comment=advised(verdict=Verdict.OOM, fit=0.01, mem_bytes=96e9, tp=8, pp=1, ep=8, dp=16),
    ),
    record(4713, "finetune", state="PENDING", reason="Priority", admin_comment=advised(verdict=Verdict.UNKNOWN)),
    record(4714, "gpt-tight", run_time_s=65, admin_comment=advised(verdict=Verdict.TIGHT, fit=0.6, mem_bytes=78e9)),
    record(4715, HOSTILE_NAME, user="mallory", run_time_s=5, comment="opsk:v1 verdict=[bold]fits"),
)
