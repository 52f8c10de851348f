"""Computes the errors of runs of sources that were left out, and how near the other sources were to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from opsk.calibration.accuracy.predictions import predict_runs
from opsk.calibration.fitting.fit import TimedRun
from opsk.calibration.fitting.spread import Residuals
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.cases import ASPECTS, Case, build_case, find_missing_aspects
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.efficiency.software_offset import SoftwareOffset
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS

_MEMORY_OFFSET_LOG_SIGMA = 0.1
"""Prior standard deviation of memory offsets. Chosen by hand; a calibration with several sources estimates it."""
_PRIOR_SOURCES = 4.0
"""Weight of the prior, in sources."""


def compute_time_residuals(runs: Sequence[TimedRun], log_errors: FloatColumn) -> Residuals:
    """Return the errors of timed runs, with the aspects in which other sources are similar."""
    cases = [build_case(run.model, run.plan, run.cluster) for run in runs]
    return _build_residuals(log_errors, [run.assumed_inputs for run in runs], cases, [run.source for run in runs])


def compute_memory_residuals(runs: Sequence[Run], efficiency: Efficiency) -> tuple[Residuals, list[Case]]:
    """Return the errors of predicted memory, by each run's own definition of it, and the cases.

    No parameter of the memory is fitted, so every source counts as left out.
    """
    measured = [run for run in runs if run.measured.peak_mem_bytes and not run.is_memory_unusable]
    predictions, _ = predict_runs(measured, efficiency)
    pairs = [
        (float(np.log(prediction.memory_bytes.expected / run.measured.peak_mem_bytes)), run)
        for run, prediction in zip(measured, predictions, strict=True)
        if prediction is not None and run.measured.peak_mem_bytes
    ]
    cases = [build_case(run.model, run.plan, run.cluster) for _, run in pairs]
    assumed = [sum(entry.field in MEMORY_INPUTS for entry in run.assumed) for _, run in pairs]
    errors = np.array([error for error, _ in pairs], dtype=np.float64)
    return _build_residuals(errors, assumed, cases, [run.source for _, run in pairs]), cases


def _build_residuals(
    log_errors: FloatColumn, assumed: Sequence[int], cases: Sequence[Case], sources: Sequence[str]
) -> Residuals:
    """Return errors with the aspects that no other source shares."""
    of_source = defaultdict(set)
    for case, source in zip(cases, sources, strict=True):
        of_source[source].add(case)
    others = {
        source: {case for other, known in of_source.items() if other != source for case in known}
        for source in of_source
    }
    lacks = [
        _build_flags(find_missing_aspects(case, others[source])) for case, source in zip(cases, sources, strict=True)
    ]
    names = ("architecture", "software", "kind")
    return Residuals(
        log_errors=log_errors,
        assumed_inputs=np.array(assumed, dtype=np.int64),
        lacks=np.array(lacks, dtype=np.bool_).reshape(len(cases), len(ASPECTS)),
        sources=np.array(sources, dtype=object),
        classes={name: np.array([getattr(case, name) for case in cases], dtype=object) for name in names},
    )


def _build_flags(lacked: Iterable[str]) -> list[bool]:
    """Return which aspects are missing, in the order of ``ASPECTS``."""
    missing = set(lacked)
    return [name in missing for name in ASPECTS]


def estimate_memory_offset_log_sigma(errors: Residuals, cases: Sequence[Case]) -> float:
    """Return the standard deviation of the memory offset that runs of one source and software family share."""
    keys = [(source, case.software) for source, case in zip(errors.sources, cases, strict=True)]
    means = [float(np.median(errors.log_errors[[key == other for other in keys]])) for key in dict.fromkeys(keys)]
    total = _PRIOR_SOURCES * _MEMORY_OFFSET_LOG_SIGMA**2 + sum(min(mean**2, 0.25) for mean in means)
    return float(np.sqrt(total / (_PRIOR_SOURCES + len(means))))


def estimate_memory_offsets(
    errors: Residuals, cases: Sequence[Case], efficiency: Efficiency
) -> dict[str, SoftwareOffset]:
    """Return the offsets of memory that a site's own runs show, each drawn towards the existing offset.

    The median of n runs stands for n of them with their noise; the prior is as wide as offsets of sources are.
    """
    offsets: dict[str, SoftwareOffset] = dict(efficiency.offset)
    prior = efficiency.spread.memory_offset_log_sigma or _MEMORY_OFFSET_LOG_SIGMA
    noise = efficiency.spread.memory_log_sigma
    for software in sorted({case.software for case in cases}):
        family_errors = errors.log_errors[[case.software == software for case in cases]]
        weight = len(family_errors) * prior**2 / (len(family_errors) * prior**2 + noise**2)
        before = offsets.get(software, offsets.get("", SoftwareOffset()))
        offsets[software] = SoftwareOffset(
            time_log=before.time_log,
            time_log_sigma=before.time_log_sigma,
            memory_log=before.memory_log - weight * float(np.median(family_errors)),
            memory_log_sigma=prior * float(np.sqrt(1.0 - weight)),
        )
    return offsets
