"""Learns a site: one fit to its jobs and its measured nodes, taken only where jobs left out are predicted better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opsk.calibration.learning.cells import list_wider
from opsk.calibration.learning.evidence import (
    LearnedQuantity,
    MeasuredJob,
    NodeMeasurement,
    SiteFit,
)
from opsk.calibration.learning.joint_rows import NodeRows
from opsk.calibration.learning.memory_fit import MemoryFit, fit_site_memory, predict_peaks
from opsk.calibration.learning.probe_steps import ProbeSteps
from opsk.calibration.learning.scores import judge
from opsk.calibration.learning.time_fit import TimeFit, fit_site_times
from opsk.calibration.learning.weights import find_outliers
from opsk.costmodel.efficiency.cases import Offsets, SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import PreparedRows
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.errors import OpskError

MAX_DESCRIPTION = 2000
"""Longest description that an efficiency file may have."""


def learn_site(
    base: Efficiency,
    jobs: Sequence[MeasuredJob],
    measurements: Sequence[NodeMeasurement] = (),
    *,
    current: Efficiency | None = None,
) -> SiteFit:
    """Return the efficiencies of a site.

    Parameters
    ----------
    base
        The efficiencies that ship with opsk, or a site's own file: the prior.
    jobs
        Jobs that ran well; one without a step time teaches memory alone, one without a peak time alone.
    measurements
        Measured nodes of the site.
    current
        The fit in use, which a new one must not fall behind on jobs that it has not seen; what is not taken stays as
        there.
    """
    usable, warnings = _select_predictable(jobs, base)
    timed = [job for job in usable if job.step_s is not None]
    measured = [job for job in usable if job.peak_bytes]
    nodes = NodeRows(measurements, base)
    all_steps = ProbeSteps.of(measurements)
    predictable, step_warnings = _select_predictable(all_steps.jobs, base, noun="the measured step")
    steps = all_steps.select(predictable)
    held = steps.select([step for step in steps.jobs if step.reserved_bytes is not None])
    times = fit_site_times(timed, nodes, base, steps) if timed or len(nodes) or steps.jobs else None
    peaks = fit_site_memory(measured, base, held) if measured or held.jobs else None
    time = _judge_times(timed, times, current, has_measurement=len(nodes) > 0 or bool(steps.jobs))
    memory = _judge_peaks(measured, peaks, current, has_measurement=bool(held.jobs))
    before = base if current is None else current
    changes = (
        *(times.changes if times is not None and time.is_taken else ()),
        *(peaks.changes if peaks is not None and memory.is_taken else ()),
    )
    fit = SiteFit(
        efficiency=before,
        time=time,
        memory=memory,
        changes=changes,
        time_left_out=times.left_out if times is not None else None,
        memory_left_out=peaks.left_out if peaks is not None else None,
        warnings=(
            *warnings,
            *nodes.warnings,
            *step_warnings,
            *(times.warnings if times is not None else ()),
            *(peaks.warnings if peaks is not None else ()),
        ),
    )
    if not fit.is_taken:
        return fit
    of_time = times.efficiency if times is not None and time.is_taken else before
    of_memory = peaks.efficiency if peaks is not None and memory.is_taken else before
    cases = (
        {job.case for job in (*timed, *steps.jobs)} if time.is_taken else (),
        {job.case for job in (*measured, *held.jobs)} if memory.is_taken else (),
    )
    efficiency = replace(
        of_time,
        offset=_combine_offsets(of_time.offset, of_memory.offset),
        fit=_describe(base, time, memory, measurements),
        fitted=of_time.fitted.union(cases[0]),
        fitted_memory=of_memory.fitted_memory.union(cases[1]),
    )
    return replace(fit, efficiency=efficiency)


def _select_predictable(
    jobs: Sequence[MeasuredJob], base: Efficiency, *, noun: str = "job"
) -> tuple[list[MeasuredJob], tuple[str, ...]]:
    """Return the jobs that the cost model can predict, and why it cannot predict the others."""
    try:
        if np.isfinite(predict_times(jobs, base)).all():
            return list(jobs), ()
    except (OpskError, ArithmeticError):
        pass
    reasons = {job.id: _explain_unpredictable(job, base) for job in jobs}
    warnings = tuple(f"{noun} {job} cannot be predicted: {why}" for job, why in reasons.items() if why)
    return [job for job in jobs if not reasons[job.id]], warnings


def _explain_unpredictable(job: MeasuredJob, base: Efficiency) -> str:
    """Return why a job cannot be predicted; empty where it can."""
    try:
        return "" if np.isfinite(predict_times([job], base)).all() else "its numbers give no time"
    except OpskError as error:
        return error.message
    except ArithmeticError:
        return "its numbers give no time"


def predict_times(jobs: Sequence[MeasuredJob], efficiency: Efficiency) -> FloatColumn:
    """Return the expected step of each job, with the offset of its cell [s]."""
    by_offsets: dict[int, tuple[Efficiency, list[int]]] = {}
    for index, job in enumerate(jobs):
        chosen = apply_case_spread(efficiency, (), job.case)
        by_offsets.setdefault(id(chosen.offset), (chosen, []))[1].append(index)
    result = np.empty(len(jobs))
    for chosen, indices in by_offsets.values():
        members = [jobs[index] for index in indices]
        plans = PlanTable.of([job.plan for job in members])
        rows = PreparedRows.of([job.model for job in members], plans, [job.cluster for job in members])
        result[indices] = rows.step_s(chosen)
    return result


def _judge_times(
    jobs: Sequence[MeasuredJob], fit: TimeFit | None, current: Efficiency | None, *, has_measurement: bool
) -> LearnedQuantity:
    if fit is None:
        return LearnedQuantity(jobs=0, why_not="no job with a step time, and no measured node")
    measured = np.array([job.step_s for job in jobs], dtype=np.float64)
    errors = None if current is None or not jobs else np.log(predict_times(jobs, current) / measured)
    outliers = find_outliers(jobs, fit.left_out.after, fit.left_out.weights, fit.run_log_sigma, "step time")
    return judge(jobs, fit.left_out, errors, outliers, has_measurement=has_measurement)


def _judge_peaks(
    jobs: Sequence[MeasuredJob], fit: MemoryFit | None, current: Efficiency | None, *, has_measurement: bool
) -> LearnedQuantity:
    if fit is None:
        return LearnedQuantity(jobs=0, why_not="no job and no step whose memory was measured")
    measured = np.array([job.peak_bytes for job in jobs], dtype=np.float64)
    errors = None if current is None or not jobs else np.log(predict_peaks(jobs, current) / measured)
    outliers = find_outliers(jobs, fit.left_out.after, fit.left_out.weights, fit.run_log_sigma, "memory")
    return judge(jobs, fit.left_out, errors, outliers, has_measurement=has_measurement)


def _combine_offsets(times: Offsets, memories: Offsets) -> dict[str, SoftwareOffset]:
    """Return offsets of time and of memory that were learned apart; one that a cell lacks is a wider one's."""
    combined: dict[str, SoftwareOffset] = {}
    for name in sorted({*times, *memories}):
        family, *cells = list_wider(name)
        time, memory = (find_offset(each, family, reversed(cells)) or SoftwareOffset() for each in (times, memories))
        combined[name] = replace(
            time,
            memory_log=memory.memory_log,
            memory_log_sigma=memory.memory_log_sigma,
            memory_run_log_sigma=memory.memory_run_log_sigma,
            memory_jobs=memory.memory_jobs,
        )
    return combined


def _describe(
    base: Efficiency, time: LearnedQuantity, memory: LearnedQuantity, measurements: Sequence[NodeMeasurement]
) -> str:
    """Describe what a fit was made from, in one line."""
    parts = []
    if time.is_taken and time.jobs:
        parts.append(f"the times of {time.jobs} jobs of this site")
    if memory.is_taken and memory.jobs:
        parts.append(f"the memory of {memory.jobs} jobs of this site")
    parts += [f"a measured node of {item.cluster.node.gpu.name}" for item in measurements]
    return f"{', '.join(parts)}; from the fit to {base.fit}"[:MAX_DESCRIPTION]
