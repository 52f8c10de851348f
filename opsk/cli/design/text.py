"""Prints networks for people: cost, step times of models, best plans, and the conclusions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from opsk.text import escape, format_change, format_duration, to_json_values

_AXES = ("tp", "pp", "vpp", "cp", "ep", "dp")
_WIDTH = 120
"""Width in files and pipes, unless COLUMNS is set."""
_PARTS, _STEP = 72, 21
"""Characters of the part columns, and of the columns of one model."""
_UNITS = {"ratio": lambda value: f"{value:.1%}", "USD": lambda value: f"{value / 1e6:,.1f} M USD",
          "W": lambda value: f"{value / 1e6:,.2f} MW"}  # fmt: skip


def print_design(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk design`` for people."""
    shown = to_json_values(document)
    terminal = Console(highlight=False)
    fits = terminal.is_terminal or "COLUMNS" in os.environ
    console = terminal if fits else Console(highlight=False, width=_WIDTH)
    if shown["interrupted"]:
        console.print("[bold]interrupted: the results so far[/]\n")
    if shown["rows"]:
        for table in _build_network_tables(shown["rows"], console.width):
            console.print(table)
        for line in _format_plans(shown["rows"]):
            console.print(escape_markup(line))
    if shown["compared"]:
        _print_compared(console, shown["compared"])
    if shown["failures"]:
        console.print(_build_failure_table(shown["failures"]))
        for line in _explain_missing(shown["failures"]):
            console.print(escape_markup(line))
    if shown["verdict"]:
        console.print("\n[bold]What follows[/]")
        for sentence in shown["verdict"]:
            console.print(f"  · {escape_markup(escape(sentence))}")
    for line in _format_assumed(shown):
        console.print(f"[dim]{escape_markup(line)}[/]")


def _build_network_tables(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[Table]:
    """Yield the networks, a line each: parts and steps in one table, or in two where a line is too short for both."""
    sweeps = [name for name in dict.fromkeys(key for row in rows for key in row["sweep"]) if name != "oversubscription"]
    models = rows[0]["models"]
    longest = max(len(row["network"]) for row in rows)
    if longest + sum(len(name) + 2 for name in sweeps) + _PARTS + len(models) * _STEP <= width or not models:
        yield _build_table(rows, sweeps, parts=True, steps=True)
    else:
        yield _build_table(rows, sweeps, parts=True, steps=False)
        yield _build_table(rows, sweeps, parts=False, steps=True)


def _build_table(rows: Sequence[Mapping[str, Any]], sweeps: Sequence[str], *, parts: bool, steps: bool) -> Table:
    """Return one line a network, with its parts, its steps, or both."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network", no_wrap=True)
    for name in [*sweeps, *(_COLUMNS if parts else ())]:
        table.add_column(name, justify="right", no_wrap=True)
    for step in rows[0]["models"] if steps else ():
        named = f"{escape_markup(escape(step['model']))}\nbatch {step['global_batch']:,}"
        table.add_column(named, justify="right")
    groups = [tuple(row["sweep"].get(name) for name in sweeps) for row in rows]
    grouped = len(set(groups)) < len(rows)
    before = None
    for row, group in zip(rows, groups, strict=True):
        if before is not None and group != before and grouped:
            table.add_section()
        before = group
        table.add_row(
            row["network"],
            *(f"{row['sweep'].get(name, 0):g}" for name in sweeps),
            *(_format_parts(row) if parts else ()),
            *(_format_step(step) for step in (row["models"] if steps else ())),
        )
    return table


_COLUMNS = ("tiers", "switches", "transceivers", "M USD", "kW", "cost / power")


def _format_parts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a network; circuits and servers are listed with the transceivers."""
    others = [(row["circuit_ports"], "circuit ports"), (row["servers"], "servers")]
    more = "".join(f"\n{count:,} {what}" for count, what in others if count)
    return (
        str(row["tiers"]) if row["tiers"] else "–",
        f"{row['switches']:,}",
        f"{row['transceivers']:,}{more}",
        f"{row['cost_usd'] / 1e6:,.2f}",
        f"{row['power_w'] / 1e3:,.1f}",
        _format_savings(row["saved"]),
    )


def _format_savings(saved: Mapping[str, Any] | None) -> str:
    """Return how much less or more than the reference a network costs and draws."""
    if not saved:
        return "–"
    cost, power = (format_change(-saved[name], more="more", less="less") for name in ("cost", "power"))
    first, _, word = cost.partition(" ")
    return f"{first} / {power}" if word and power.endswith(word) else f"{cost} / {power}"


def _format_step(step: Mapping[str, Any]) -> str:
    """Return a step and its difference from the reference network."""
    if step["step_s"] is None:
        return "none"
    change = format_change(step["slower"] or 0.0, more="longer", less="shorter", same="")
    return f"{format_duration(step['step_s'])} {change}".rstrip()


def _format_plans(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the best plans of each model and their networks, or why there is none."""
    for index, first in enumerate(rows[0]["models"]):
        by_plan: dict[str, list[str]] = {}
        for row in rows:
            step = row["models"][index]
            text = _format_plan(step["plan"]) if step["plan"] else f"no plan: {escape(step['why'])}"
            by_plan.setdefault(text, []).append(_format_network(row))
        name = escape(first["model"])
        if len(by_plan) == 1:
            yield f"{name}, everywhere: {next(iter(by_plan))}"
            continue
        for text, where in by_plan.items():
            more = f" and {len(where) - 3} more" if len(where) > 3 else ""
            yield f"{name}, {', '.join(where[:3])}{more}: {text}"


def _format_network(row: Mapping[str, Any]) -> str:
    settings = [f"{name} {value:g}" for name, value in row["sweep"].items() if name != "oversubscription"]
    return f"{row['network']}{f' ({chr(44).join(settings)})' if settings else ''}"


def _format_plan(plan: Mapping[str, Any]) -> str:
    """Return a plan in short form."""
    axes = " ".join(f"{name.upper()}{plan[name]}" for name in _AXES if plan[name] > 1) or "DP1"
    recompute = "" if plan["recompute"] == "none" else f", recompute {plan['recompute']}"
    group = f" over {plan['shard_gpus']}" if plan["shard_gpus"] else ""
    schedule = f", {plan['schedule']}" if plan["pp"] > 1 else ""
    return f"{axes}, mbs {plan['micro_batch']}, {plan['sharding']}{group}{recompute}{schedule}"


def _print_compared(console: Console, compared: Sequence[Mapping[str, Any]]) -> None:
    """Print stated and computed values, section by section."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("stated where", no_wrap=True)
    table.add_column("what")
    table.add_column("stated", justify="right", no_wrap=True)
    table.add_column("computed", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("basis", style="dim")
    before = ""
    for entry in compared:
        if before and entry["section"] != before:
            table.add_section()
        table.add_row(
            entry["section"] if entry["section"] != before else "",
            escape_markup(entry["what"]),
            "" if entry["stated"] is None else _format_number(entry["stated"], entry["unit"]),
            _format_number(entry["computed"], entry["unit"]),
            _format_agreement(entry),
            escape_markup(entry["why"]),
        )
        before = entry["section"]
    console.print(table)


def _format_agreement(entry: Mapping[str, Any]) -> str:
    """Return whether the two numbers agree, and by which criterion."""
    if entry["agrees"] is None:
        return ""
    if entry["by"] == "sign":
        return "same sign" if entry["agrees"] else "[bold]other sign[/]"
    if entry["agrees"]:
        return "near" if entry["by"] == "near" else "agrees"
    return "[bold]differs[/]"


def _format_number(value: float | None, unit: str) -> str:
    """Return a number with its unit."""
    if value is None:
        return "–"
    return _UNITS[unit](value) if unit in _UNITS else f"{value:.4g} {unit}"


def _build_failure_table(failures: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of options after each failure, on each network."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title="After a failure, on small clusters (opsk remap)",
        title_justify="left",
    )
    table.add_column("what failed")
    table.add_column("network", no_wrap=True)
    table.add_column("K", justify="right")
    for name in ("best option", "lost in a day", "then"):
        table.add_column(name, justify="left" if name == "best option" else "right")
    table.add_column("other options")
    before = None
    for entry in failures:
        if before is not None and entry["case"] != before:
            table.add_section()
        options = entry["options"]
        best = options[0] if options else None
        table.add_row(
            entry["case"] if entry["case"] != before else "",
            entry["wiring"] + (" + optical" if entry["optical"] else ""),
            str(entry["hb_domain"]),
            f"{best['kind']}: {escape_markup(escape(best['title']))}" if best else "none",
            format_duration(best["lost_s"]) if best else "–",
            format_change(best["loss"], more="slower", less="faster", same="as fast") if best else "–",
            ", ".join(f"{option['kind']} {format_duration(option['lost_s'])}" for option in options[1:]),
        )
        before = entry["case"]
    return table


def _explain_missing(failures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why a network lacks an option that another one has after the same failure, and the paper's statement."""
    for case in dict.fromkeys(entry["case"] for entry in failures):
        same = [entry for entry in failures if entry["case"] == case]
        yield f"{case}: the paper: {same[0]['says']}"
        kinds = {option["kind"] for entry in same for option in entry["options"]}
        for entry in same:
            missing = kinds - {option["kind"] for option in entry["options"]} - {"optical"}
            for kind in sorted(missing & entry["refused"].keys()):
                where = entry["wiring"] + (" + optical" if entry["optical"] else "")
                if "no free node is known" not in entry["refused"][kind]:  # does not concern the job's own nodes
                    yield f"  {where} has no {kind}: {escape(entry['refused'][kind])}"


def _format_assumed(shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield the assumptions."""
    lines = [f"{entry['field']} = {entry['value']}: {entry['why']}" for entry in shown["assumed"]]
    lines += [line for row in shown["rows"] for line in row["assumes"]]
    if lines:
        yield "\nAssumed"
    for line in dict.fromkeys(lines):
        yield f"  {escape(str(line))}"
