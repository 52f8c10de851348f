"""Prints remap options for people: affected ranks, options, cost, and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from opsk.remapping.execution import ExecutionResult
from opsk.text import escape, format_change, format_duration, to_json_values

WIDTH = 80
_MAX_SHOWN = 4
_MAX_RANKS = 8
_MAX_ROWS = 8
_MAX_COLUMNS = 16
_MAX_NODE_CHARS = 16


def print_options(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk remap`` for people."""
    shown = to_json_values(document)
    lines = [*_format_head(shown), ""]
    if shown["nothing_to_do"]:
        lines += _wrap_text(f"nothing to do: {shown['nothing_to_do']}")
    else:
        lines += [*_format_damage(shown), "", *_format_table(shown), ""]
        common = _find_common([option["needs"] for option in shown["options"]])
        for option in shown["options"][:_MAX_SHOWN]:
            lines += [*_format_option(option, common), ""]
        if len(shown["options"]) > _MAX_SHOWN:
            lines += [f"... commands of {len(shown['options']) - _MAX_SHOWN} more options: --json", ""]
        lines += [line for need in common for line in _wrap_text(f"every option needs: {need}", "    ")]
        lines += _format_refused(shown)
    lines += _format_remarks(shown)
    click.echo("\n".join(lines).rstrip())


def print_applied(applied: ExecutionResult) -> None:
    """Print the result of an applied option."""
    shown = to_json_values(applied)
    lines = ["", *_wrap_text(f"applied {shown['kind']}: {shown['title']}")]
    if shown["rank_file"]:
        lines += _wrap_text(f"wrote {shown['rank_file']}")
    lines += [line for text in shown["done"] for line in _format_command("done", text)]
    if shown["is_outdated"]:
        lines += _wrap_text(f"NOTHING WAS RUN, the cluster has changed: {shown['said']}")
    if shown["refused"]:
        lines += [*_format_command("REFUSED", shown["refused"]), *_wrap_text(f"    {shown['said']}")]
    lines += [line for text, who in shown["left"] for line in _format_command(who, text)]
    if shown["journal"]:
        lines += _wrap_text(f"journal {shown['journal']} (opsk remap --journal, --resume, --undo)")
    click.echo("\n".join(lines))


def _format_head(shown: Mapping[str, Any]) -> list[str]:
    plan = shown["plan"]
    axes = [f"{name.upper()}{plan[name]}" for name in ("tp", "cp", "ep", "pp", "dp") if plan[name] > 1]
    gpus = plan["tp"] * plan["pp"] * plan["cp"] * plan["dp"]
    job = "the job" if shown["job"] == "JOBID" else f"job {shown['job']}"
    what = shown["what"]
    return [
        *_wrap_text(f"failed: {', '.join(shown['failed'])}"),
        *_wrap_text(f"{job}, {shown['model']}: {gpus} GPUs, {' '.join(axes) or 'one GPU'}, on {shown['fabric']}"),
        f"today {_format_step(shown['today'])} {'a step' if what == 'step' else 'of communication a step'}, "
        f"{_format_percent(shown['today']['rail_local_fraction'])} of the traffic on its rail; "
        f"Slurm {shown['slurm']['release']}",
    ]


def _format_damage(shown: Mapping[str, Any]) -> list[str]:
    damage = shown["damage"]
    dead = [rank for rank in damage["ranks"] if rank["is_dead"]]
    other = [rank for rank in damage["ranks"] if not rank["is_dead"]]
    lines = []
    if dead:
        lines += _wrap_text(f"affected:   {_format_ranks(dead)}")
    if other:
        lines += _wrap_text(f"affected:   {_format_ranks(other)}: their HCA has failed, their GPU has not")
    if damage["degraded"]:
        lines += _wrap_text(
            f"            as they are: {_format_step(damage['degraded'])} a step, {_format_loss(damage['degraded'])}"
        )
    return lines + _wrap_text(f"unaffected: {'; '.join(damage['works'])}")


def _format_ranks(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Return ranks with their GPUs and nodes."""
    places = [f"rank {rank['rank']} (GPU {rank['gpu']} of {rank['node']})" for rank in ranks[:_MAX_RANKS]]
    if len(ranks) > _MAX_RANKS:
        nodes = Counter(rank["node"] for rank in ranks)
        return f"{len(ranks)} ranks on {len(nodes)} nodes, {', '.join(list(nodes)[:4])}"
    return ", ".join(places)


def _format_table(shown: Mapping[str, Any]) -> list[str]:
    """Return one line an option."""
    lines = [f"{'':<3}{'option':<12}{'moves':>7}{'step':>10}{'loss':>9}{'rail':>9}{'down':>9}{'lost':>9}  what"]
    for option in shown["options"]:
        then = option["predicted"]
        lines.append(
            f"{option['number']:<3}{option['kind']:<12}{option['moved']:>7}{_format_step(then):>10}{_format_loss_percent(then):>9}"
            f"{_format_percent(then['rail_local_fraction']):>9}{format_duration(option['downtime_s']):>9}"
            f"{format_duration(option['lost_s']):>9}  {option['way']}"
        )
    horizon = format_duration(shown["horizon_s"])
    return [*lines, f"lost: downtime, steps done again and slower steps, expected over {horizon}"]


def _format_option(option: Mapping[str, Any], common: Collection[str]) -> Iterator[str]:
    """Yield the lines of one option, without the needs common to all."""
    yield from _wrap_text(f"{option['number']}  {option['kind']}: {option['title']}")
    for text in (*option["changes"], *option["why"]):
        yield from _wrap_text(f"   {text}", "   ")
    if option["rendezvous"]["changes"]:
        names = option["rendezvous"]
        yield from _wrap_text(f"   MASTER_ADDR changes: {names['before']} to {names['after']}", "   ")
    if option["goodput"] is not None:
        yield from _wrap_text(
            f"   goodput {_format_percent(option['goodput'])} over {format_duration(option['goodput_over_s'])}", "   "
        )
    yield from _format_slots(option["preview"])
    for node, gpus in list(option["gpu_order"].items())[:_MAX_SHOWN]:
        yield from _wrap_text(f"   on {node}: CUDA_VISIBLE_DEVICES={gpus}", "   ")
    for command in option["commands"]:
        who = "in the job" if command["where"] == "in the job" else command["who"]
        when = "later, " if command["later"] else f"when {command['when']}, " if command["when"] else ""
        yield from _format_command(f"{when}{who}", command["text"])
    for need in option["needs"]:
        if need in common:
            continue
        yield from _wrap_text(f"   needs: {need}", "     ")


def _format_slots(slots: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rank placement before and after, one line per node; x marks what failed."""
    if not slots["nodes"] or len(slots["columns"]) > _MAX_COLUMNS:
        return
    rows = list(zip(slots["nodes"], slots["before"], slots["after"], slots["failed"], strict=True))
    wide = max(len(str(rank)) for _, before, after, _ in rows for rank in (*before, *after)) + 2
    wide = max(wide, *(len(name.rpartition(" ")[2]) + 1 for name in slots["columns"]))
    name = min(max(len(node) for node, *_ in rows), _MAX_NODE_CHARS)
    if name + 2 * wide * len(slots["columns"]) > WIDTH + _MAX_NODE_CHARS:
        return
    kind = "rail" if all(column.startswith("rail ") for column in slots["columns"]) else "gpu"
    head = "".join(f"{column.rpartition(' ')[2]:>{wide}}" for column in slots["columns"])
    yield f"   {kind:<{name}} {head}  ->{head}"
    for node, before, after, failed in rows[:_MAX_ROWS]:
        cells = [
            "".join(f"{_format_slot(*slot):>{wide}}" for slot in zip(ranks, failed, strict=True))
            for ranks in (before, after)
        ]
        yield escape(f"   {node[:name]:<{name}} {cells[0]}  ->{cells[1]}")
    if len(rows) > _MAX_ROWS:
        yield f"   ... {len(rows) - _MAX_ROWS} more nodes: --json"


def _format_slot(rank: int, failed: bool) -> str:
    return "x" if failed and rank < 0 else f"{rank}x" if failed else "." if rank < 0 else str(rank)


def _find_common(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the entries common to all lists; empty for fewer than two lists."""
    if len(lists) < 2:
        return []
    return [entry for entry in lists[0] if all(entry in other for other in lists[1:])]


def _format_command(who: str, text: str) -> list[str]:
    """Return a command; it is never wrapped, so that it can be copied."""
    return [escape(f"   [{who}]"), escape(f"      {text}")]


def _format_refused(shown: Mapping[str, Any]) -> list[str]:
    lines = [line for entry in shown["refused"] for line in _wrap_text(f"no {entry['kind']}: {entry['why']}", "    ")]
    return [*lines, ""] if lines else []


def _format_remarks(shown: Mapping[str, Any]) -> list[str]:
    remarks = [f"note: {note}" for note in shown["notes"]]
    remarks += [f"assumed: {item['field']} = {item['value']} ({item['why']})" for item in shown["assumed"]]
    lines = [line for text in remarks for line in _wrap_text(text, "    ")]
    return ["", *lines] if lines and shown["nothing_to_do"] else lines


def _format_step(predicted: Mapping[str, Any]) -> str:
    return format_duration(predicted["step_s"]) if predicted["step_s"] else "-"


def _format_loss(predicted: Mapping[str, Any]) -> str:
    return format_change(predicted["loss"], more="slower", less="faster", same="as fast as today")


def _format_loss_percent(predicted: Mapping[str, Any]) -> str:
    loss = predicted["loss"]
    if abs(loss) < 5e-4:
        return "0 %"
    return f"{loss:.1%}" if loss > 0 else f"gain {-loss:.0%}"


def _format_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.4g} %"


def _wrap_text(text: str, indent: str = "        ") -> list[str]:
    return wrap(escape(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
