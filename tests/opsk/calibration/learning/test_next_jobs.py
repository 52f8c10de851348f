"""Do the ranges of a site's next jobs follow from the errors of those that were left out?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.calibration.fitting.problem import RobustProblem
from opsk.calibration.learning.cells import SiteOffsets
from opsk.calibration.learning.left_out import Solution, solve_with_left_out
from opsk.calibration.learning.next_jobs import (
    NEW_FAMILY,
    LeftOutGroup,
    estimate_next_log_sigma,
    estimate_without_jobs,
    list_left_out_groups,
)
from opsk.costmodel.efficiency.cases import Case
from opsk.costmodel.efficiency.default import DEFAULT

JOB = Case(architecture="hopper", software="pytorch", kind="dense", precision="16-bit", layout="dp-full", size="8b")
CASES = (
    JOB, JOB, JOB, replace(JOB, size="16b"), replace(JOB, layout="dp-none"), replace(JOB, architecture="ampere"),
    replace(JOB, software="deepspeed"),
)  # fmt: skip
PLANS = np.array([0.1, 0.1, 0.3, 0.2, 0.5, 0.6, 0.7])
"""What a parameter changes for each: the first two are of one plan."""
OFFSETS = SiteOffsets.over(CASES, family_log_sigma=0.14)
SLOPES = np.hstack([PLANS[:, None] / 100, OFFSETS.acting])
NOISE = 0.02
SPREAD = DEFAULT.spread


def solve(errors: list[float], weights: list[float] | None = None) -> Solution:
    """Return the solution of a parameter and of offsets for ln(predicted / measured) of the cases."""
    size, before = SLOPES.shape[1], np.array(errors)
    free = np.full(size, np.inf)
    problem = RobustProblem(
        residuals=lambda vector: (before + SLOPES @ vector) / NOISE,
        slopes=lambda vector, residuals: SLOPES / NOISE,
        weights=np.ones(len(errors)) if weights is None else np.array(weights),
        prior=np.eye(size),
        offset=np.zeros(size),
        low=-free,
        high=free,
    )
    return solve_with_left_out(problem, np.zeros(size))


def group(level: int, *, square: float = 0.01, expected: float = 0.01, has_jobs: bool = True) -> LeftOutGroup:
    return LeftOutGroup(level=level, square=square, expected=expected, weight=1.0, has_jobs=has_jobs)


def test_jobs_left_out_together_are_predicted_as_by_a_fit_without_them() -> None:
    """Against fits that are made without the jobs; errors are below a tenth of the noise, so soft L1 is a square."""
    errors = [0.001, 0.0015, 0.0012, -0.001, 0.0005, 0.002, -0.0012]
    for rows in ([0, 1], [0, 1, 2, 3], [6]):
        left_out, variances = solve(errors).leave_out_together(np.array(rows))
        without = solve(errors, [float(place not in rows) for place in range(len(errors))])
        assert left_out == pytest.approx(without.residuals[rows], rel=0.01)
        slopes = SLOPES[rows] / NOISE
        assert variances == pytest.approx(1 + np.diag(slopes @ without.covariance @ slopes.T), rel=0.01)


def test_each_cell_is_left_out_among_others_of_the_wider_one_and_steps_only_with_their_gpus() -> None:
    solution = solve([0.1, 0.1, 0.11, 0.12, 0.05, 0.2, -0.1])
    levels = [each.level for each in list_left_out_groups(OFFSETS, solution, np.ones(7), NOISE, jobs=7)]
    # three pairs of family and GPUs; hopper and ampere of PyTorch; two layouts; two sizes; two plans of one cell
    assert sorted(levels) == [NEW_FAMILY] * 3 + [0] * 2 + [1] * 2 + [2] * 2 + [3] * 2
    steps = list_left_out_groups(OFFSETS, solution, np.full(7, 1 / 3), NOISE, jobs=0)
    assert sorted(each.level for each in steps) == [NEW_FAMILY] * 3 + [0] * 2
    assert not any(each.has_jobs for each in steps)
    assert min(each.weight for each in steps) == pytest.approx(1 / 3)


def test_without_others_of_a_level_the_next_job_is_as_far_as_the_fit_expects() -> None:
    assert estimate_next_log_sigma(0.12, [group(1)], 2) == pytest.approx(0.12)
    assert estimate_without_jobs(0.12, [group(1)], SPREAD) == pytest.approx(0.12)


def test_few_errors_count_by_students_t_and_many_decide() -> None:
    """Errors of 0.1 where the fit expects none: t of 5 and of 202 degrees of freedom at 0.95, of tables."""
    few, many = (estimate_next_log_sigma(1e-9, [group(2)] * count, 2) for count in (3, 200))
    assert few == pytest.approx((3 * 0.01 / 5) ** 0.5 * 2.015 / 1.645, rel=1e-3)
    assert many == pytest.approx((200 * 0.01 / 202) ** 0.5 * 1.6524 / 1.645, rel=1e-3)
    near = estimate_next_log_sigma(0.12, [group(2, square=1e-6)] * 200, 2)
    assert near == 0.02  # whatever the fit expects: repeated runs of one plan differ by so much


def test_without_jobs_steps_on_other_gpus_decide_and_else_what_rates_alone_predict() -> None:
    """The fit expects 0.4 of the step and 0.1 of a job: of the square of an error a quarter is a job's."""
    step = group(NEW_FAMILY, square=0.04, expected=0.16, has_jobs=False)
    scaled = group(NEW_FAMILY, square=0.01, expected=0.01)
    assert estimate_without_jobs(0.1, [step], SPREAD) == pytest.approx(estimate_without_jobs(0.1, [scaled], SPREAD))
    near = group(0, square=0.001, has_jobs=False)
    assert estimate_without_jobs(0.1, [step, near], SPREAD) == estimate_next_log_sigma(0.1, [near], 0)
    far = estimate_without_jobs(0.1, [group(0, square=0.25)], SPREAD)
    assert far == np.hypot(SPREAD.time_log_sigma, SPREAD.time_new_software_log_sigma)
