"""Renders the table of the plans to choose from, with what each is the best in and what its prediction rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opsk.planning.search.choices import LIKE_WITHIN, SIMPLER_WITHIN, Role
from opsk.text import escape, format_change, format_duration, format_share
from opsk.units import as_gib

_WORDS = ("plan", "change", "run by")
"""Columns of words are left-aligned; the others are numbers, which are never wrapped."""
_NARROW, _NARROWER = 100, 70
"""Below these widths the table of plans has fewer columns, so that the plans themselves stay on a line."""
_MARKS = {"fits": ("✓", "green"), "tight": ("!", "yellow"), "oom": ("✗", "red"), "unknown": ("?", "yellow")}
_CLAIM = 0.1
"""A plan of which no run was measured and that is predicted to be faster by more than this is a claim to be tried."""
_ROLES: Mapping[str, str] = {
    Role.TAKE: "take this",
    Role.FASTEST: "the fastest",
    Role.SIMPLEST: f"the simplest within {SIMPLER_WITHIN:.0%}",
    Role.CONVENTIONAL: "plain TP, PP, EP, DP",
    Role.ROOMIEST: "the most memory left",
    Role.WITHOUT_CP: "the best without CP",
}
_AXES: Mapping[str, str] = {"cp": "CP", "micro_batch": "mbs", "vpp": "VPP", "recompute_layers": "layers recomputed"}
_EXPLANATION = (
    "Compared by speed times the chance to fit; ≈ is as fast as far as can be known. runs: measured runs of such a "
    "plan (software, kind of model, axes, sharding) on this generation of GPUs + on others."
)


def format_plan(plan: Mapping[str, Any]) -> str:
    """Return the axes of a plan in short form: ``TP8 PP16×2 DP32 mbs 1 zero1 SP recompute full 3 a stage``."""
    pipeline = f"PP{plan['pp']}" + (f"×{plan['vpp']}" if plan["vpp"] > 1 else "") if plan["pp"] > 1 else ""
    ends = [str(plan[name]) for name in ("first_stage_layers", "last_stage_layers") if plan[name]]
    sharding = plan["sharding"] + (f"/{plan['shard_gpus']}" if plan["shard_gpus"] else "")
    recompute = plan["recompute"] + (f" {plan['recompute_layers']} a stage" if plan["recompute_layers"] else "")
    words = [
        *(f"{axis.upper()}{plan[axis]}" for axis in ("tp",) if plan[axis] > 1),
        pipeline,
        *(f"{axis.upper()}{plan[axis]}" for axis in ("cp", "ep", "dp") if plan[axis] > 1),
        f"ETP{plan['etp']}" if plan["etp"] else "",
        f"mbs {plan['micro_batch']}",
        sharding if plan["sharding"] != "none" else "",
        "SP" if plan["sequence_parallel"] else "",
        f"recompute {recompute}" if plan["recompute"] != "none" else "",
        plan["schedule"] if plan["schedule"] != "1f1b" else "",
        f"ends {'+'.join(ends)} layers" if ends else "",
    ]
    return " ".join(word for word in words if word)


def build_table(*columns: str) -> Table:
    """Return a table with these columns, and no rows."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        if name in _WORDS:
            table.add_column(Text(name), justify="left", overflow="fold")
        else:
            table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """Add a row; plain strings are escaped."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(escape(cell)) for cell in cells))


def render_choices(shown: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield the table of plans, a line on each, and what all lines mean."""
    choices = shown["choices"]
    yield _build_plan_table(choices, shown, width)
    if not shown["best_fitting"]:
        yield Text("\nNone of them surely fits: each may run out of memory.", style="yellow")
    yield Text()
    for number, choice in enumerate(choices, start=1):
        if remarks := format_remarks(choice):
            yield Text(escape(f"{number} {remarks}"))
    if missing := _list_missing(shown):
        yield Text(escape(f"* {_name_framework(shown)} has no option for: {'; '.join(missing)}"), style="yellow")
    words = _EXPLANATION
    if shown.get("releases"):
        words += f" Searched: plans of {', '.join(shown['releases'].values())}; --framework any is for theory."
    yield Text(escape(words), style="dim")


def _build_plan_table(plans: Sequence[Mapping[str, Any]], shown: Mapping[str, Any], width: int) -> Table:
    """Return the table of plans; GPUs and batch are columns where they differ."""
    incomplete = _name_framework(shown) if _list_missing(shown) else ""
    several = {name: len({plan["plan"][name] for plan in plans}) > 1 for name in ("gpus", "global_batch")}
    columns = {
        "": True,
        "GPUs": several["gpus"],
        "batch": several["global_batch"],
        **dict.fromkeys(("step", "MFU", f"GiB of {as_gib(shown['capacity_bytes']):.1f}", "fits"), True),
        "J/token": width >= _NARROW,
        "runs": width >= _NARROWER,
        "plan": True,
        "run by": width >= _NARROW,
    }
    table = build_table(*(name for name, is_shown in columns.items() if is_shown))
    for number, plan in enumerate(plans, start=1):
        cells = zip(
            columns.values(),
            (str(number), *_format_cells(plan, _list_frameworks(plan, incomplete, shown))),
            strict=True,
        )
        add_row(table, *(cell for is_shown, cell in cells if is_shown))
    return table


def _name_framework(shown: Mapping[str, Any]) -> str:
    """Return the framework whose settings are printed, empty where none are."""
    return str((shown.get("settings") or {}).get("framework") or "")


def _list_missing(shown: Mapping[str, Any]) -> Sequence[str]:
    """Return the features of the model for which the framework whose settings are printed has no option."""
    missing: Sequence[str] = (shown.get("settings") or {}).get("missing", ())
    return missing


def _list_frameworks(plan: Mapping[str, Any], incomplete: str, shown: Mapping[str, Any]) -> str:
    """Return what runs a plan; with a star where it has no option for a part of the model."""
    names = list(plan["frameworks"])
    if incomplete and shown["framework"] == incomplete and incomplete not in names:
        names.append(incomplete)
    return ", ".join(f"{name}*" if name == incomplete else name for name in names) or "-"


def _format_cells(plan: Mapping[str, Any], frameworks: str) -> tuple[str | Text, ...]:
    """Return the cells of a plan; ``frameworks`` are those that run it."""
    mark, style = _MARKS[plan["verdict"]]
    memory = plan["memory"]
    return (
        str(plan["plan"]["gpus"]),
        str(plan["plan"]["global_batch"]),
        format_duration(plan["time"]["step_s"]["expected"]),
        format_share(plan["time"]["mfu"]["expected"]),
        f"{as_gib(memory['needed_bytes']['expected']):.1f}",
        Text(f"{mark} {format_share(memory['fit_probability'])}", style=style),
        f"{plan['energy']['j_per_token']['expected']:.3g}",
        f"{plan['runs']}+{plan['runs_elsewhere']}",
        format_plan(plan["plan"]),
        frameworks,
    )


def format_remarks(choice: Mapping[str, Any]) -> str:
    """Return in what a plan is the best, how it compares with the first, and what that rests on."""
    roles = ", ".join(_ROLES[role] for role in choice["roles"])
    difference = "" if Role.TAKE in choice["roles"] else _format_difference(choice)
    evidence = "" if _is_measured(choice) else "no such run was measured"
    return "; ".join(part for part in (roles, difference, evidence, *_list_details(choice)) if part)


def _is_measured(choice: Mapping[str, Any]) -> bool:
    """Return whether any run of that kind was measured."""
    return bool(choice["runs"] + choice["runs_elsewhere"])


def _format_difference(choice: Mapping[str, Any]) -> str:
    """Return how a plan compares with the first."""
    slower_by = choice["slower_by"]
    change = format_change(slower_by, more="slower", less="faster", same="as fast")
    words = f"{change}{' ≈' if choice['is_tied'] else ''}"
    if slower_by < -_CLAIM and not _is_measured(choice):
        return f"{words} as predicted, a claim to be tried and not a fact"
    return words


def _list_details(choice: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variants of a plan, and the features that are new, slow or not tested."""
    variants = choice["variants"]
    if variants["count"]:
        axes = ", ".join(_format_values(axis, sizes) for axis, sizes in variants["values"].items())
        count = "a variant" if variants["count"] == 1 else f"{variants['count']} variants"
        yield f"{count} within {LIKE_WITHIN:.0%}{f': {axes}' if axes else ' with other end stages'}"
    framework = next(iter(choice["frameworks"]), "")
    for feature in choice["features"]:
        if feature["framework"] == framework and feature["standing"] != "usual":
            yield f"{feature['standing']} there: {feature['name']}"
        elif feature["framework"] == framework and Role.TAKE in choice["roles"]:
            yield f"{feature['name']} since {feature['since']}"


def _format_values(axis: str, sizes: Sequence[int]) -> str:
    """Return the values that an axis takes: ``CP 1 to 4``; of recomputed layers 0 is all."""
    if axis == "recompute_layers" and sizes[0] == 0:
        return f"{_AXES[axis]} {sizes[1]} to all"
    return f"{_AXES[axis]} {sizes[0]} to {sizes[-1]}"
