"""Computes how far predictions of one kind of job have been off at this site, for the range that advice shows.

The range is honest in three respects. It comes from jobs that were predicted before they ran, those that ran badly
included. Jobs with the same prediction count once together, with their median: forty submissions of one script are not
forty proofs. With few predictions it is the largest error of all, since a tenth of few is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from opsk.costmodel.efficiency.cases import classify_kind
from opsk.diagnosis.accuracy.comparison import ComparedJob, Comparison, Quantity
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MIN_JOBS, MIN_PREDICTIONS = 10, 5
"""With fewer jobs of a kind, or fewer different predictions among them, advice shows the general range."""
COVERED_SHARE = 0.9
"""Share of jobs that the range is to hold, as for the general ranges."""
_SAME_DIGITS = 4
"""Predictions that agree in so many digits are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteError:
    """How far predictions of one quantity have been off for one kind of job.

    Parameters
    ----------
    jobs
        Number of jobs.
    distance
        Nine in ten were measured within this share of the prediction.
    """

    jobs: int
    distance: float


SiteErrors = Mapping[Quantity, SiteError]


def build_kind(model: ModelShape, plan: Plan, cluster: ClusterSpec, *, has_assumed: bool) -> str:
    """Return the name of a kind of job: GPU, family of software, kind of model, and whether inputs were assumed.

    Parameters
    ----------
    has_assumed
        Whether an input that the prediction depends on was assumed: such predictions are off by more.
    """
    parts = (cluster.node.gpu.name, plan.software.value, classify_kind(model, plan))
    return "/".join((*parts, "assumed") if has_assumed else parts)


def compute_site_errors(jobs: Iterable[ComparedJob]) -> dict[str, SiteErrors]:
    """Return the errors of each kind of which there were enough jobs."""
    members: dict[str, list[ComparedJob]] = {}
    for job in jobs:
        if job.kind:
            members.setdefault(job.kind, []).append(job)
    errors: dict[str, SiteErrors] = {}
    for kind in sorted(members):
        by_quantity = {
            quantity: error
            for quantity in Quantity
            if (error := _compute_site_error(filter(None, (job.get(quantity) for job in members[kind])))) is not None
        }
        if by_quantity:
            errors[kind] = by_quantity
    return errors


def _compute_site_error(comparisons: Iterable[Comparison]) -> SiteError | None:
    """Return the error of one quantity; ``None`` with too few jobs."""
    by_prediction: dict[str, list[float]] = {}
    for comparison in comparisons:
        key = f"{comparison.predicted:.{_SAME_DIGITS}g}"
        by_prediction.setdefault(key, []).append(comparison.distance)
    jobs = sum(map(len, by_prediction.values()))
    count = len(by_prediction)
    if jobs < MIN_JOBS or count < MIN_PREDICTIONS:
        return None
    ordered = sorted(median(distances) for distances in by_prediction.values())
    # the next prediction lies beyond each of n earlier ones with the same chance, hence n + 1
    rank = min(count, math.ceil(COVERED_SHARE * (count + 1)))
    return SiteError(jobs=jobs, distance=ordered[rank - 1])
