"""What does a calibration find: parameters, how well they predict sources left out, and how wide ranges must be?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from opsk.calibration.cross_validation import CrossValidation, ErrorFigures, cross_validate, figures_by
from opsk.calibration.efficiency_file import efficiency_toml, meanings, origin_of, unit_of
from opsk.calibration.fit import Fit, FitSettings, TimedRun, fit_time
from opsk.calibration.predictions import predictions_of
from opsk.calibration.runs import Run
from opsk.calibration.spread import COVERAGE, FittedSpread, coverage, fitted_spread
from opsk.calibration.timed_runs import timed_runs
from opsk.costmodel.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency, Spread
from opsk.costmodel.inputs import MEMORY_INPUTS
from opsk.costmodel.shipped import DEFAULT
from opsk.costmodel.table import FloatColumn, IntColumn
from opsk.errors import InputError

_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "gpu": meanings(GpuEfficiency),
    "software": meanings(SoftwareEfficiency),
    "links": meanings(LinkEfficiency),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Errors ln(predicted / measured) of runs, and how many inputs of each nobody stated."""

    log_errors: FloatColumn
    assumed_inputs: IntColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that was found; ``origins`` says of every value of ``efficiency`` where it comes from."""

    runs: tuple[TimedRun, ...]
    fit: Fit
    cross_validation: CrossValidation | None
    memory: Residuals
    efficiency: Efficiency
    origins: Mapping[str, str]


def calibrate(
    runs: Sequence[Run],
    settings: FitSettings | None = None,
    *,
    base: Efficiency = DEFAULT,
    processes: int = 1,
    leave_out: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the efficiencies to runs, and say how good they are.

    Parameters
    ----------
    runs
        Measured runs, of a table or of a site's store.
    settings
        How runs are weighed.
    base
        Where what is not fitted is taken from: memory, and a spread of which there are no runs.
    processes
        Sources that are left out at the same time.
    leave_out
        Whether sources are left out at all; without, ranges are only as wide as the errors of the fit itself.
    progress
        Called with a line for people after each step.

    Raises
    ------
    InputError
        There is nothing to fit to, or nothing to leave out.
    """
    timed = tuple(timed_runs(runs))
    if not timed:
        raise InputError(f"none of {len(runs)} runs has a measured time that can be scored", hint="see opsk validate")
    progress(f"fitting to {len(timed)} runs of {len({run.source for run in timed})} sources")
    fit = fit_time(timed, settings, base=base)
    validated = None
    if leave_out and len({run.source for run in timed}) == 1:
        progress("all runs are of one source: there is none to leave out")
    elif leave_out:
        validated = cross_validate(
            timed,
            settings,
            processes=processes,
            progress=lambda source, done, total: progress(f"left out {source} ({done} of {total})"),
        )
    memory = memory_residuals(runs, fit.efficiency)
    spread, origins = _spread(base.spread, time_residuals(timed, fit, validated), memory)
    named = {item.name: origin_of(item) for item in fit.parameters}
    efficiency = replace(
        fit.efficiency, spread=spread, fit=_description(timed, fit, settings), fitted=_measured_pairs(timed, fit)
    )
    return Calibration(
        runs=timed,
        fit=fit,
        cross_validation=validated,
        memory=memory,
        efficiency=efficiency,
        origins={**_unfitted(efficiency), **named, **origins},
    )


def time_residuals(runs: Sequence[TimedRun], fit: Fit, validated: CrossValidation | None) -> Residuals:
    """Return the errors of the runs that were used, in sample and, where there are any, left out as well."""
    used = fit.weights > 0
    assumed = np.array([run.assumed_inputs for run in runs])[used]
    sets = [fit.log_errors[used]] + ([] if validated is None else [validated.log_errors[used]])
    return Residuals(log_errors=np.concatenate(sets), assumed_inputs=np.tile(assumed, len(sets)))


def memory_residuals(runs: Sequence[Run], efficiency: Efficiency) -> Residuals:
    """Return the errors of predicted memory, by each run's own definition of it."""
    measured = [run for run in runs if run.measured.peak_mem_bytes and not run.is_memory_unusable]
    found, _ = predictions_of(measured, efficiency)
    pairs = [
        (np.log(prediction.memory_bytes.expected / run.measured.peak_mem_bytes), run)
        for run, prediction in zip(measured, found, strict=True)
        if prediction is not None and run.measured.peak_mem_bytes
    ]
    return Residuals(
        log_errors=np.array([error for error, _ in pairs], dtype=np.float64),
        assumed_inputs=np.array(
            [sum(entry.field in MEMORY_INPUTS for entry in run.assumed) for _, run in pairs], dtype=np.int64
        ),
    )


def _spread(base: Spread, time: Residuals, memory: Residuals) -> tuple[Spread, dict[str, str]]:
    """Return the spread that the errors ask for, and where each value comes from."""
    values: dict[str, float] = {}
    origins: dict[str, str] = {}
    for name, errors in (("time", time), ("memory", memory)):
        found = fitted_spread(errors.log_errors, errors.assumed_inputs) if len(errors.log_errors) else FittedSpread()
        for field, sigma, kind in (
            (f"{name}_log_sigma", found.stated_log_sigma, errors.assumed_inputs == 0),
            (f"{name}_assumed_log_sigma", found.assumed_log_sigma, errors.assumed_inputs > 0),
        ):
            if sigma is not None:
                values[field] = sigma
                origins[f"spread.{field}"] = f"ranges hold {COVERAGE:.1%} of {np.count_nonzero(kind)} errors"
    return replace(base, **values), origins


def _unfitted(efficiency: Efficiency) -> dict[str, str]:
    """Return the origin of values of families that have no runs of their own."""
    return {
        f"software.{family.value}.{item.name}": "no runs: what the families with runs share"
        for family in efficiency.software
        for item in fields(SoftwareEfficiency)
    }


def _measured_pairs(runs: Sequence[TimedRun], fit: Fit) -> frozenset[tuple[str, str]]:
    """Return chip generation and software of all runs that the fit used."""
    return frozenset(
        (run.cluster.node.gpu.architecture, run.plan.software.value)
        for run, weight in zip(runs, fit.weights, strict=True)
        if weight > 0
    )


def _description(runs: Sequence[TimedRun], fit: Fit, settings: FitSettings | None) -> str:
    """Return what a fit was fitted to, in one line, and what weighed more than its share."""
    sources = sorted({run.source for run, weight in zip(runs, fit.weights, strict=True) if weight > 0})
    text = f"{np.count_nonzero(fit.weights)} timed runs of {len(sources)} sources: {', '.join(sources)}"
    references = (settings or FitSettings()).reference_sources
    weighed = ", ".join(f"{source} x {weight:g}" for source, weight in sorted(references.items()))
    return f"{text}; reference: {weighed}" if weighed else text


def calibration_text(calibration: Calibration) -> str:
    """Return the efficiency file of a calibration."""
    return efficiency_toml(calibration.efficiency, calibration.origins)


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON document of ``opsk calibrate``."""
    fit, validated = calibration.fit, calibration.cross_validation
    return {
        "parameters": dict(_parameters(fit)),
        "cross_validation": None if validated is None else _figures(calibration.runs, validated.log_errors),
        "fit": {
            "description": calibration.efficiency.fit,
            "used": int(np.count_nonzero(fit.weights)),
            "steps": fit.steps,
            "stated_log_sigma": fit.stated_log_sigma,
            "assumed_log_sigma": fit.assumed_log_sigma,
            **_figures(calibration.runs, fit.log_errors),
        },
        "spread": {**asdict(calibration.efficiency.spread), "coverage": dict(_coverage(calibration))},
    }


def _parameters(fit: Fit) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every parameter by its name."""
    for place, known in zip(fit.space.parameters, fit.parameters, strict=True):
        yield (
            known.name,
            {
                "value": known.value,
                "prior": known.prior,
                "standard_error": known.standard_error,
                "unit": unit_of(place.field),
                "what": _MEANINGS[place.section].get(place.field, ""),
                "identified": known.is_identified,
                "runs": known.runs,
            },
        )


def _figures(runs: Sequence[TimedRun], log_errors: FloatColumn) -> dict[str, Any]:
    """Return the figures of errors overall, of stated and of assumed runs, and of every source."""
    is_stated = np.array([run.is_stated for run in runs])
    sets = {"overall": log_errors, "stated": log_errors[is_stated], "assumed": log_errors[~is_stated]}
    found = {name: ErrorFigures.of(errors) for name, errors in sets.items()}
    by_source = figures_by(np.array([run.source for run in runs]), log_errors)
    return {
        **{name: None if figures is None else asdict(figures) for name, figures in found.items()},
        "by_source": {name: asdict(figures) for name, figures in by_source.items()},
    }


def _coverage(calibration: Calibration) -> Iterator[tuple[str, float | None]]:
    """Yield the share of runs that their ranges hold: fitted, left out, and of memory."""
    spread, validated = calibration.efficiency.spread, calibration.cross_validation
    time = (spread.time_log_sigma, spread.time_assumed_log_sigma)
    memory = (spread.memory_log_sigma, spread.memory_assumed_log_sigma)
    assumed = np.array([run.assumed_inputs for run in calibration.runs])
    yield "time", coverage(calibration.fit.log_errors, assumed, *time)
    yield "time_left_out", None if validated is None else coverage(validated.log_errors, assumed, *time)
    errors = calibration.memory
    yield "memory", coverage(errors.log_errors, errors.assumed_inputs, *memory) if len(errors.log_errors) else None
