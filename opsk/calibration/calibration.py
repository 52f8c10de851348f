"""Calibrates the cost model: fits parameters, validates them on sources left out, and fits the widths of ranges."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from opsk.calibration.accuracy.cross_validation import (
    CrossValidation,
    ErrorFigures,
    compute_memory_residuals,
    compute_time_residuals,
    cross_validate,
    estimate_memory_offset_log_sigma,
    estimate_memory_offsets,
    group_figures,
)
from opsk.calibration.accuracy.first_looks import FirstLook, add_first_looks
from opsk.calibration.accuracy.widths import fit_widths, widen_offsets
from opsk.calibration.fitting.fit import Fit, FitSettings, FittedParameter, Start, TimedRun, build_linear_site, fit_time
from opsk.calibration.fitting.spread import COVERAGE, FittedSpread, Residuals, coverage, coverage_unseen
from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.cases import ASPECTS, Case, build_case, select_held
from opsk.costmodel.efficiency.default import DEFAULT, OTHER
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency, Spread
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.inputs import TIME_INPUTS
from opsk.errors import InputError

DIGITS = 4
"""Significant digits that are written; no parameter is known better than to a few percent."""
UNITS = (("_bytes", "bytes"), ("_s", "s"), ("_size", "elements"), ("_jobs", "jobs"))
"""Suffix of a field's name to its unit; every other field is a ratio."""
_ENTRY = re.compile(r"(\w+(?:, \w+)*)\n((?:    .*\n?)+)")


def select_timed_runs(runs: Iterable[Run]) -> list[TimedRun]:
    """Return the runs whose time was measured and is scored; rates are converted to times by each row's convention."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The result of a calibration; ``origins`` is the origin of every value of ``efficiency``.

    ``is_learnt`` states whether ``efficiency`` has the fitted times: not where a site's runs, each predicted from
    the others, are predicted no better than with the efficiencies that the fit started from.
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
    first_looks: Sequence[FirstLook] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Fit the efficiencies to runs, and validate them.

    Parameters
    ----------
    runs
        Measured runs, of a table or of a site's store.
    settings
        How runs are weighted.
    base
        Source of values that are not fitted: memory, and a spread without runs; a site's fit starts
        there.
    processes
        Sources that are left out at the same time.
    leave_out
        Whether to cross-validate; without, ranges stay as wide as those of ``base``.
    first_looks
        Errors of sources that nobody had seen: ranges of a fit from priors hold them as well as those left out.
    progress
        Called with a progress message after each step.

    Raises
    ------
    InputError
        There are no runs to fit to, or no sources to leave out.
    """
    timed = tuple(select_timed_runs(runs))
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
    time = None if validated is None else compute_time_residuals(timed, validated.log_errors)
    is_learnt = not is_site or build_linear_site(timed, base, log_sigma=fit.offset_log_sigma).improves(
        np.arange(len(timed))
    )
    if not is_learnt:
        progress("the fit does not predict runs that were left out better: predicted times stay as they are")
    fitted = fit.efficiency if is_learnt else base
    memory, cases = compute_memory_residuals(runs, fitted)
    held = select_held(cases, memory.log_errors.tolist())
    offset = fitted.offset
    spread = base.spread
    if not is_site:
        memory_offset = estimate_memory_offset_log_sigma(memory, cases)
        memory = add_first_looks(memory, cases, first_looks, quantity="memory")
        time = None if time is None else add_first_looks(time, _build_cases(timed), first_looks, quantity="time")
        spread = fit_widths(spread, time, memory, time_offset=fit.offset_log_sigma, memory_offset=memory_offset)
        offset = widen_offsets(offset, fit.offset_log_sigma, spread.time_offset_log_sigma)
    elif cases:
        offset = estimate_memory_offsets(memory, cases, fitted)
    efficiency = replace(
        fitted,
        spread=spread,
        offset=offset,
        fit=_describe_fit(timed, fit, base if is_site else None),
        fitted=(_collect_cases(timed, fit) if is_learnt else frozenset()) | (base.fitted if is_site else frozenset()),
        fitted_memory=held | (base.fitted_memory if is_site else frozenset()),
        widths={**(base.widths if is_site else {}), **fitted.widths},
    )
    return Calibration(
        runs=timed,
        fit=fit,
        cross_validation=validated,
        time=time,
        memory=memory,
        efficiency=efficiency,
        origins=_format_origins(fit, efficiency, None if is_site else spread) if is_learnt else {},
        is_learnt=is_learnt,
    )


def _format_origins(fit: Fit, efficiency: Efficiency, spread: Spread | None) -> dict[str, str]:
    """Return the origin of each value, by its name in the file."""
    origins = {
        f"software.{family.value}.{item.name}": "no runs: what the families with runs share"
        for family in efficiency.software
        for item in fields(SoftwareEfficiency)
    }
    free = {fit.space.parameters[index].name for index in fit.free.free}
    for index, (item, known) in enumerate(zip(fit.space.parameters, fit.parameters, strict=True)):
        parent = fit.space.parents[index]
        is_drawn = known.name not in free and parent >= 0 and fit.space.parameters[parent].name in free
        origins[item.name] = format_origin(known, is_drawn=is_drawn)
    for offset in fit.offsets:
        name = f"offset.{offset.software or 'other'}.time_log"
        origins.setdefault(name, f"± {offset.log_sigma:.2g} from {offset.runs} runs")
    if spread is not None:
        origins |= {
            f"spread.{item.name}": f"{COVERAGE:.0%} of the errors of sources left out or never seen"
            for item in fields(Spread)
        }
        origins |= {f"spread.{name}_offset_log_sigma": "offsets of sources and software" for name in ("time", "memory")}
        origins["spread.memory_fit_log_sigma"] = "not fitted"
    return origins


def _collect_cases(runs: Sequence[TimedRun], fit: Fit) -> frozenset[Case]:
    """Return the cases of all runs that the fit used, but those that it does not predict."""
    used = [index for index, weight in enumerate(fit.weights.tolist()) if weight > 0]
    return select_held(_build_cases([runs[index] for index in used]), fit.log_errors[used].tolist())


def _build_cases(runs: Sequence[TimedRun]) -> list[Case]:
    """Return the case of every run."""
    return [build_case(run.model, run.plan, run.cluster) for run in runs]


def _describe_fit(runs: Sequence[TimedRun], fit: Fit, base: Efficiency | None) -> str:
    """Describe the runs of a fit, in one line."""
    sources = sorted({run.source for run, weight in zip(runs, fit.weights, strict=True) if weight > 0})
    text = f"{np.count_nonzero(fit.weights)} timed runs of {len(sources)} sources"
    text += f": {', '.join(sources)}" if len(sources) <= MAX_NAMED else ""
    return text if base is None else f"{text}; from the fit to {base.fit}"[:MAX_TEXT]


_SITE_FIELDS = frozenset({"time_run_log_sigma", "memory_run_log_sigma", "time_jobs", "memory_jobs"})
"""Fields of an offset that only a site's jobs give; without any they are not written."""
MAX_NAMED = 40
"""Most sources that a description names: a longer list is of published runs, which a table has."""
MAX_TEXT = 2000
"""Longest description that an efficiency file may have."""


def render_calibration(calibration: Calibration) -> str:
    """Return the efficiency file of a calibration."""
    return render_efficiency_toml(calibration.efficiency, calibration.origins)


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON document of ``opsk calibrate``."""
    fit, validated = calibration.fit, calibration.cross_validation
    return {
        "parameters": dict(_iterate_parameters(fit)),
        "cross_validation": None if validated is None else _summarise_errors(calibration.runs, validated.log_errors),
        "fit": {
            "description": calibration.efficiency.fit,
            "used": int(np.count_nonzero(fit.weights)),
            "is_learnt": calibration.is_learnt,
            "steps": fit.steps,
            "stated_log_sigma": fit.stated_log_sigma,
            "assumed_log_sigma": fit.assumed_log_sigma,
            **_summarise_errors(calibration.runs, fit.log_errors),
        },
        "offsets": [asdict(offset) for offset in fit.offsets],
        "offset_log_sigma": fit.offset_log_sigma,
        "spread": {**asdict(calibration.efficiency.spread), "coverage": _compute_coverage(calibration)},
    }


def _iterate_parameters(fit: Fit) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every parameter by its name."""
    for parameter, known in zip(fit.space.parameters, fit.parameters, strict=True):
        yield (
            known.name,
            {
                "value": known.value,
                "prior": known.prior,
                "standard_error": known.standard_error,
                "unit": find_unit(parameter.field),
                "what": _MEANINGS[parameter.section].get(parameter.field, ""),
                "identified": known.is_identified,
                "width": known.width,
                "prior_source": known.source,
                "runs": known.runs,
            },
        )


def _summarise_errors(runs: Sequence[TimedRun], log_errors: FloatColumn) -> dict[str, Any]:
    """Return the figures of errors overall, of stated and of assumed runs, and of every source."""
    is_stated = np.array([run.is_stated for run in runs])
    sets = {"overall": log_errors, "stated": log_errors[is_stated], "assumed": log_errors[~is_stated]}
    figures_by_set = {name: ErrorFigures.of(errors) for name, errors in sets.items()}
    by_source = group_figures(np.array([run.source for run in runs]), log_errors)
    return {
        **{name: None if figures is None else asdict(figures) for name, figures in figures_by_set.items()},
        "by_source": {name: asdict(figures) for name, figures in by_source.items()},
    }


def _compute_coverage(calibration: Calibration) -> dict[str, Any]:
    """Return the share of runs within their ranges: fitted, left out, and of memory, and by class."""
    spread = calibration.efficiency.spread
    time, memory = calibration.time, calibration.memory
    fitted = compute_time_residuals(calibration.runs, calibration.fit.log_errors)
    time_spread, memory_spread = _extract_fitted_spread(spread, "time"), _extract_fitted_spread(spread, "memory")
    has_memory = len(memory.log_errors) > 0
    time_unseen = (time and coverage_unseen(time)) or {}
    memory_unseen = (coverage_unseen(memory) if has_memory else None) or {}
    return {
        "time": coverage(fitted, time_spread)["overall"],
        "time_left_out": None if time is None else coverage(time, time_spread)["overall"],
        "memory": coverage(memory, memory_spread)["overall"] if has_memory else None,
        "time_unseen_widths": time_unseen.get("overall"),
        "memory_unseen_widths": memory_unseen.get("overall"),
        "time_by_class_unseen_widths": time_unseen,
        "memory_by_class_unseen_widths": memory_unseen,
        "time_by_class": None if time is None else coverage(time, time_spread),
        "memory_by_class": coverage(memory, memory_spread) if has_memory else None,
    }


def _extract_fitted_spread(spread: Spread, quantity: str) -> FittedSpread:
    """Return the part of a spread for ``time`` or ``memory``."""
    return FittedSpread(
        log_sigma=getattr(spread, f"{quantity}_log_sigma"),
        assumed_log_sigma=getattr(spread, f"{quantity}_assumed_log_sigma"),
        new={name: getattr(spread, f"{quantity}_new_{name}_log_sigma") for name in ASPECTS},
    )


def find_unit(field: str) -> str:
    """Return the unit of a parameter."""
    return next((unit for ending, unit in UNITS if field.endswith(ending)), "ratio")


def parse_field_meanings(value_class: type[Any]) -> dict[str, str]:
    """Return the meaning of each field of a class of parameters, from the list of parameters in its docstring."""
    _, _, listed = inspect.cleandoc(value_class.__doc__ or "").partition("Parameters\n----------\n")
    meanings: dict[str, str] = {}
    for names, text in _ENTRY.findall(listed):
        for name in names.split(", "):
            meanings[name] = " ".join(text.split())
    return meanings


def render_efficiency_toml(efficiency: Efficiency, origins: Mapping[str, str]) -> str:
    """Return an efficiency file: every value, with what it was fitted to.

    Parameters
    ----------
    efficiency
        What to write.
    origins
        Origin of each value, by its name in the file; a missing one was not fitted.
    """
    lines = ["# Efficiencies of the cost model, written by: opsk calibrate", "#"]
    lines += [f"# {name}: {text}" for name, text in _collect_meanings(efficiency).items()]
    lines += [
        "",
        f"fit = {_quote(efficiency.fit)}",
        "",
        "# of which chip generation, software, kind of model and number format times and peaks of memory were measured",
    ]
    for name, cases in (("fitted", efficiency.fitted), ("fitted_memory", efficiency.fitted_memory)):
        lines += [f"{name} = [", *(f"    {_quote(case.name)}," for case in sorted(cases)), "]"]
    for table, value in _iterate_tables(efficiency):
        lines += ["", f"[{table}]"]
        for item in fields(value):
            if item.name in _SITE_FIELDS and not getattr(value, item.name):
                continue
            origin = origins.get(f"{table}.{item.name}", "not fitted")
            number = _format_number(getattr(value, item.name))
            lines.append(f"{item.name} = {number}  # {find_unit(item.name)}; {origin}")
    if efficiency.widths:
        lines += ["", "# how well fitted values are known: standard deviations on the scale of their prior", "[widths]"]
        lines += [f"{_quote(name)} = {_format_number(width)}" for name, width in sorted(efficiency.widths.items())]
    return "\n".join(lines) + "\n"


def format_origin(known: FittedParameter, *, is_drawn: bool = False) -> str:
    """Return the origin of a value as short text; ``is_drawn`` means that it follows the value shared by its family."""
    if known.is_identified:
        return f"± {known.standard_error:.2g} from {known.runs} runs, prior {round_value(known.prior):g}"
    undetermined = f"{known.runs} runs do not tell it" if known.runs else "no runs tell it"
    return f"as the others share it; {undetermined}" if is_drawn else f"prior: {known.source}; {undetermined}"


def round_value(value: float) -> float:
    """Round a value to the digits of the file."""
    return float(f"{value:.{DIGITS}g}")


def _iterate_tables(efficiency: Efficiency) -> Iterator[tuple[str, Any]]:
    """Yield the name and the values of every table of the file, in order; memory only where it is a site's own."""
    for member in sorted(efficiency.gpu):
        yield f"gpu.{member or OTHER}", efficiency.gpu[member]
    for family in sorted(efficiency.software):
        yield f"software.{family.value}", efficiency.software[family]
    yield "links", efficiency.links
    if efficiency.memory != DEFAULT.memory:
        yield "memory", efficiency.memory
    for member in sorted(efficiency.offset):
        yield f"offset.{_quote(member) if '/' in member else member or OTHER}", efficiency.offset[member]
    yield "spread", efficiency.spread


def _collect_meanings(efficiency: Efficiency) -> dict[str, str]:
    """Return the meaning of every field that is written, each once."""
    meanings: dict[str, str] = {}
    for _, value in _iterate_tables(efficiency):
        meanings.update(parse_field_meanings(type(value)))
    return meanings


def _format_number(value: float) -> str:
    """Format a float as TOML."""
    text = repr(round_value(value))
    return text if "." in text or "e" in text else f"{text}.0"


def _quote(text: str) -> str:
    """Return a TOML basic string."""
    escaped = "".join(
        f"\\u{ord(character):04X}"
        if character in '"\\' or ord(character) < 0x20 or ord(character) == 0x7F
        else character
        for character in text
    )
    return f'"{escaped}"'


_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "gpu": parse_field_meanings(GpuEfficiency),
    "software": parse_field_meanings(SoftwareEfficiency),
    "links": parse_field_meanings(LinkEfficiency),
}
