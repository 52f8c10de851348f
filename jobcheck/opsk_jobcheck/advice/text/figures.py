"""How do memory, speed and changes of a plan read?"""

from __future__ import annotations

from collections.abc import Iterator

from opsk.costmodel.table import PredictionTable
from opsk.text import format_duration, format_share
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.suggestions import MIN_GAIN, Suggestion
from opsk_jobcheck.advice.text.line import Line, Weight, continued, fitting
from opsk_jobcheck.advice.waste import Waste, WasteKind

MEMORY_TERMS_SHOWN = 4
IN_FILE = " in "
"""What stands between settings and the file that they belong into."""
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
    """Say whether it fits, and which terms decide."""
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
        text=f"{verdict}{_chance(advice)} — {', '.join(shown)}, other {other:.1f}",
        brief=fitting([f"{verdict}{_brief_chance(advice)} — {shown[0]}", *shown[1:]], joint=", "),
        weight=Weight.MEMORY,
        topic="memory terms",
    )


def _brief_chance(advice: Advice) -> str:
    """Say how likely it fits where that is in doubt."""
    chance = float(prediction_of(advice).memory.fit_probability)
    return f" (chance to fit {format_share(chance)})" if advice.verdict is Verdict.TIGHT else ""


def _chance(advice: Advice) -> str:
    """Say how likely it fits; where that is in doubt, also what of the total has to.

    The range may lie above the capacity beside a fair chance: it holds cached blocks, which are given back first.
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
    """Say how fast it will go, and where the time goes."""
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
        brief=fitting([f"{text} — {shown[0]}", *shown[1:]], joint=", ") if shown else text,
        weight=Weight.SPEED,
        topic="speed",
    )


def effect(change: Suggestion) -> str:
    """Say what a change leads to: memory of a GPU, and time of a step."""
    pace = change.step_ratio - 1
    told = "same speed" if abs(pace) < SAME_SPEED else f"{abs(pace):.0%} {'slower' if pace > 0 else 'faster'}"
    return f"{as_gib(change.memory_bytes):.1f} GiB, {told}"


def words_of(change: Suggestion) -> str:
    """Return what to set, in the framework's words where opsk has them."""
    inline = [flag for flag in change.flags if IN_FILE not in flag]
    in_files = [flag for flag in change.flags if IN_FILE in flag]
    return " and ".join(filter(None, (" ".join(inline), *in_files))) or change.what


def ways_out(advice: Advice) -> Iterator[Line]:
    """Name the changes that make it fit, fastest first."""
    searched = advice.is_searched
    is_larger = any(change.axis == "nodes" for entry in advice.suggestions for change in entry.changes)
    if searched and (is_larger or not advice.suggestions):
        fits = "is predicted to fit" if advice.verdict is Verdict.OOM else "fits for sure"
        analysis = "" if is_larger else ": ask for more GPUs"
        yield continued(f"→ no plan on these GPUs {fits}{analysis}", Weight.WAY_OUT)
    for index, entry in enumerate(advice.suggestions):
        weight = Weight.WAY_OUT if index == 0 else Weight.SECOND
        text = f"→ {words_of(entry)}: {effect(entry)}"
        yield continued(text, weight, brief=text, topic="change")


def improvements(advice: Advice) -> Iterator[Line]:
    """Say what is wasted and what would be faster, greatest effect first, every change once."""
    rows = [(_effect_of(entry), "waste", _waste_text(entry), "finding") for entry in shown_waste(advice)]
    if advice.verdict is Verdict.FITS:
        told = {entry.change.plan for entry in advice.waste if entry.change}
        rows += [
            (1 - entry.step_ratio, "faster", f"→ {words_of(entry)}: {effect(entry)}", "change")
            for entry in advice.suggestions
            if entry.plan not in told
        ]
    for index, (_, label, text, topic) in enumerate(sorted(rows, key=lambda row: -row[0])):
        weight = Weight.WASTE if index == 0 else Weight.SECOND
        yield Line(label=label, text=text, brief=text, weight=weight, topic=topic)


def _effect_of(entry: Waste) -> float:
    """Return the share of GPU time that a finding is about."""
    return entry.cost_share or (1 - entry.change.step_ratio if entry.change else 0.0)


def _waste_text(entry: Waste) -> str:
    """Say what is wasted and what to do, with what that leads to."""
    if entry.change:
        return f"{entry.what} → {words_of(entry.change)}: {effect(entry.change)}"
    return f"{entry.what} → {entry.advice}" if entry.advice else entry.what


def mending(advice: Advice) -> Iterator[Line]:
    """Say what a job needs that cannot start as it is."""
    for entry in advice.waste:
        text = f"→ {entry.advice}" if entry.kind is WasteKind.BATCH else f"{entry.what} → {entry.advice}"
        yield continued(text, Weight.WAY_OUT, brief=text, topic="finding")


def shown_waste(advice: Advice) -> tuple[Waste, ...]:
    """Return the findings that are told: where memory is short, not those whose change is told as a way out."""
    ways = {entry.plan for entry in advice.suggestions} if advice.verdict is not Verdict.FITS else set()
    return tuple(entry for entry in advice.waste if entry.change is None or entry.change.plan not in ways)


def best(advice: Advice) -> Iterator[Line]:
    """Name the best plan on the same GPUs, when it is clearly better than all that was named."""
    if advice.best is None:
        return
    found = advice.best.suggestion
    considered = f"{advice.best.considered:,} plans"
    named = [*advice.suggestions, *(entry.change for entry in advice.waste if entry.change)]
    if found.step_ratio > 1 - MIN_GAIN:
        if not named:
            yield continued(f"none of {considered} on these GPUs is clearly faster", Weight.BEST)
        return
    if any(entry.step_ratio <= found.step_ratio * (1 + MIN_GAIN) for entry in named):
        return
    text = f"→ {found.what}: {found.tflops_per_gpu:.0f} TFLOP/s/GPU, {effect(found)}"
    flags = f" ({' '.join(found.flags)})" if found.flags else ""
    whole = f"{text}, best of {considered}{flags}"
    yield Line(label="best", text=whole, brief=f"{text}, best of {considered}", weight=Weight.SECOND, topic="change")
