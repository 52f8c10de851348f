"""How far off are runs of sources that were left out of everything, and how near to the others were they?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from opsk.calibration.accuracy.predictions import predictions_of
from opsk.calibration.fitting.fit import TimedRun
from opsk.calibration.fitting.spread import Residuals
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.efficiency.nearness import ASPECTS, Case, case_of, missing
from opsk.costmodel.efficiency.software_offset import SoftwareOffset
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS

_MEMORY_OFFSET_LOG_SIGMA = 0.1
"""Offsets of memory before any is seen. Chosen by hand; a calibration with several sources estimates it."""
_KNOWN = 4.0
"""Sources that this guess is worth beside those of the table."""


def time_residuals(runs: Sequence[TimedRun], log_errors: FloatColumn) -> Residuals:
    """Return the errors of the runs that were timed, each near to what other sources measured."""
    cases = [case_of(run.model, run.plan, run.cluster) for run in runs]
    return _residuals(log_errors, [run.assumed_inputs for run in runs], cases, [run.source for run in runs])


def memory_residuals(runs: Sequence[Run], efficiency: Efficiency) -> tuple[Residuals, list[Case]]:
    """Return the errors of predicted memory, by each run's own definition of it, and the cases.

    No number of the memory is fitted, so every source is one that was left out.
    """
    measured = [run for run in runs if run.measured.peak_mem_bytes and not run.is_memory_unusable]
    found, _ = predictions_of(measured, efficiency)
    pairs = [
        (float(np.log(prediction.memory_bytes.expected / run.measured.peak_mem_bytes)), run)
        for run, prediction in zip(measured, found, strict=True)
        if prediction is not None and run.measured.peak_mem_bytes
    ]
    cases = [case_of(run.model, run.plan, run.cluster) for _, run in pairs]
    assumed = [sum(entry.field in MEMORY_INPUTS for entry in run.assumed) for _, run in pairs]
    errors = np.array([error for error, _ in pairs], dtype=np.float64)
    return _residuals(errors, assumed, cases, [run.source for _, run in pairs]), cases


def _residuals(
    log_errors: FloatColumn, assumed: Sequence[int], cases: Sequence[Case], sources: Sequence[str]
) -> Residuals:
    """Return errors with what other sources are near in."""
    of_source = defaultdict(set)
    for case, source in zip(cases, sources, strict=True):
        of_source[source].add(case)
    others = {
        source: {case for other, known in of_source.items() if other != source for case in known}
        for source in of_source
    }
    lacks = [_flags(missing(case, others[source])) for case, source in zip(cases, sources, strict=True)]
    names = ("architecture", "software", "kind")
    return Residuals(
        log_errors=log_errors,
        assumed_inputs=np.array(assumed, dtype=np.int64),
        lacks=np.array(lacks, dtype=np.bool_).reshape(len(cases), len(ASPECTS)),
        sources=np.array(sources, dtype=object),
        classes={name: np.array([getattr(case, name) for case in cases], dtype=object) for name in names},
    )


def _flags(lacked: Iterable[str]) -> list[bool]:
    """Return which aspects are lacked."""
    found = set(lacked)
    return [name in found for name in ASPECTS]


def memory_offset_log_sigma(errors: Residuals, cases: Sequence[Case]) -> float:
    """Return the standard deviation of what runs of one source and family of software have in common in memory."""
    keys = [(source, case.software) for source, case in zip(errors.sources, cases, strict=True)]
    means = [float(np.median(errors.log_errors[[key == other for other in keys]])) for key in dict.fromkeys(keys)]
    total = _KNOWN * _MEMORY_OFFSET_LOG_SIGMA**2 + sum(min(mean**2, 0.25) for mean in means)
    return float(np.sqrt(total / (_KNOWN + len(means))))


def memory_offsets(errors: Residuals, cases: Sequence[Case], efficiency: Efficiency) -> dict[str, SoftwareOffset]:
    """Return the offsets of memory that a site's own runs show, each family drawn to what stands already.

    The median of n runs stands for n of them with their noise; the prior is as wide as offsets of sources are.
    """
    found: dict[str, SoftwareOffset] = dict(efficiency.offset)
    prior = efficiency.spread.memory_offset_log_sigma or _MEMORY_OFFSET_LOG_SIGMA
    noise = efficiency.spread.memory_log_sigma
    for software in sorted({case.software for case in cases}):
        own = errors.log_errors[[case.software == software for case in cases]]
        weight = len(own) * prior**2 / (len(own) * prior**2 + noise**2)
        before = found.get(software, found.get("", SoftwareOffset()))
        found[software] = SoftwareOffset(
            time_log=before.time_log,
            time_log_sigma=before.time_log_sigma,
            memory_log=before.memory_log - weight * float(np.median(own)),
            memory_log_sigma=prior * float(np.sqrt(1.0 - weight)),
        )
    return found
