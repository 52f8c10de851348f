"""Fits the offsets of memory to the peaks of a site's jobs and measured steps, by family of software and by cell.

The constants of the memory model are counted, not fitted: a site shows how much fuller its GPUs are as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from opsk.calibration.fitting.problem import RobustProblem
from opsk.calibration.learning.cells import SiteOffsets, find_level, get_family
from opsk.calibration.learning.evidence import Change, LeftOut, MeasuredJob
from opsk.calibration.learning.left_out import Solution, solve_with_left_out
from opsk.calibration.learning.probe_steps import ProbeSteps
from opsk.calibration.learning.scores import estimate_run_log_sigma
from opsk.calibration.learning.weights import is_in_reach, weigh_by_owner
from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.uncertainty.case_spread import apply_case_spread

MEMORY_NOISE = 0.05
"""Peaks of runs of one plan differ by this: allocator, uneven ranks, when they were sampled."""
_OFFSET_LOG_SIGMA = 0.15
"""Standard deviation of a family's offset where the base has none."""
_SHOWN_CHANGE = 0.005


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    """The result of a fit of peaks: the base with offsets of memory, and errors of jobs left out.

    ``warnings`` name the measured steps that are not used.
    """

    efficiency: Efficiency
    left_out: LeftOut
    changes: tuple[Change, ...]
    run_log_sigma: float
    warnings: tuple[str, ...] = ()


def predict_peaks(jobs: Sequence[MeasuredJob], efficiency: Efficiency) -> FloatColumn:
    """Return the memory that will be measured on the fullest GPU of each job [bytes].

    That is what the driver reports; of a step whose reserved memory was measured, what PyTorch's allocator does.
    """
    by_offsets: dict[int, tuple[Efficiency, list[int]]] = {}
    for index, job in enumerate(jobs):
        chosen = apply_case_spread(efficiency, (), job.case)
        by_offsets.setdefault(id(chosen.offset), (chosen, []))[1].append(index)
    result = np.empty(len(jobs))
    for chosen, indices in by_offsets.values():
        members = [jobs[index] for index in indices]
        plans = PlanTable.of([job.plan for job in members])
        rows = PreparedRows.of([job.model for job in members], plans, [job.cluster for job in members])
        memory = rows.predict(chosen).memory
        is_reserved = [job.reserved_bytes is not None for job in members]
        result[indices] = np.where(is_reserved, memory.reserved_bytes, memory.device_bytes)
    return result


def fit_site_memory(jobs: Sequence[MeasuredJob], base: Efficiency, steps: ProbeSteps | None = None) -> MemoryFit:
    """Fit to the peaks of jobs, and to the reserved memory of measured steps; at least one of them."""
    steps = steps or ProbeSteps.of(())
    all_jobs = (*jobs, *steps.jobs)
    cases = [job.case for job in all_jobs]
    measured = np.array([job.reserved_bytes or job.peak_bytes for job in all_jobs], dtype=np.float64)
    before: FloatColumn = np.log(predict_peaks(all_jobs, base) / measured)
    scale = base.spread.memory_offset_log_sigma or _OFFSET_LOG_SIGMA
    spreads = [apply_case_spread(base, job.assumed, job.case).spread.memory_log_sigma for job in all_jobs]
    reached = is_in_reach(before, np.hypot(spreads, _OFFSET_LOG_SIGMA))
    weights = np.where(reached, np.concatenate([weigh_by_owner(jobs), steps.weights]), 0.0)
    offsets = SiteOffsets.over(cases, family_log_sigma=scale)
    solution = _solve(before, offsets.acting, weights)
    left_out = LeftOut(
        jobs=tuple(job.id for job in all_jobs),
        before=before,
        after=solution.left_out * MEMORY_NOISE,
        weights=weights,
        judged=weights,
    )
    fit = _build_result(offsets, solution, left_out, base, jobs=len(jobs))
    return replace(fit, warnings=steps.list_out_of_reach(before[len(jobs) :], weights[len(jobs) :], "reserved memory"))


def _solve(before: FloatColumn, columns: FloatColumn, weights: FloatColumn) -> Solution:
    """Return the offsets that explain the errors best."""
    size = columns.shape[1]
    free = np.full(size, np.inf)
    problem = RobustProblem(
        residuals=lambda vector: (before + columns @ vector) / MEMORY_NOISE,
        slopes=lambda vector, residuals: columns / MEMORY_NOISE,
        weights=weights,
        prior=block_diag(np.eye(size)),
        offset=np.zeros(size),
        low=-free,
        high=free,
    )
    return solve_with_left_out(problem, np.zeros(size))


def _build_result(
    offsets: SiteOffsets, solution: Solution, left_out: LeftOut, base: Efficiency, *, jobs: int
) -> MemoryFit:
    """Return the base with the offsets of memory; where only steps show one, it narrows the usual spread."""
    tables: dict[str, SoftwareOffset] = dict(base.offset)
    changes: list[Change] = []
    narrower = offsets.estimate_narrower_log_sigmas(solution.vector)
    of_jobs = left_out.select_first(jobs)
    usual = estimate_run_log_sigma(of_jobs.after, of_jobs.weights, base.spread.memory_log_sigma)
    for column, name in enumerate(offsets.names):
        members = left_out.weights * (offsets.acting[:, column] > 0)
        if not members.sum() > 0:
            continue
        family = get_family(name)
        chosen = offsets.select(name) * offsets.scales
        known = find_offset(base.offset, family) or SoftwareOffset()
        moved = float(chosen @ solution.vector)
        log_sigma = float(np.sqrt(chosen @ solution.covariance @ chosen))
        run_log_sigma = estimate_run_log_sigma(of_jobs.after, members[:jobs], usual)
        site_jobs = np.count_nonzero(members[:jobs])
        unseen = narrower[find_level(name)]
        tables[name] = replace(
            known,
            memory_log=known.memory_log + moved,
            memory_log_sigma=log_sigma if site_jobs else math.hypot(log_sigma, unseen),
            memory_run_log_sigma=math.hypot(run_log_sigma, unseen) if site_jobs else 0.0,
            memory_jobs=float(site_jobs),
        )
        if abs(moved) > _SHOWN_CHANGE:
            changes.append(
                Change(
                    name=f"offset.{name}.memory", before=float(np.exp(known.memory_log)),
                    after=float(np.exp(known.memory_log + moved)), unit="measured / predicted",
                    log_sigma=tables[name].memory_log_sigma,
                )
            )  # fmt: skip
    return MemoryFit(
        efficiency=replace(base, offset=tables), left_out=of_jobs, changes=tuple(changes), run_log_sigma=usual
    )
