"""Fits a site's efficiencies to the times of its jobs and to measurements of its nodes.

All that shipped efficiencies have is free, each parameter as far as it is uncertain, together with offsets of the
site's families and cells. Errors are robust (soft L1), and a job that the prior cannot explain has no weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.calibration.calibration import find_unit
from opsk.calibration.fitting.parameters import ParameterSpace
from opsk.calibration.fitting.problem import IDENTIFIED, FitProblem, RobustProblem, free_all
from opsk.calibration.learning.cells import SiteOffsets, find_level, get_family
from opsk.calibration.learning.evidence import Change, LeftOut, MeasuredJob
from opsk.calibration.learning.joint_rows import INITIAL_NOISE, JointRows, NodeRows
from opsk.calibration.learning.left_out import Solution, solve_with_left_out
from opsk.calibration.learning.measured_nodes import narrow_by_measurements
from opsk.calibration.learning.next_jobs import (
    LeftOutGroup,
    estimate_next_log_sigma,
    estimate_without_jobs,
    list_left_out_groups,
    number_plans,
)
from opsk.calibration.learning.probe_steps import ProbeSteps
from opsk.calibration.learning.scores import robust_size
from opsk.calibration.learning.weights import find_contradicted, is_in_reach, weigh_by_owner
from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.case_spread import apply_case_spread, narrow_log_sigma
from opsk.workload.plan import Software

MIN_NOISE, USUAL_NOISE, MAX_NOISE = 0.015, 0.05, 0.3
"""Noise of a job: what steps of one plan differ by from day to day, and what no offset explains."""
NOISE_JOBS = 4.0
"""Weight of the usual noise, in jobs."""
MIN_JUDGES = 6
"""Fewer jobs show neither their noise nor which of them is wrong."""
_ROUNDS = 2
"""How often jobs are judged and the noise is estimated."""
_OFFSET_LOG_SIGMA = 0.15
"""Standard deviation of a family's offset where the base has none."""
PARAMETER_SIGMAS = 2.0
"""How far a parameter may move, in the standard deviations of its prior; offsets take the rest."""
_SHOWN_CHANGE = 0.005
"""A value that moves by less is not reported [ratio]."""


@dataclass(frozen=True, kw_only=True)
class TimeFit:
    """The result of a fit of times; ``run_log_sigma`` is the usual error of a job that was left out.

    ``warnings`` name the measured steps that are not used.
    """

    efficiency: Efficiency
    left_out: LeftOut
    changes: tuple[Change, ...]
    run_log_sigma: float
    warnings: tuple[str, ...] = ()


def fit_site_times(
    jobs: Sequence[MeasuredJob], nodes: NodeRows, base: Efficiency, steps: ProbeSteps | None = None
) -> TimeFit:
    """Fit to the times of jobs, and to rates and steps of measured nodes; at least one of them has rows."""
    steps = steps or ProbeSteps.of(())
    weights = np.concatenate([weigh_by_owner(jobs), steps.weights])
    timed = (*jobs, *steps.jobs)
    rows = JointRows(jobs, steps, weights, nodes, noise=INITIAL_NOISE)
    cases = [job.case for job in timed]
    families = [Software(family) for family in {case.software for case in cases}]
    space = ParameterSpace.around(set(rows.columns["gpu"].tolist()), families, base=base)
    scale = base.spread.time_offset_log_sigma or _OFFSET_LOG_SIGMA
    offsets = SiteOffsets.over(cases, family_log_sigma=scale)
    columns = np.vstack([offsets.acting, np.zeros((len(nodes), offsets.acting.shape[1]))])
    problem = FitProblem(rows, free_all(space), columns)
    before = rows.log_errors(base)[: len(timed)]
    reached = is_in_reach(before, _compute_prior_log_sigmas(problem, timed, base))
    judged = np.where(reached, weights, 0.0)
    rows.weights = np.concatenate([judged, nodes.weights])
    solution, noise, shown = _solve(problem, rows, [job.owner for job in jobs])
    left_out = LeftOut(
        jobs=tuple(job.id for job in timed),
        before=before,
        after=solution.left_out[: len(timed)] * noise,
        weights=rows.weights[: len(timed)],
        judged=judged,
    )
    fit = _build_result(problem, offsets, solution, left_out, nodes, jobs=len(jobs), noise=noise, shown=shown)
    return replace(fit, warnings=steps.list_out_of_reach(before[len(jobs) :], judged[len(jobs) :], "step time"))


def _compute_prior_log_sigmas(problem: FitProblem, jobs: Sequence[MeasuredJob], base: Efficiency) -> FloatColumn:
    """Return how far each job's time may lie from its prediction, before any job is known."""
    widths = np.array([item.prior.width for item in problem.space.parameters])
    slopes = problem.sensitivity(problem.space.centre())[: len(jobs)] * widths
    spreads = np.array([apply_case_spread(base, job.assumed, job.case).spread.time_log_sigma for job in jobs])
    result: FloatColumn = np.sqrt((slopes**2).sum(axis=1) + spreads**2)
    return result


def _solve(problem: FitProblem, rows: JointRows, owners: Sequence[str]) -> tuple[Solution, float, float]:
    """Return the solution without jobs that the others contradict, its noise of a job, and the noise that jobs show.

    The first is `INITIAL_NOISE` at most: jobs that scatter more are far from each other, and errors stay robust.
    """
    noise = shown = INITIAL_NOISE
    start = problem.start(problem.space.centre())
    solution = solve_with_left_out(_build_limited(problem, noise), start)
    for _ in range(_ROUNDS):
        weights = rows.weights[: rows.jobs]
        if np.count_nonzero(weights) < MIN_JUDGES:
            return solution, noise, _estimate_noise(solution, rows, noise)
        left_out = solution.left_out[: rows.jobs]
        # a prediction without the job has the variance of the noise over 1 - h
        distances = np.sqrt(np.abs(solution.residuals[: rows.jobs] * left_out))
        distances /= max(robust_size(distances, weights), 1.0)
        contradicted = find_contradicted(owners, left_out * noise, distances, weights)
        rows.weights[: rows.jobs] = np.where(contradicted, 0.0, weights)
        shown = _estimate_noise(solution, rows, noise)
        noise = min(shown, INITIAL_NOISE)
        rows.rescale(noise)
        solution = solve_with_left_out(_build_limited(problem, noise), solution.vector)
    return solution, noise, shown


def _build_limited(problem: FitProblem, noise: float) -> RobustProblem:
    """Return the problem with every parameter within reach of its prior.

    Jobs of one kind cannot tell which parameter is wrong: one that moves far would spoil the predictions of kinds that
    the site has no jobs of.
    """
    robust = problem.robust({True: noise, False: noise})
    centre = problem.space.centre()
    room = PARAMETER_SIGMAS * np.array([item.prior.width for item in problem.space.parameters])
    size = len(centre)
    return replace(
        robust,
        low=np.concatenate([np.maximum(robust.low[:size], centre - room), robust.low[size:]]),
        high=np.concatenate([np.minimum(robust.high[:size], centre + room), robust.high[size:]]),
    )


def _estimate_noise(solution: Solution, rows: JointRows, noise: float) -> float:
    """Return the noise of a job.

    The product of a job's error in the fit and without it has the variance of the noise as its mean, however many
    parameters the fit has: the first is 1 - h of the second, whose variance is that of the noise over 1 - h. All jobs
    of one plan count as one: they do not show what another plan of their cell differs by.
    """
    inside, outside = solution.residuals[: rows.jobs], solution.left_out[: rows.jobs]
    weights = rows.weights[: rows.jobs] / np.sqrt(1.0 + inside**2)
    plans = number_plans(solution)[: rows.jobs]
    weights = weights / np.maximum(np.bincount(plans, weights=rows.weights[: rows.jobs])[plans], 1.0)
    squares = weights @ np.abs(inside * outside) * noise**2
    variance = (NOISE_JOBS * USUAL_NOISE**2 + squares) / (NOISE_JOBS + weights.sum())
    return float(np.clip(np.sqrt(variance), MIN_NOISE, MAX_NOISE))


def _build_result(
    problem: FitProblem,
    offsets: SiteOffsets,
    solution: Solution,
    left_out: LeftOut,
    nodes: NodeRows,
    *,
    jobs: int,
    noise: float,
    shown: float,
) -> TimeFit:
    """Return the efficiencies at the solution, and what moved."""
    space, base = problem.space, problem.space.base
    whole, vector = problem.split(solution.vector)
    size = len(space)
    posterior = np.sqrt(np.diag(solution.covariance)[:size])
    widths = {
        item.name: float(width)
        for item, width in zip(space.parameters, posterior, strict=True)
        if width <= IDENTIFIED * item.prior.width
    }
    site = space.efficiency(whole)
    groups = list_left_out_groups(offsets, solution, left_out.weights, noise, jobs=jobs)
    tables, offset_changes = _build_offsets(
        offsets, vector, solution, left_out, groups, base, jobs=jobs, noise=noise, shown=shown
    )
    tables = {**narrow_by_measurements(nodes, problem, solution, tables, groups), **tables}
    changes = [
        Change(
            name=item.name, before=item.prior.centre, after=value, unit=find_unit(item.field),
            log_sigma=float(width),
        )
        for item, value, width in zip(space.parameters, space.values(whole), posterior, strict=True)
        if abs(value - item.prior.centre) > _SHOWN_CHANGE * max(abs(item.prior.centre), _SHOWN_CHANGE)
    ]  # fmt: skip
    return TimeFit(
        efficiency=replace(site, offset=tables, widths={**base.widths, **widths}),
        left_out=left_out.select_first(jobs),
        changes=(*offset_changes, *changes),
        run_log_sigma=max(robust_size(left_out.after[:jobs], left_out.weights[:jobs]), noise / 2),
    )


def _build_offsets(
    offsets: SiteOffsets,
    vector: FloatColumn,
    solution: Solution,
    left_out: LeftOut,
    groups: Sequence[LeftOutGroup],
    base: Efficiency,
    *,
    jobs: int,
    noise: float,
    shown: float,
) -> tuple[Mapping[str, SoftwareOffset], list[Change]]:
    """Return the offsets of families and cells, with the spread of the next job of each.

    The fit expects what is not known of parameters and offsets, of the narrower cell that the job may be of, and noise;
    errors of jobs left out show how far that is true. Noise is that of jobs: steps of a probe alone do not show it.
    """
    tables: dict[str, SoftwareOffset] = dict(base.offset)
    changes: list[Change] = []
    size = solution.slopes.shape[1] - len(offsets.names)
    narrower = offsets.estimate_narrower_log_sigmas(vector)
    for column, name in enumerate(offsets.names):
        chosen = offsets.select(name)
        family = get_family(name)
        before = find_offset(base.offset, family) or SoftwareOffset()
        members = (left_out.weights > 0) & (offsets.acting[:, column] > 0)
        if not members.any():
            continue
        moved = float(chosen * offsets.scales @ vector)
        moves = np.concatenate([np.zeros(size), chosen * offsets.scales])
        log_sigma = float(np.sqrt(moves @ solution.covariance @ moves))
        slopes = solution.slopes[: len(members)][members] * noise
        slopes[:, size:] *= chosen
        unknown = float(np.mean(np.einsum("ij,jk,ik->i", slopes, solution.covariance, slopes)))
        site_jobs = np.count_nonzero(members[:jobs])
        expected = math.hypot(math.sqrt(unknown), narrower[find_level(name)])
        if site_jobs:
            next_log_sigma = estimate_next_log_sigma(math.hypot(expected, shown), groups, find_level(name))
        else:
            next_log_sigma = _estimate_by_steps(name, expected, groups, base.spread)
        tables[name] = replace(
            before,
            time_log=before.time_log + moved,
            time_log_sigma=log_sigma if site_jobs else expected,
            time_run_log_sigma=next_log_sigma,
            time_jobs=float(site_jobs),
        )
        if abs(moved) > _SHOWN_CHANGE:
            changes.append(
                Change(
                    name=f"offset.{name}.time", before=float(np.exp(before.time_log)),
                    after=float(np.exp(before.time_log + moved)), unit="measured / predicted", log_sigma=log_sigma,
                )
            )  # fmt: skip
    return tables, changes


def _estimate_by_steps(name: str, expected_log_sigma: float, groups: Sequence[LeftOutGroup], spread: Spread) -> float:
    """Return the standard deviation of the next job of a name that has steps alone; 0, not known, of a family.

    A family's own name is for its jobs on GPUs that nobody measured here.
    """
    if find_level(name) == 0:
        return 0.0
    usual = narrow_log_sigma(spread.time_log_sigma, spread.time_offset_log_sigma, expected_log_sigma)
    return estimate_without_jobs(usual, groups, spread)
