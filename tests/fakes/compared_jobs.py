"""Jobs that were predicted and measured, as `opsk accuracy` answers on them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from opsk.app.accuracy.document import Reader, build_accuracy_document
from opsk.app.accuracy.jobs import ComparedJobs
from opsk.diagnosis.accuracy.comparison import ComparedJob, Comparison
from opsk.text import to_json_values
from opsk.units import GIB

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def compared_jobs(last_user: str = "\x1b[31m") -> ComparedJobs:
    """Twelve jobs a day apart, each one percent slower than the one before, the last of a hostile user."""
    jobs = tuple(
        ComparedJob(
            job=str(4711 + number), submitted_at=NOON + timedelta(days=number),
            user="ada" if number < 11 else last_user, framework="megatron-lm", gpu="h100-sxm", 
            reason="straggler at n3: 20% of the step" if number == 11 else "",
            time=Comparison(predicted=10.0, measured=10.0 * (1 + number / 100), low=9.0, high=11.0),
            memory=Comparison(predicted=60 * GIB, measured=58 * GIB) if number % 2 else None,
        )
        for number in range(12)
    )  # fmt: skip
    return ComparedJobs(jobs=jobs, predicted=14)


def accuracy_document(compared: ComparedJobs | None = None) -> Mapping[str, Any]:
    """The answer for somebody who may see all."""
    reader = Reader(user="root", sees_all=True)
    document: Mapping[str, Any] = to_json_values(
        build_accuracy_document(compared or compared_jobs(), reader, since=NOON)
    )
    return document
