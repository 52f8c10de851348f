"""Cross-validates the cost model: predicts the runs of each source with a fit to the other sources.

Every source in turn is left out whole: fitted without it, from the priors on, and then predicted. Runs of one source
share software, machine and practices, so leaving out single runs would understate the error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from opsk.calibration.fitting.fit import FitSettings, NearFit, TimedRun, TimedRuns, fit_time
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn
from opsk.errors import InputError
from opsk.spawning import safe_imports


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
