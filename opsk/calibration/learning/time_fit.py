"""Fits a site's efficiencies to the times of its jobs and to measurements of its nodes.

All that shipped efficiencies have is free, each parameter as far as it is uncertain, together with offsets of the
site's families and cells. Errors are robust (soft L1), and a job that the prior cannot explain has no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.calibration.calibration import find_unit
from opsk.calibration.fitting.parameters import ParameterSpace
from opsk.calibration.fitting.problem import IDENTIFIED, FitProblem, RobustProblem, free_all
from opsk.calibration.learning.cells import CELL_LOG_SIGMA, SiteOffsets, get_family
from opsk.calibration.learning.evidence import Change, LeftOut, MeasuredJob
from opsk.calibration.learning.joint_rows import INITIAL_NOISE, JointRows, NodeRows
from opsk.calibration.learning.left_out import Solution, solve_with_left_out
from opsk.calibration.learning.scores import estimate_run_log_sigma, robust_size
from opsk.calibration.learning.weights import is_in_reach, weigh_by_owner
from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.workload.plan import Software

MIN_NOISE = 0.03
"""Least noise of a job: what steps of one plan differ by from day to day."""
NOISE_JOBS = 10
"""Fewer jobs do not show their noise."""
PARAMETER_SIGMAS = 2.0
"""How far a parameter may move, in the standard deviations of its prior; offsets take the rest."""
_SHOWN_CHANGE = 0.005
"""A value that moves by less is not reported [ratio]."""


@dataclass(frozen=True, kw_only=True)
class TimeFit:
    """The result of a fit of times; ``run_log_sigma`` is the usual error of a job that was left out."""

    efficiency: Efficiency
    left_out: LeftOut
    changes: tuple[Change, ...]
    run_log_sigma: float


def fit_site_times(jobs: Sequence[MeasuredJob], nodes: NodeRows, base: Efficiency) -> TimeFit:
    """Fit to the times of jobs and to measured nodes; at least one of the two has rows."""
    weights = weigh_by_owner(jobs)
    rows = JointRows(jobs, weights, nodes, noise=INITIAL_NOISE)
    cases = [job.case for job in jobs]
    families = [Software(family) for family in {case.software for case in cases}]
    space = ParameterSpace.around(set(rows.columns["gpu"].tolist()), families, base=base)
    scale = base.spread.time_offset_log_sigma or CELL_LOG_SIGMA
    offsets = SiteOffsets.over(cases, family_log_sigma=scale, cell_log_sigma=CELL_LOG_SIGMA)
    columns = np.vstack([offsets.acting, np.zeros((len(nodes), offsets.acting.shape[1]))])
    problem = FitProblem(rows, free_all(space), columns)
    before = rows.log_errors(base)[: len(jobs)]
    reached = is_in_reach(before, _compute_prior_log_sigmas(problem, jobs, base))
    rows.weights = np.concatenate([np.where(reached, weights, 0.0), nodes.weights])
    solution, noise = _solve(problem, rows)
    left_out = LeftOut(
        jobs=tuple(job.id for job in jobs),
        before=before,
        after=solution.left_out[: len(jobs)] * noise,
        weights=rows.weights[: len(jobs)],
    )
    return _build_result(problem, offsets, solution, left_out, noise=noise)


def _compute_prior_log_sigmas(problem: FitProblem, jobs: Sequence[MeasuredJob], base: Efficiency) -> FloatColumn:
    """Return how far each job's time may lie from its prediction, before any job is known."""
    widths = np.array([item.prior.width for item in problem.space.parameters])
    slopes = problem.sensitivity(problem.space.centre())[: len(jobs)] * widths
    spreads = np.array([apply_case_spread(base, job.assumed, job.case).spread.time_log_sigma for job in jobs])
    result: FloatColumn = np.sqrt((slopes**2).sum(axis=1) + spreads**2)
    return result


def _solve(problem: FitProblem, rows: JointRows) -> tuple[Solution, float]:
    """Return the solution, with the noise of jobs that the jobs themselves show."""
    noise = INITIAL_NOISE
    start = problem.start(problem.space.centre())
    solution = solve_with_left_out(_build_limited(problem, noise), start)
    job_weights = rows.weights[: rows.jobs]
    if np.count_nonzero(job_weights) < NOISE_JOBS:
        return solution, noise
    shown = robust_size(solution.left_out[: rows.jobs] * noise, job_weights)
    noise = float(np.clip(shown, MIN_NOISE, INITIAL_NOISE))
    rows.rescale(noise)
    return solve_with_left_out(_build_limited(problem, noise), solution.vector), noise


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


def _build_result(
    problem: FitProblem, offsets: SiteOffsets, solution: Solution, left_out: LeftOut, *, noise: float
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
    tables, offset_changes = _build_offsets(offsets, vector, solution.covariance[size:, size:], left_out, base)
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
        left_out=left_out,
        changes=(*offset_changes, *changes),
        run_log_sigma=max(robust_size(left_out.after, left_out.weights), noise / 2),
    )


def _build_offsets(
    offsets: SiteOffsets, vector: FloatColumn, covariance: FloatColumn, left_out: LeftOut, base: Efficiency
) -> tuple[Mapping[str, SoftwareOffset], list[Change]]:
    """Return the offsets of families and cells, with the spread of the next job of each."""
    tables: dict[str, SoftwareOffset] = dict(base.offset)
    changes: list[Change] = []
    scales = offsets.scales(base.spread.time_offset_log_sigma or CELL_LOG_SIGMA, CELL_LOG_SIGMA)
    usual = estimate_run_log_sigma(left_out.after, left_out.weights, base.spread.time_log_sigma)
    for column, name in enumerate((*offsets.families, *offsets.cells)):
        chosen = offsets.select(name) * scales
        family = get_family(name)
        before = find_offset(base.offset, family) or SoftwareOffset()
        members = left_out.weights * (offsets.acting[:, column] > 0)
        if not members.sum() > 0:
            continue
        moved, log_sigma = float(chosen @ vector), float(np.sqrt(chosen @ covariance @ chosen))
        if name == family:
            # a cell without jobs: its own offset is unknown, as those of the family's other cells were
            run_log_sigma = float(np.hypot(usual, _estimate_cell_log_sigma(offsets, vector, family)))
        else:
            run_log_sigma = estimate_run_log_sigma(left_out.after, members, usual)
        tables[name] = replace(
            before,
            time_log=before.time_log + moved,
            time_log_sigma=log_sigma,
            time_run_log_sigma=run_log_sigma,
            time_jobs=float(np.count_nonzero(members)),
        )
        if abs(moved) > _SHOWN_CHANGE:
            changes.append(
                Change(
                    name=f"offset.{name}.time", before=float(np.exp(before.time_log)),
                    after=float(np.exp(before.time_log + moved)), unit="measured / predicted", log_sigma=log_sigma,
                )
            )  # fmt: skip
    return tables, changes


def _estimate_cell_log_sigma(offsets: SiteOffsets, vector: FloatColumn, family: str) -> float:
    """Return the standard deviation of the offsets of a family's cells, drawn towards the prior one."""
    start = len(offsets.families)
    squares = [
        (CELL_LOG_SIGMA * vector[start + index]) ** 2
        for index, cell in enumerate(offsets.cells)
        if get_family(cell) == family
    ]
    return float(np.sqrt((CELL_LOG_SIGMA**2 + sum(squares)) / (1 + len(squares))))
