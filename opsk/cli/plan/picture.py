"""How is the answer of ``opsk plan`` shown to people?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from opsk.cli.plan.table import add_row, table_of, words_of
from opsk.cli.predict.picture import checkpoint_words, run_words
from opsk.text import escape, format_bytes, format_duration, format_share, to_json_values
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


_WIDTH_WITHOUT_TERMINAL = 110
_NARROW, _NARROWER = 100, 70
"""Below these widths the table of plans has fewer columns, so that the plans themselves stay on a line."""
_MARKS = {"fits": ("✓", "green"), "tight": ("!", "yellow"), "oom": ("✗", "red"), "unknown": ("?", "yellow")}
_SHOWN_REFUSED = 3
_HARDLY = 0.005
"""A plan that is faster by less is not worth a risk."""


def picture(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what a search found for people, on stdout where no console is given."""
    shown = to_json_values(document)
    if console is None:
        console = Console(highlight=False, soft_wrap=False)
        if not console.is_terminal:
            console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(_headline(shown), style="bold")
    console.print(_counts(shown))
    for block in (*_answer(shown, console.width), *_refused(shown), *more_blocks(shown), *_assumed(shown)):
        # what is to be pasted stays on its line, however long
        console.print(block, soft_wrap=isinstance(block, Text) and bool(block.no_wrap))


def _headline(shown: Mapping[str, Any]) -> Text:
    """Return what was asked."""
    model, cluster = shown["model"], shown["cluster"]
    counts = [one["gpus"] for one in shown.get("by_gpus", ())] or [shown["gpus"]]
    words = [
        model["name"],
        f"{' or '.join(map(str, counts))} × {cluster['gpu']} ({cluster['name']})",
        f"batch {shown['global_batch']}",
        f"seq {model['seq']}",
        *(f"{name.replace('_', ' ')} {_word(values)}" for name, values in shown["fixed"].items()),
        *([shown["framework"]] if shown["framework"] != "any" else []),
        *([f"{format_bytes(shown['memory_margin_bytes'])} left free"] if shown["memory_margin_bytes"] else []),
    ]
    return Text(escape(" · ".join(words)))


def _word(values: Sequence[Any]) -> str:
    """Return the values that an axis is held to."""
    names = {True: "yes", False: "no"}
    return " or ".join(names[value] if isinstance(value, bool) else str(value) for value in values)


def _counts(shown: Mapping[str, Any]) -> Text:
    """Return how the space was searched."""
    can_run = f"{shown['feasible']:,}{'' if shown['feasible_is_exact'] else ' of those evaluated'} can run"
    left = shown["space"] - shown["evaluated"] - shown["bounded"]
    words = f"{shown['space']:,} plans: {shown['evaluated']:,} evaluated, {shown['bounded']:,} bounded away"
    if shown["interrupted"] and left:
        words += f", {left:,} not looked at (interrupted: the best so far)"
    elif shown["interrupted"]:
        words += " (interrupted after the search)"
    return Text(f"{words}, in {shown['seconds']:.2f} s; {can_run if shown['best'] else 'none can run'}")


def _answer(shown: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield the table of plans and what a person should know of it, or that there is none."""
    yield Text()
    if not shown["best"]:
        yield Text(f"No plan fits into {format_bytes(shown['capacity_bytes'])} a GPU.", style="red")
        return
    gain = _gain(shown)
    yield _plans(_listed(shown, gain), shown["capacity_bytes"], width)
    if not shown["best_fitting"]:
        yield Text("\nNone of them surely fits: each may run out of memory.", style="yellow")
    elif shown["best"][0]["verdict"] == "fits":
        yield Text("\nThe first is the fastest plan that there is.")
    elif gain < _HARDLY:
        yield Text("\nThe first is as fast as any plan that may run.")
    else:
        chance = format_share(shown["best"][0]["memory"]["fit_probability"])
        yield Text(f"\nThe last is {gain:.1%} faster than the first, but fits with a chance of {chance} only.")


def _gain(shown: Mapping[str, Any]) -> float:
    """Return how much less time a sequence takes with the fastest plan of all than with the fastest that surely fits.

    Batches may differ, so that steps alone cannot be compared.
    """
    if not shown["best_fitting"]:
        return 0.0
    first, sure = (
        one["time"]["step_s"]["expected"] / one["plan"]["global_batch"]
        for one in (shown["best"][0], shown["best_fitting"][0])
    )
    return float(1.0 - first / sure)


def _listed(shown: Mapping[str, Any], gain: float) -> list[Mapping[str, Any]]:
    """Return the plans of the table: those that surely fit, and the fastest of all where it is worth a thought."""
    sure = list(shown["best_fitting"])
    if not sure:
        return list(shown["best"])
    return sure if shown["best"][0]["verdict"] == "fits" or gain < _HARDLY else [*sure, shown["best"][0]]


def _plans(plans: Sequence[Mapping[str, Any]], capacity_bytes: float, width: int) -> Table:
    """Return the table of plans; GPUs and batch stand in it where they differ."""
    several = {name: len({one["plan"][name] for one in plans}) > 1 for name in ("gpus", "global_batch")}
    columns = {
        "GPUs": several["gpus"],
        "batch": several["global_batch"],
        **dict.fromkeys(("step", "MFU", f"GiB of {as_gib(capacity_bytes):.1f}", "fits"), True),
        "J/token": width >= _NARROWER,
        "plan": True,
        "run by": width >= _NARROW,
    }
    table = table_of(*(name for name, is_shown in columns.items() if is_shown))
    for one in plans:
        cells = zip(columns.values(), _cells(one), strict=True)
        add_row(table, *(cell for is_shown, cell in cells if is_shown))
    return table


def _cells(one: Mapping[str, Any]) -> tuple[str | Text, ...]:
    """Return what every column says of a plan."""
    mark, style = _MARKS[one["verdict"]]
    memory = one["memory"]
    return (
        str(one["plan"]["gpus"]),
        str(one["plan"]["global_batch"]),
        format_duration(one["time"]["step_s"]["expected"]),
        format_share(one["time"]["mfu"]["expected"]),
        f"{as_gib(memory['needed_bytes']['expected']):.1f}",
        Text(f"{mark} {format_share(memory['fit_probability'])}", style=style),
        f"{one['energy']['j_per_token']['expected']:.3g}",
        words_of(one["plan"]),
        ", ".join(one["frameworks"]) or "-",
    )


def _refused(shown: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the plans that would be faster if they fitted."""
    if not shown["refused"]:
        return
    yield Text("\nFaster, but out of memory" if shown["best"] else "\nNearest to fitting", style="bold")
    for one in shown["refused"][:_SHOWN_REFUSED]:
        yield Text(escape(f"{format_duration(one['step_s'])}  {words_of(one['plan'])}: {one['why']}"))


def _assumed(shown: Mapping[str, Any]) -> Iterator[Text]:
    """Yield what nobody gave."""
    if shown["assumed"]:
        words = "; ".join(f"{one['field']} {one['value']} ({one['why']})" for one in shown["assumed"])
        yield Text()
        yield Text(escape(f"assumed: {words}"), style="dim", overflow="fold")
