"""Computes how far predictions of one kind of job have been off at this site, for the range that advice shows.

The range is honest in three respects. It comes from jobs that were predicted before they ran. Only a known fault of a
run (`opsk losses`, a failure) takes its step time out: a job that was slow for no known reason counts. Jobs with the
same prediction count once together, with their median: forty submissions of one script are not forty proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
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
"""Share of the next predictions that the range holds; 83 to 89 % with five to eight of these, which are too few."""
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
            if (error := _compute_site_error(_select_comparisons(members[kind], quantity))) is not None
        }
        if by_quantity:
            errors[kind] = by_quantity
    return errors


def _select_comparisons(jobs: Iterable[ComparedJob], quantity: Quantity) -> Iterator[Comparison]:
    """Yield the comparisons of one quantity; a fault changes how long a step takes, and not how much memory."""
    for job in jobs:
        comparison = job.get(quantity)
        if comparison is not None and not (quantity is Quantity.TIME and job.is_held_up):
            yield comparison


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
    # the next one is as likely to have any place among them: of n, the k-th nearest holds k / (n + 1)
    place = min(math.ceil(COVERED_SHARE * (count + 1)), count)
    return SiteError(jobs=jobs, distance=ordered[place - 1])
