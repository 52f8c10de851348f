"""Renders memory, speed and plan changes as lines of advice."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.costmodel.table import PredictionTable
from opsk.text import format_duration, format_share
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.suggestions import MIN_GAIN, Suggestion
from opsk_jobcheck.advice.text.line import Line, Weight, continuation, fit_parts
from opsk_jobcheck.advice.waste import Waste, WasteKind

MEMORY_TERMS_SHOWN = 4
IN_FILE = " in "
"""Separator between settings and the file that they belong in."""
SAME_SPEED = 0.005
MARKS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
ENDINGS = {
    Verdict.FITS: "fits",
    Verdict.TIGHT: "tight, may run out",
    Verdict.OOM: "will run out",
}


def prediction_of(advice: Advice) -> PredictionTable:
    """Return the prediction of an advice that has one."""
    if advice.prediction is None:
        raise ValueError("advice without a prediction has no memory and no speed to show")
    return advice.prediction


def memory(advice: Advice) -> Line:
    """Return the line on whether it fits, and on the terms that decide."""
    predicted = prediction_of(advice).memory
    total, low, high = (
        float(x) for x in (predicted.total_bytes.expected, predicted.total_bytes.low, predicted.total_bytes.high)
    )
    terms = sorted(((float(term), name) for name, term in predicted.components.items()), reverse=True)
    shown = [f"{name} {as_gib(size):.1f}" for size, name in terms[:MEMORY_TERMS_SHOWN]]
    other = as_gib(sum(size for size, _ in terms[MEMORY_TERMS_SHOWN:]))
    verdict = f"{MARKS[advice.verdict]} {as_gib(total):.1f} GiB ({as_gib(low):.1f}–{as_gib(high):.1f}) of "
    verdict += f"{as_gib(float(predicted.capacity_bytes)):.1f} GiB per GPU: {ENDINGS[advice.verdict]}"
    return Line(
        label="memory",
        text=f"{verdict}{_chance_text(advice)} — {', '.join(shown)}, other {other:.1f}",
        brief=fit_parts([f"{verdict}{_brief_chance_text(advice)} — {shown[0]}", *shown[1:]], joint=", "),
        weight=Weight.MEMORY,
        topic="memory terms",
    )


def _brief_chance_text(advice: Advice) -> str:
    """Return the probability to fit where the verdict is tight."""
    chance = float(prediction_of(advice).memory.fit_probability)
    return f" (chance to fit {format_share(chance)})" if advice.verdict is Verdict.TIGHT else ""


def _chance_text(advice: Advice) -> str:
    """Return the probability to fit; where the verdict is tight, also the memory that must fit.

    The range may exceed the capacity in spite of a fair probability: it includes cached blocks, which are freed first.
    """
    predicted = prediction_of(advice).memory
    if advice.verdict is Verdict.OOM:
        return ""
    chance = f"chance {format_share(float(predicted.fit_probability))}"
    if advice.verdict is not Verdict.TIGHT:
        return f" ({chance})"
    needed = float(predicted.needed_bytes.expected)
    return f" ({chance}, {as_gib(needed):.1f} GiB without cached blocks)"


def speed(advice: Advice) -> Line:
    """Return the line on the predicted speed, and on the parts of the step."""
    time = prediction_of(advice).time
    tflops = time.tflops_per_gpu
    text = (
        f"{tflops.expected:.0f} TFLOP/s/GPU ({tflops.low:.0f}–{tflops.high:.0f}), "
        f"MFU {time.mfu.expected:.0%}, {format_duration(float(time.step_s.expected))} a step"
    )
    step_s = float(time.step_s.expected)
    shares = sorted(((float(part), name) for name, part in time.components.items()), reverse=True)
    shown = [f"{name} {seconds / step_s:.0%}" for seconds, name in shares if seconds / step_s >= 0.01]
    return Line(
        label="speed",
        text=f"{text} — {', '.join(shown)}",
        brief=fit_parts([f"{text} — {shown[0]}", *shown[1:]], joint=", ") if shown else text,
        weight=Weight.SPEED,
        topic="speed",
    )


def effect(change: Suggestion) -> str:
    """Return the effect of a change: memory of a GPU, and time of a step."""
    pace = change.step_ratio - 1
    speed_text = "same speed" if abs(pace) < SAME_SPEED else f"{abs(pace):.0%} {'slower' if pace > 0 else 'faster'}"
    return f"{as_gib(change.memory_bytes):.1f} GiB, {speed_text}"


def settings_text(change: Suggestion) -> str:
    """Return the settings of a change, in the framework's syntax where opsk knows it."""
    inline = [flag for flag in change.flags if IN_FILE not in flag]
    in_files = [flag for flag in change.flags if IN_FILE in flag]
    return " and ".join(filter(None, (" ".join(inline), *in_files))) or change.what


def ways_out(advice: Advice) -> Iterator[Line]:
    """Yield the lines of changes that make the job fit, fastest first."""
    searched = advice.is_searched
    is_larger = any(change.axis == "nodes" for entry in advice.suggestions for change in entry.changes)
    if searched and (is_larger or not advice.suggestions):
        fits = "is predicted to fit" if advice.verdict is Verdict.OOM else "fits for sure"
        analysis = "" if is_larger else ": ask for more GPUs"
        yield continuation(f"→ no plan on these GPUs {fits}{analysis}", Weight.WAY_OUT)
    for index, entry in enumerate(advice.suggestions):
        weight = Weight.WAY_OUT if index == 0 else Weight.SECOND
        text = f"→ {settings_text(entry)}: {effect(entry)}"
        yield continuation(text, weight, brief=text, topic="change")


def improvements(advice: Advice) -> Iterator[Line]:
    """Yield the lines on waste and on faster plans, greatest effect first, every change once."""
    rows = [(_compute_effect(entry), "waste", _waste_text(entry), "finding") for entry in shown_waste(advice)]
    if advice.verdict is Verdict.FITS:
        shown_plans = {entry.change.plan for entry in advice.waste if entry.change}
        rows += [
            (1 - entry.step_ratio, "faster", f"→ {settings_text(entry)}: {effect(entry)}", "change")
            for entry in advice.suggestions
            if entry.plan not in shown_plans
        ]
    for index, (_, label, text, topic) in enumerate(sorted(rows, key=lambda row: -row[0])):
        weight = Weight.WASTE if index == 0 else Weight.SECOND
        yield Line(label=label, text=text, brief=text, weight=weight, topic=topic)


def _compute_effect(entry: Waste) -> float:
    """Return the share of GPU time that a finding costs."""
    return entry.cost_share or (1 - entry.change.step_ratio if entry.change else 0.0)


def _waste_text(entry: Waste) -> str:
    """Return a finding with its remedy and the effect of that."""
    if entry.change:
        return f"{entry.what} → {settings_text(entry.change)}: {effect(entry.change)}"
    return f"{entry.what} → {entry.advice}" if entry.advice else entry.what


def mending(advice: Advice) -> Iterator[Line]:
    """Yield the lines of repairs for a job that cannot start as submitted."""
    for entry in advice.waste:
        text = f"→ {entry.advice}" if entry.kind is WasteKind.BATCH else f"{entry.what} → {entry.advice}"
        yield continuation(text, Weight.WAY_OUT, brief=text, topic="finding")


def shown_waste(advice: Advice) -> tuple[Waste, ...]:
    """Return the findings to show: where memory is short, without those whose change is suggested already."""
    suggested_plans = {entry.plan for entry in advice.suggestions} if advice.verdict is not Verdict.FITS else set()
    return tuple(entry for entry in advice.waste if entry.change is None or entry.change.plan not in suggested_plans)


def best(advice: Advice) -> Iterator[Line]:
    """Yield the line of the best plan on the same GPUs, when it is clearly better than all other suggestions."""
    if advice.best is None:
        return
    suggestion = advice.best.suggestion
    considered = f"{advice.best.considered:,} plans"
    named = [*advice.suggestions, *(entry.change for entry in advice.waste if entry.change)]
    if suggestion.step_ratio > 1 - MIN_GAIN:
        if not named:
            yield continuation(f"none of {considered} on these GPUs is clearly faster", Weight.BEST)
        return
    if any(entry.step_ratio <= suggestion.step_ratio * (1 + MIN_GAIN) for entry in named):
        return
    text = f"→ {suggestion.what}: {suggestion.tflops_per_gpu:.0f} TFLOP/s/GPU, {effect(suggestion)}"
    flags = f" ({' '.join(suggestion.flags)})" if suggestion.flags else ""
    whole = f"{text}, best of {considered}{flags}"
    yield Line(label="best", text=whole, brief=f"{text}, best of {considered}", weight=Weight.SECOND, topic="change")
