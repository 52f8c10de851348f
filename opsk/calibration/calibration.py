"""What does a calibration find: parameters, how well they predict sources left out, and how wide ranges must be?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from opsk.calibration.accuracy.cross_validation import CrossValidation, ErrorFigures, cross_validate, figures_by
from opsk.calibration.accuracy.residuals import (
    memory_offset_log_sigma,
    memory_offsets,
    memory_residuals,
    time_residuals,
)
from opsk.calibration.efficiency_file import efficiency_toml, meanings, origin_of, unit_of
from opsk.calibration.fitting.fit import Fit, FitSettings, Start, TimedRun, fit_time
from opsk.calibration.fitting.site_fit import linear_site
from opsk.calibration.fitting.spread import COVERAGE, FittedSpread, Residuals, coverage, coverage_unseen, fitted_spread
from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency, Spread
from opsk.costmodel.efficiency.nearness import ASPECTS, Case, case_of
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import TIME_INPUTS
from opsk.errors import InputError


def timed_runs(runs: Iterable[Run]) -> list[TimedRun]:
    """Return the runs whose time was measured and is scored; rates are turned into times by each row's convention."""
    scored = [run for run in runs if run.is_time_scored]
    return [
        TimedRun(
            id=run.id,
            source=run.source,
            model=run.model,
            plan=run.plan,
            cluster=run.cluster,
            step_s=float(step_s),
            assumed_inputs=sum(entry.field in TIME_INPUTS for entry in run.assumed),
        )
        for run, step_s in zip(scored, measured_step_s(scored), strict=True)
        if np.isfinite(step_s)
    ]


_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "gpu": meanings(GpuEfficiency),
    "software": meanings(SoftwareEfficiency),
    "links": meanings(LinkEfficiency),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that was found; ``origins`` says of every value of ``efficiency`` where it comes from.

    ``is_learnt`` says whether ``efficiency`` has what was found of times: not where a site's runs, each predicted from
    the others, come no nearer than with the efficiencies that the fit started from.
    """

    runs: tuple[TimedRun, ...]
    fit: Fit
    cross_validation: CrossValidation | None
    time: Residuals | None
    memory: Residuals
    efficiency: Efficiency
    origins: Mapping[str, str]
    is_learnt: bool = True


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
        Where what is not fitted is taken from: memory, and a spread of which there are no runs; a site's fit starts
        there.
    processes
        Sources that are left out at the same time.
    leave_out
        Whether sources are left out at all; without, ranges stay as wide as those of ``base``.
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
            base=base,
            near=fit.near,
            processes=processes,
            progress=lambda source, done, total: progress(f"left out {source} ({done} of {total})"),
        )
    is_site = (settings or FitSettings()).start is Start.BASE
    time = None if validated is None else time_residuals(timed, validated.log_errors)
    is_learnt = not is_site or linear_site(timed, base, log_sigma=fit.offset_log_sigma).teaches(np.arange(len(timed)))
    if not is_learnt:
        progress("runs that are left out are predicted no better than before: times stay as they are predicted now")
    learnt = fit.efficiency if is_learnt else base
    memory, cases = memory_residuals(runs, learnt)
    wide = None if is_site else _widths(time, memory)
    offset = learnt.offset
    spread = base.spread
    if wide is not None:
        spread = replace(
            _spread(spread, *wide),
            time_offset_log_sigma=fit.offset_log_sigma,
            memory_offset_log_sigma=memory_offset_log_sigma(memory, cases),
        )
    elif cases:
        offset = memory_offsets(memory, cases, learnt)
    efficiency = replace(
        learnt,
        spread=spread,
        offset=offset,
        fit=_description(timed, fit, base if is_site else None),
        fitted=(_cases(timed, fit) if is_learnt else frozenset()) | (base.fitted if is_site else frozenset()),
        fitted_memory=frozenset(cases) | (base.fitted_memory if is_site else frozenset()),
        widths={**(base.widths if is_site else {}), **learnt.widths},
    )
    return Calibration(
        runs=timed,
        fit=fit,
        cross_validation=validated,
        time=time,
        memory=memory,
        efficiency=efficiency,
        origins=_origins(fit, efficiency, spread if wide is not None else None) if is_learnt else {},
        is_learnt=is_learnt,
    )


def _widths(time: Residuals | None, memory: Residuals) -> tuple[FittedSpread | None, FittedSpread | None]:
    """Return the spreads of time and memory; none where nothing was left out, or measured."""
    return (
        None if time is None else fitted_spread(time),
        fitted_spread(memory) if len(memory.log_errors) else None,
    )


def _spread(base: Spread, time: FittedSpread | None, memory: FittedSpread | None) -> Spread:
    """Return the spread that the errors of sources left out ask for."""
    values: dict[str, float] = {}
    for name, found in (("time", time), ("memory", memory)):
        if found is not None:
            values[f"{name}_log_sigma"] = found.log_sigma
            values[f"{name}_assumed_log_sigma"] = found.assumed_log_sigma
            values |= {f"{name}_new_{aspect}_log_sigma": sigma for aspect, sigma in found.new.items()}
    return replace(base, **values)


def _origins(fit: Fit, efficiency: Efficiency, spread: Spread | None) -> dict[str, str]:
    """Return where each value comes from, by its name in the file."""
    found = {
        f"software.{family.value}.{item.name}": "no runs: what the families with runs share"
        for family in efficiency.software
        for item in fields(SoftwareEfficiency)
    }
    free = {fit.space.parameters[place].name for place in fit.free.free}
    for place, (item, known) in enumerate(zip(fit.space.parameters, fit.parameters, strict=True)):
        parent = fit.space.parents[place]
        is_drawn = known.name not in free and parent >= 0 and fit.space.parameters[parent].name in free
        found[item.name] = origin_of(known, is_drawn=is_drawn)
    for offset in fit.offsets:
        name = f"offset.{offset.software or 'other'}.time_log"
        found.setdefault(name, f"± {offset.log_sigma:.2g} from {offset.runs} runs")
    if spread is not None:
        found |= {f"spread.{item.name}": f"{COVERAGE:.0%} of the errors of sources left out" for item in fields(Spread)}
        found |= {f"spread.{name}_offset_log_sigma": "offsets of sources and software" for name in ("time", "memory")}
        found["spread.memory_fit_log_sigma"] = "not fitted"
    return found


def _cases(runs: Sequence[TimedRun], fit: Fit) -> frozenset[Case]:
    """Return the cases of all runs that the fit used."""
    return frozenset(
        case_of(run.model, run.plan, run.cluster) for run, weight in zip(runs, fit.weights, strict=True) if weight > 0
    )


def _description(runs: Sequence[TimedRun], fit: Fit, base: Efficiency | None) -> str:
    """Return what a fit was fitted to, in one line."""
    sources = sorted({run.source for run, weight in zip(runs, fit.weights, strict=True) if weight > 0})
    text = f"{np.count_nonzero(fit.weights)} timed runs of {len(sources)} sources: {', '.join(sources)}"
    return text if base is None else f"{text}; from the fit to {base.fit}"[:MOST_TEXT]


MOST_TEXT = 2000
"""Longest description that an efficiency file may have."""


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
            "is_learnt": calibration.is_learnt,
            "steps": fit.steps,
            "stated_log_sigma": fit.stated_log_sigma,
            "assumed_log_sigma": fit.assumed_log_sigma,
            **_figures(calibration.runs, fit.log_errors),
        },
        "offsets": [asdict(offset) for offset in fit.offsets],
        "offset_log_sigma": fit.offset_log_sigma,
        "spread": {**asdict(calibration.efficiency.spread), "coverage": _coverage(calibration)},
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
                "width": known.width,
                "prior_source": known.source,
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


def _coverage(calibration: Calibration) -> dict[str, Any]:
    """Return the share of runs that their ranges hold: fitted, left out, and of memory, and by class."""
    spread = calibration.efficiency.spread
    time, memory = calibration.time, calibration.memory
    fitted = time_residuals(calibration.runs, calibration.fit.log_errors)
    time_spread, memory_spread = _fitted_of(spread, "time"), _fitted_of(spread, "memory")
    has_memory = len(memory.log_errors) > 0
    return {
        "time": coverage(fitted, time_spread)["overall"],
        "time_left_out": None if time is None else coverage(time, time_spread)["overall"],
        "memory": coverage(memory, memory_spread)["overall"] if has_memory else None,
        "time_unseen_widths": None if time is None else coverage_unseen(time),
        "memory_unseen_widths": coverage_unseen(memory) if has_memory else None,
        "time_by_class": None if time is None else coverage(time, time_spread),
        "memory_by_class": coverage(memory, memory_spread) if has_memory else None,
    }


def _fitted_of(spread: Spread, quantity: str) -> FittedSpread:
    """Return the part of a spread that is of ``time`` or ``memory``."""
    return FittedSpread(
        log_sigma=getattr(spread, f"{quantity}_log_sigma"),
        assumed_log_sigma=getattr(spread, f"{quantity}_assumed_log_sigma"),
        new={name: getattr(spread, f"{quantity}_new_{name}_log_sigma") for name in ASPECTS},
    )
