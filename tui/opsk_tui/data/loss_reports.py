"""Builds the report on where a job lost time, from its last diagnosis: so `opsk accuracy` can say why it was slow."""

from __future__ import annotations

from datetime import datetime

from opsk.diagnosis.losses.values import FAULTS_OF_A_RUN, Cause, Losses
from opsk.store.records.outcomes import LOSSES
from opsk.store.records.reports import Report
from opsk.text import format_json

MIN_SHARE = 0.02
"""A cause of a smaller part of the step explains no missed prediction [ratio]."""


def build_loss_report(cluster: str, job: str, losses: Losses, at: datetime) -> Report | None:
    """Return the report; ``None`` where no known cause took a notable part of the step.

    It names first what held up this run, before what belongs to the plan: the former says nothing of the prediction.
    """
    causes = [
        finding for finding in losses.findings if finding.cause is not Cause.UNKNOWN and finding.share >= MIN_SHARE
    ]
    if not causes:
        return None
    first = min(causes, key=lambda finding: finding.cause not in FAULTS_OF_A_RUN)
    where = f" at {first.where}" if first.where else ""
    return Report(
        cluster=cluster, job=job, at=at, report=LOSSES, form="json",
        title=f"{first.cause.value.replace('_', ' ')}{where}: {first.share:.0%} of the step",
        root_cause=first.cause.value, content=format_json(losses),
    )  # fmt: skip
