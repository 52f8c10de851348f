"""What of ``opsk plan`` is shown below its plans: what would help, choices, what if, and settings to paste?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from opsk.cli.best_plan.table import add_row, table_of
from opsk.cli.best_plan.words import words_of
from opsk.cli.prediction_picture import checkpoint_words, run_words
from opsk.text import escape, format_duration, format_share
from opsk.units import as_gib

_CHOICES = 12
"""So many plans of a front are shown, spread over it; ``--json`` has all."""
_MEGA, _KILO = 1e6, 1e3


def more_blocks(shown: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the blocks that the document has."""
    if not shown["best"] and "nearest" in shown:
        yield from _would_do(shown["nearest"], shown.get("fits_with") or ())
    if "run" in shown:
        yield Text.assemble("\nThe whole run with the first: ", run_words(shown["run"]))
    if "checkpoint" in shown:
        yield Text.assemble("Saving: ", checkpoint_words(shown["checkpoint"]))
    if shown.get("by_gpus"):
        yield from _by_gpus(shown["by_gpus"])
    if shown.get("pareto"):
        yield from _choices(shown["pareto"])
    if shown.get("what_if"):
        yield from _what_if(shown["what_if"])
    if shown.get("settings"):
        yield from _settings(shown["settings"])
    if shown.get("script"):
        yield from _script(shown["script"])


def _title(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _would_do(nearest: Mapping[str, Any] | None, fits_with: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield how many GPUs would do, and which one constraint stands in the way."""
    if nearest:
        step = format_duration(nearest["step_s"])
        yield _title(f"{nearest['gpus']} GPUs would do: {escape(words_of(nearest['plan']))}, {step} a step")
    elif not fits_with:
        yield _title("A thousand times the GPUs would not do: ask for other states, another optimizer or offload.")
    for one in fits_with:
        name = one["constraint"].replace("_", " ")
        other = f"{name} {' or '.join(one['nearest'])}" if one["nearest"] else f"{name} left out"
        yield Text(escape(f"In place of {name} {one['asked']}: some plan may run with {other}"))


def _choices(front: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the choices between time, memory, energy and GPUs."""
    every = max(-(-len(front) // _CHOICES), 1)
    some = front[::every]
    which = "" if len(some) == len(front) else f", {len(some)} of {len(front)} shown"
    yield _title(f"Choices between time, memory, energy and GPUs{which}: no other plan is better by more than 1 %")
    table = table_of("GPUs", "step", "memory", "a step", "fits", "plan")
    for one in some:
        add_row(table, *_numbers(one), words_of(one["plan"]))
    yield table


def _by_gpus(counts: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the plan to take with every number of GPUs."""
    yield _title("The plan to take with each number of GPUs")
    table = table_of("GPUs", "batch", "step", "memory", "a step", "fits", "plan")
    for one in counts:
        best = one["best"]
        if best is None:
            add_row(table, str(one["gpus"]), "", "none", "", "", "", "no plan can run")
            continue
        gpus, *others = _numbers(best)
        add_row(table, gpus, str(best["plan"]["global_batch"]), *others, words_of(best["plan"]))
    yield table


def _numbers(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a plan is chosen by: GPUs, time, memory, energy and the chance to fit."""
    joules = one["step_j"]
    energy = f"{joules / _MEGA:.3g} MJ" if joules >= _MEGA else f"{joules / _KILO:.3g} kJ"
    return (
        str(one["gpus"]),
        format_duration(one["step_s"]),
        f"{as_gib(one['needed_bytes']):.1f} GiB",
        energy,
        format_share(one["fit_probability"]),
    )


def _what_if(answers: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield what each change would do to the step of the best plan."""
    yield _title("What if: the best plan after each change, against the first of the table")
    table = table_of("change", "step", "", "plan")
    for one in answers:
        change = f"{one['what'].replace('_', ' ')} {one['value']}"
        if one["step_s"] is None:
            add_row(table, change, "none", "", "no plan can run")
            continue
        chance = "" if one["fits"] else f" (fits with {format_share(one['fit_probability'])})"
        step = format_duration(one["step_s"])
        add_row(table, change, step, _difference(one["relative"]), words_of(one["plan"]) + chance)
    yield table


def _difference(relative: float) -> str:
    """Return how much longer or shorter a step takes."""
    percent = 100.0 * (relative - 1.0)
    return "same" if abs(percent) < 0.05 else f"{percent:+.1f} %"


def _settings(settings: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the options to paste, each on one line however long it is."""
    if settings["refused"]:
        who = f"{settings['framework']} cannot" if settings["framework"] else "No framework can"
        yield Text()
        yield Text(escape(f"{who} run the first as it is: {'; '.join(settings['refused'])}"), style="yellow")
        if not settings["framework"]:
            yield Text("--framework NAME searches only what one can run.", style="dim")
        return
    yield _title(escape(f"To run the first with {settings['framework']} ({settings['release']})"))
    for line in settings["pasted"].rstrip().splitlines():
        yield Text(escape(line), no_wrap=True)
    for note in (*settings["notes"], *(f"not expressed: {one}" for one in settings["missing"])):
        yield Text(escape(f"note: {note}"), style="dim", overflow="fold")


def _script(script: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield what became of the script."""
    yield Text()
    if script["why"] is None:
        yield Text(escape(f"wrote {script['file']}: sbatch it with your paths for {script['framework']} filled in"))
    else:
        yield Text(escape(f"no script was written: {script['why']}"), style="yellow")
