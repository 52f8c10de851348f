"""Writes what a site's fit came to as JSON values. The keys are a contract: keys may be added, none renamed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opsk.app.learning.nodes import SiteNodes
from opsk.app.learning.store_jobs import StoreJobs
from opsk.calibration.learning.evidence import LearnedQuantity, LeftOut, SiteFit

MAX_OUTLIERS = 100
"""Number of named outliers; their number in all is written beside them."""


def build_document(fit: SiteFit, nodes: SiteNodes, jobs: StoreJobs | None) -> dict[str, Any]:
    """Return the answer of ``opsk calibrate --probe`` and ``--learn``."""
    return {
        "is_taken": fit.is_taken,
        "description": fit.efficiency.fit,
        "time": _build_quantity(fit.time, fit.time_left_out),
        "memory": _build_quantity(fit.memory, fit.memory_left_out),
        "changes": [asdict(change) for change in fit.changes],
        "nodes": [
            {
                "gpu": item.cluster.node.gpu.name,
                "measured_at": item.document.measured_at,
                "driver": item.document.machine.driver,
                "throttled_share": item.document.throttled_share,
            }
            for item in nodes.measurements
        ],
        "warnings": [*nodes.warnings, *fit.warnings],
        "store": None
        if jobs is None
        else {
            "jobs": len(jobs.jobs),
            "left_out": dict(jobs.left_out),
            "unpredictable": [{"job": run.id, "why": run.why} for run in jobs.runs.unpredictable],
        },
    }


def _build_quantity(learned: LearnedQuantity, left_out: LeftOut | None) -> dict[str, Any]:
    """Return what was learned of times or of memory; the errors of every job are those with the job left out."""
    document = asdict(learned)
    document["outliers"] = document["outliers"][:MAX_OUTLIERS]
    document["outlier_count"] = len(learned.outliers)
    document["left_out"] = (
        []
        if left_out is None
        else [
            {"job": job, "before_log": float(before), "after_log": float(after), "weight": float(weight)}
            for job, before, after, weight in zip(
                left_out.jobs, left_out.before, left_out.after, left_out.weights, strict=True
            )
        ]
    )
    return document
