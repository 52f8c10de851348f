"""Cross-validates the cost model: predicts the runs of each source with a fit to the other sources.

Every source in turn is left out whole: fitted without it, from the priors on, and then predicted. Runs of one source
share software, machine and practices, so leaving out single runs would understate the error.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from opsk.calibration.accuracy.predictions import predict_runs
from opsk.calibration.fitting.fit import FitSettings, NearFit, TimedRun, TimedRuns, fit_time
from opsk.calibration.fitting.spread import Residuals
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.cases import (
    ASPECTS,
    Case,
    SoftwareOffset,
    build_case,
    find_missing_aspects,
    select_held,
)
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS
from opsk.errors import InputError
from opsk.spawning import safe_imports

_MEMORY_OFFSET_LOG_SIGMA = 0.1
"""Prior standard deviation of memory offsets. Chosen by hand; a calibration with several sources estimates it."""
_PRIOR_SOURCES = 4.0
"""Weight of the prior, in sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFigures:
    """Errors of a set of runs, as |predicted / measured - 1|; ``bias`` is the median with its sign."""

    runs: int
    median: float
    p90: float
    bias: float

    @classmethod
    def of(cls, log_errors: FloatColumn) -> ErrorFigures | None:
        """Return the figures; ``None`` without runs."""
        if not len(log_errors):
            return None
        ratio = np.expm1(log_errors)
        return cls(
            runs=len(ratio),
            median=float(np.median(np.abs(ratio))),
            p90=float(np.quantile(np.abs(ratio), 0.9)),
            bias=float(np.expm1(np.median(log_errors))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossValidation:
    """The result; ``log_errors`` are of every run with its source left out, in the order of the runs."""

    log_errors: FloatColumn
    by_source: Mapping[str, ErrorFigures]
    stated: ErrorFigures | None
    assumed: ErrorFigures | None
    overall: ErrorFigures | None


def cross_validate(
    runs: Sequence[TimedRun],
    settings: FitSettings | None = None,
    *,
    base: Efficiency | None = None,
    near: NearFit | None = None,
    processes: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> CrossValidation:
    """Leave one whole source out at a time, and predict it.

    Parameters
    ----------
    runs
        Measured runs of at least two sources.
    settings
        As for the fit.
    base
        As for the fit.
    near
        Where the fit to all runs ended; by default each fit starts from its priors.
    processes
        Sources left out at the same time.
    progress
        Called with the finished source, the number of finished sources, and their total.

    Raises
    ------
    InputError
        There is only one source, or without one of them nothing is left to fit to.
    """
    sources = tuple(dict.fromkeys(run.source for run in runs))
    if len(sources) < 2:
        raise InputError(f"{len(sources)} source of runs: nothing can be left out", hint="add runs of another source")
    origin = np.array([run.source for run in runs])
    errors = np.full(len(runs), np.nan)
    fits = _FitOptions(settings=_make_picklable(settings or FitSettings()), base=base, near=near)
    for done, (source, source_errors) in enumerate(_leave_out_sources(runs, sources, fits, processes), start=1):
        errors[origin == source] = source_errors
        if progress is not None:
            progress(source, done, len(sources))
    is_stated = np.array([run.is_stated for run in runs])
    return CrossValidation(
        log_errors=errors,
        by_source=group_figures(origin, errors),
        stated=ErrorFigures.of(errors[is_stated]),
        assumed=ErrorFigures.of(errors[~is_stated]),
        overall=ErrorFigures.of(errors),
    )


def group_figures(keys: npt.NDArray[Any], log_errors: FloatColumn) -> dict[str, ErrorFigures]:
    """Return the figures of every group of runs, in the order in which the groups appear."""
    groups = {str(key): ErrorFigures.of(log_errors[keys == key]) for key in dict.fromkeys(keys.tolist())}
    return {key: figures for key, figures in groups.items() if figures is not None}


def fit_without_source(
    runs: Sequence[TimedRun],
    source: str,
    settings: FitSettings,
    base: Efficiency | None = None,
    near: NearFit | None = None,
) -> Efficiency:
    """Return the efficiencies fitted to all runs but those of one source."""
    return fit_time([run for run in runs if run.source != source], settings, base=base, near=near).efficiency


def _leave_out_sources(
    runs: Sequence[TimedRun], sources: Sequence[str], fits: _FitOptions, processes: int
) -> Iterator[tuple[str, FloatColumn]]:
    """Yield each source with the errors of its runs when it is left out."""
    compute = partial(_compute_errors, tuple(runs), fits)
    if processes == 1:
        yield from zip(sources, map(compute, sources), strict=True)
        return
    with safe_imports(), ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        with _limit_threads():
            results = pool.map(compute, sources)
        yield from zip(sources, results, strict=True)


def _make_picklable(settings: FitSettings) -> FitSettings:
    """Return settings that can be pickled: read-only views of mappings cannot."""
    stated: dict[str, Any] = {item.name: getattr(settings, item.name) for item in fields(settings)}
    views: dict[str, Any] = {name: dict(value) for name, value in stated.items() if isinstance(value, Mapping)}
    return replace(settings, **views)


@contextmanager
def _limit_threads() -> Iterator[None]:
    """Limit processes that start inside to one thread: threads of linear algebra would compete for cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class _FitOptions:
    """The arguments of every source's fit."""

    settings: FitSettings
    base: Efficiency | None
    near: NearFit | None


def _compute_errors(runs: Sequence[TimedRun], fits: _FitOptions, source: str) -> FloatColumn:
    """Return ln(predicted / measured) of a source's runs, fitted without them."""
    source_runs = TimedRuns([run for run in runs if run.source == source])
    return source_runs.log_errors(fit_without_source(runs, source, fits.settings, fits.base, fits.near))


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
    """Return errors with the aspects that no run of another source shares that was predicted."""
    held = select_held(cases, log_errors.tolist())
    of_source = defaultdict(set)
    for case, source in zip(cases, sources, strict=True):
        of_source[source].add(case)
    others = {
        source: {case for other, known in of_source.items() if other != source for case in known & held}
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
        unseen_weights=np.zeros(len(cases)),
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
