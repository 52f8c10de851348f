"""Is the range that advice takes from the site's own jobs no narrower than they allow?"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from opsk.diagnosis.accuracy.comparison import ComparedJob, Comparison, Quantity
from opsk.diagnosis.accuracy.site_error import MIN_JOBS, MIN_PREDICTIONS, SiteError, compute_site_errors

NOON = datetime(2026, 3, 1, tzinfo=UTC)
KIND = "h100-sxm/megatron-core/dense"


def job(predicted: float, measured: float, kind: str = KIND) -> ComparedJob:
    return ComparedJob(job="1", submitted_at=NOON, kind=kind, time=Comparison(predicted=predicted, measured=measured))


def find(jobs: list[ComparedJob]) -> SiteError | None:
    return compute_site_errors(jobs).get(KIND, {}).get(Quantity.TIME)


def test_nine_in_ten_of_the_next_and_of_few_the_worst() -> None:
    # distances of 1, 2, ... percent: of 20 predictions the 19th, 0.9 x 21 rounded up; of 10 the tenth
    assert find([job(1.0 + n, (1.0 + n) * (1 + n / 100)) for n in range(1, 21)]) == SiteError(
        jobs=20, distance=pytest.approx(0.19)
    )
    assert find([job(1.0 + n, (1.0 + n) * (1 - n / 100)) for n in range(1, 11)]) == SiteError(
        jobs=10, distance=pytest.approx(0.10)
    )


def test_a_known_fault_takes_out_the_time_and_not_the_memory() -> None:
    jobs = [
        replace(
            job(1.0 + n, 1.5 * (1.0 + n)), is_held_up=n >= 11, memory=Comparison(predicted=1.0 + n, measured=1.0 + n)
        )
        for n in range(22)
    ]
    errors = compute_site_errors(jobs)[KIND]
    assert (errors[Quantity.TIME].jobs, errors[Quantity.MEMORY].jobs) == (11, 22)


def test_one_script_that_is_submitted_again_and_again_proves_nothing() -> None:
    assert find([job(2.0, 2.0) for _ in range(100)]) is None
    # four other predictions that were missed count as much as these hundred
    others = [job(3.0 + n, (3.0 + n) * 1.5) for n in range(MIN_PREDICTIONS - 1)]
    assert find([job(2.0, 2.0) for _ in range(100)] + others) == SiteError(jobs=104, distance=pytest.approx(0.5))


def test_few_jobs_and_jobs_without_a_kind_have_no_range() -> None:
    assert find([job(1.0 + n, 1.0) for n in range(MIN_JOBS - 1)]) is None
    assert compute_site_errors([job(1.0 + n, 1.0, kind="") for n in range(99)]) == {}


def test_the_range_holds_what_it_says_of_the_next_jobs() -> None:
    """Log-normal errors of 10 %, of 12 jobs the farthest: 12 / 13 of the next ones are nearer, here of 400 sites."""
    numbers = random.Random(7)
    held = 0
    for _ in range(400):
        known = find([job(1.0 + n, (1.0 + n) * numbers.lognormvariate(0, 0.1)) for n in range(12)])
        assert known is not None
        held += abs(numbers.lognormvariate(0, 0.1) - 1) <= known.distance
    assert held / 400 == pytest.approx(12 / 13, abs=0.04)
