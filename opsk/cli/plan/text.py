"""Prints the answer of ``opsk plan`` for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from opsk.cli.plan.plan_table import add_row, build_table, format_plan, render_choices
from opsk.cli.predict.text import format_checkpoint, format_run
from opsk.text import escape, format_bytes, format_change, format_duration, format_share, to_json_values
from opsk.units import as_gib

_MAX_CHOICES = 12
"""Maximum number of plans shown of a front, spread over it; ``--json`` has all."""
_MEGA, _KILO = 1e6, 1e3
_WIDTH_WITHOUT_TERMINAL = 110
_MAX_SHOWN_REFUSED = 3
_MIN_GAIN = 0.005
"""A smaller gain is not worth a risk."""


def build_more_blocks(shown: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the blocks that the document has."""
    if not shown["best"] and "nearest" in shown:
        yield from _render_nearest(shown["nearest"], shown.get("fits_with") or ())
    if "run" in shown:
        yield Text.assemble("\nThe whole run with the first: ", format_run(shown["run"]))
    if "checkpoint" in shown:
        yield Text.assemble("Saving: ", format_checkpoint(shown["checkpoint"]))
    if shown.get("by_gpus"):
        yield from _render_by_gpus(shown["by_gpus"])
    if shown.get("pareto"):
        yield from _render_choices(shown["pareto"])
    if shown.get("what_if"):
        yield from _render_what_if(shown["what_if"])
    if shown.get("settings"):
        yield from _render_settings(shown["settings"])
    if shown.get("script"):
        yield from _render_script(shown["script"])


def _build_title(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _render_nearest(
    nearest: Mapping[str, Any] | None, fits_with: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """Yield the number of GPUs that would be enough, and single constraints that prevent a fit."""
    if nearest:
        step = format_duration(nearest["step_s"])
        yield _build_title(f"{nearest['gpus']} GPUs would do: {escape(format_plan(nearest['plan']))}, {step} a step")
    elif not fits_with:
        yield _build_title(
            "A thousand times the GPUs would not do: ask for other states, another optimizer or offload."
        )
    for relaxation in fits_with:
        name = relaxation["constraint"].replace("_", " ")
        other = f"{name} {' or '.join(relaxation['nearest'])}" if relaxation["nearest"] else f"{name} left out"
        yield Text(escape(f"In place of {name} {relaxation['asked']}: some plan may run with {other}"))


def _render_choices(front: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the choices between time, memory, energy and GPUs."""
    every = max(-(-len(front) // _MAX_CHOICES), 1)
    selected = front[::every]
    which = "" if len(selected) == len(front) else f", {len(selected)} of {len(front)} shown"
    yield _build_title(
        f"Choices between time, memory, energy and GPUs{which}: no other plan is better by more than 1 %"
    )
    table = build_table("GPUs", "step", "memory", "a step", "fits", "plan")
    for candidate in selected:
        add_row(table, *_format_numbers(candidate), format_plan(candidate["plan"]))
    yield table


def _render_by_gpus(counts: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the best plan for each number of GPUs."""
    yield _build_title("The plan to take with each number of GPUs")
    table = build_table("GPUs", "batch", "step", "memory", "a step", "fits", "plan")
    for count in counts:
        best = count["best"]
        if best is None:
            add_row(table, str(count["gpus"]), "", "none", "", "", "", "no plan can run")
            continue
        gpus, *others = _format_numbers(best)
        add_row(table, gpus, str(best["plan"]["global_batch"]), *others, format_plan(best["plan"]))
    yield table


def _format_numbers(candidate: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the numbers that rank a plan: GPUs, time, memory, energy and the chance to fit."""
    joules = candidate["step_j"]
    energy = f"{joules / _MEGA:.3g} MJ" if joules >= _MEGA else f"{joules / _KILO:.3g} kJ"
    return (
        str(candidate["gpus"]),
        format_duration(candidate["step_s"]),
        f"{as_gib(candidate['needed_bytes']):.1f} GiB",
        energy,
        format_share(candidate["fit_probability"]),
    )


def _render_what_if(answers: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the effect of each change on the step of the best plan."""
    yield _build_title("What if: the fastest plan that surely fits after each change, against that without it")
    table = build_table("change", "step", "", "plan")
    for item in answers:
        change = f"{item['what'].replace('_', ' ')} {item['value']}"
        if item["step_s"] is None:
            add_row(table, change, "none", "", "no plan can run")
            continue
        chance = "" if item["fits"] else f" (fits with {format_share(item['fit_probability'])})"
        step = format_duration(item["step_s"])
        add_row(table, change, step, _format_difference(item["relative"]), format_plan(item["plan"]) + chance)
    yield table


def _format_difference(relative: float) -> str:
    """Return how much longer or shorter a step takes."""
    return format_change(relative - 1.0, more="longer", less="shorter")


def _render_settings(settings: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the options to paste, each on one line however long it is."""
    if settings["refused"]:
        who = f"{settings['framework']} cannot" if settings["framework"] else "No framework can"
        yield Text()
        yield Text(escape(f"{who} run the first as it is: {'; '.join(settings['refused'])}"), style="yellow")
        if not settings["framework"]:
            yield Text("--framework NAME searches only what one can run.", style="dim")
        return
    yield _build_title(escape(f"To run the first with {settings['framework']} ({settings['release']})"))
    for line in settings["pasted"].rstrip().splitlines():
        yield Text(escape(line), no_wrap=True)
    for note in (*settings["notes"], *(f"not expressed: {option}" for option in settings["missing"])):
        yield Text(escape(f"note: {note}"), style="dim", overflow="fold")


def _render_script(script: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the result of writing the script."""
    yield Text()
    if script["why"] is None:
        yield Text(escape(f"wrote {script['file']}: sbatch it with your paths for {script['framework']} filled in"))
    else:
        yield Text(escape(f"no script was written: {script['why']}"), style="yellow")


def print_answer(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the result of a search for people, on stdout where no console is given."""
    shown = to_json_values(document)
    if console is None:
        console = Console(highlight=False, soft_wrap=False)
        if not console.is_terminal:
            console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(_format_headline(shown), style="bold")
    console.print(_format_counts(shown))
    for block in (
        *_render_answer(shown, console.width),
        *_render_refused(shown),
        *build_more_blocks(shown),
        *_render_assumed(shown),
    ):
        # lines for pasting are not wrapped
        console.print(block, soft_wrap=isinstance(block, Text) and bool(block.no_wrap))


def _format_headline(shown: Mapping[str, Any]) -> Text:
    """Return the headline: the request."""
    model, cluster = shown["model"], shown["cluster"]
    counts = [count["gpus"] for count in shown.get("by_gpus", ())] or [shown["gpus"]]
    words = [
        model["name"],
        f"{' or '.join(map(str, counts))} × {cluster['gpu']} ({cluster['name']})",
        f"batch {shown['global_batch']}",
        f"seq {model['seq']}",
        *(f"{name.replace('_', ' ')} {_format_values(values)}" for name, values in shown["fixed"].items()),
        *([shown["framework"]] if shown["framework"] != "any" else []),
        *([f"{format_bytes(shown['memory_margin_bytes'])} left free"] if shown["memory_margin_bytes"] else []),
    ]
    return Text(escape(" · ".join(words)))


def _format_values(values: Sequence[Any]) -> str:
    """Return the fixed values of an axis."""
    names = {True: "yes", False: "no"}
    return " or ".join(names[value] if isinstance(value, bool) else str(value) for value in values)


def _format_counts(shown: Mapping[str, Any]) -> Text:
    """Return how the space was searched."""
    can_run = f"{shown['feasible']:,}{'' if shown['feasible_is_exact'] else ' of those evaluated'} can run"
    left = shown["space"] - shown["evaluated"] - shown["bounded"]
    words = f"{shown['space']:,} plans: {shown['evaluated']:,} evaluated, {shown['bounded']:,} bounded away"
    if shown["interrupted"] and left:
        words += f", {left:,} not looked at (interrupted: the best so far)"
    elif shown["interrupted"]:
        words += " (interrupted after the search)"
    return Text(f"{words}, in {shown['seconds']:.2f} s; {can_run if shown['best'] else 'none can run'}")


def _render_answer(shown: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield the table of plans and its explanation, or that there is none."""
    yield Text()
    if not shown["best"]:
        yield Text(f"No plan fits into {format_bytes(shown['capacity_bytes'])} a GPU.", style="red")
        return
    yield from render_choices(shown, width)


def _find_risk(shown: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fastest plan that may fit, where it is faster than the first, and too unlikely to be in the table.

    Batches may differ, so that steps cannot be compared directly.
    """
    if not shown["best"] or not shown.get("choices"):
        return None
    risk, first = shown["best"][0], shown["choices"][0]
    risk_s, first_s = (plan["time"]["step_s"]["expected"] / plan["plan"]["global_batch"] for plan in (risk, first))
    is_listed = any(choice["plan"] == risk["plan"] for choice in shown["choices"])
    return None if is_listed or 1.0 - risk_s / first_s < _MIN_GAIN else risk


def _render_refused(shown: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the plans that would be faster if they fitted."""
    risk = _find_risk(shown)
    if not shown["refused"] and risk is None:
        return
    yield Text("\nFaster, but may run out of memory" if shown["best"] else "\nNearest to fitting", style="bold")
    if risk is not None:
        chance = format_share(risk["memory"]["fit_probability"])
        step = format_duration(risk["time"]["step_s"]["expected"])
        yield Text(escape(f"{step}  {format_plan(risk['plan'])}: fits with a chance of {chance}"))
    for plan in shown["refused"][:_MAX_SHOWN_REFUSED]:
        yield Text(escape(f"{format_duration(plan['step_s'])}  {format_plan(plan['plan'])}: {plan['why']}"))


def _render_assumed(shown: Mapping[str, Any]) -> Iterator[Text]:
    """Yield the assumptions."""
    if shown["assumed"]:
        words = "; ".join(
            f"{assumption['field']} {assumption['value']} ({assumption['why']})" for assumption in shown["assumed"]
        )
        yield Text()
        yield Text(escape(f"assumed: {words}"), style="dim", overflow="fold")
