"""How are options shown to people: what is hit, what can be done, what does it cost, and what is to be run?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from opsk.remapping.execution import Applied
from opsk.text import escape, format_duration, to_json_values

WIDTH = 80
_MOST_SHOWN = 4
_MOST_RANKS = 8
_MOST_ROWS = 8
_MOST_COLUMNS = 16
_LONGEST_NODE = 16


def picture(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk remap`` for people."""
    shown = to_json_values(document)
    lines = [*_head(shown), ""]
    if shown["nothing_to_do"]:
        lines += _folded(f"nothing to do: {shown['nothing_to_do']}")
    else:
        lines += [*_damage(shown), "", *_table(shown), ""]
        common = _common([option["needs"] for option in shown["options"]])
        for option in shown["options"][:_MOST_SHOWN]:
            lines += [*_option(option, common), ""]
        if len(shown["options"]) > _MOST_SHOWN:
            lines += [f"... commands of {len(shown['options']) - _MOST_SHOWN} more options: --json", ""]
        lines += [line for need in common for line in _folded(f"every option needs: {need}", "    ")]
        lines += _refused(shown)
    lines += _remarks(shown)
    click.echo("\n".join(lines).rstrip())


def applied_picture(applied: Applied) -> None:
    """Print what became of an option."""
    shown = to_json_values(applied)
    lines = ["", *_folded(f"applied {shown['kind']}: {shown['title']}")]
    if shown["rank_file"]:
        lines += _folded(f"wrote {shown['rank_file']}")
    lines += [line for text in shown["done"] for line in _command("done", text)]
    if shown["is_outdated"]:
        lines += _folded(f"NOTHING WAS RUN, the world has changed: {shown['said']}")
    if shown["refused"]:
        lines += [*_command("REFUSED", shown["refused"]), *_folded(f"    {shown['said']}")]
    lines += [line for text, who in shown["left"] for line in _command(who, text)]
    if shown["journal"]:
        lines += _folded(f"journal {shown['journal']} (opsk remap --journal, --resume, --undo)")
    click.echo("\n".join(lines))


def _head(shown: Mapping[str, Any]) -> list[str]:
    plan = shown["plan"]
    axes = [f"{name.upper()}{plan[name]}" for name in ("tp", "cp", "ep", "pp", "dp") if plan[name] > 1]
    gpus = plan["tp"] * plan["pp"] * plan["cp"] * plan["dp"]
    job = "the job" if shown["job"] == "JOBID" else f"job {shown['job']}"
    what = shown["what"]
    return [
        *_folded(f"failed: {', '.join(shown['failed'])}"),
        *_folded(f"{job}, {shown['model']}: {gpus} GPUs, {' '.join(axes) or 'one GPU'}, on {shown['fabric']}"),
        f"today {_step(shown['today'])} {'a step' if what == 'step' else 'of communication a step'}, "
        f"{_percent(shown['today']['rail_local_fraction'])} of the traffic on its rail; "
        f"Slurm {shown['slurm']['release']}",
    ]


def _damage(shown: Mapping[str, Any]) -> list[str]:
    damage = shown["damage"]
    dead = [rank for rank in damage["ranks"] if rank["is_dead"]]
    other = [rank for rank in damage["ranks"] if not rank["is_dead"]]
    lines = []
    if dead:
        lines += _folded(f"hit     {_ranks(dead)}")
    if other:
        lines += _folded(f"hit     {_ranks(other)}: their HCA is gone, their GPU is not")
    if damage["degraded"]:
        lines += _folded(f"        as they are: {_step(damage['degraded'])} a step, {_loss(damage['degraded'])}")
    return lines + _folded(f"works   {'; '.join(damage['works'])}")


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Return ranks with their places."""
    said = [f"rank {rank['rank']} (GPU {rank['gpu']} of {rank['node']})" for rank in ranks[:_MOST_RANKS]]
    if len(ranks) > _MOST_RANKS:
        nodes = Counter(rank["node"] for rank in ranks)
        return f"{len(ranks)} ranks on {len(nodes)} nodes, {', '.join(list(nodes)[:4])}"
    return ", ".join(said)


def _table(shown: Mapping[str, Any]) -> list[str]:
    """Return one line an option."""
    lines = [f"{'':<3}{'option':<12}{'moves':>7}{'step':>10}{'loss':>9}{'rail':>9}{'down':>9}{'lost':>9}  what"]
    for option in shown["options"]:
        then = option["predicted"]
        lines.append(
            f"{option['number']:<3}{option['kind']:<12}{option['moved']:>7}{_step(then):>10}{_loss_number(then):>9}"
            f"{_percent(then['rail_local_fraction']):>9}{format_duration(option['downtime_s']):>9}"
            f"{format_duration(option['lost_s']):>9}  {option['way']}"
        )
    horizon = format_duration(shown["horizon_s"])
    return [*lines, f"lost: downtime, steps done again and slower steps, expected over {horizon}"]


def _option(option: Mapping[str, Any], common: Collection[str]) -> Iterator[str]:
    """Yield what one option is and takes, without the needs that are common to all."""
    yield from _folded(f"{option['number']}  {option['kind']}: {option['title']}")
    for text in (*option["changes"], *option["why"]):
        yield from _folded(f"   {text}", "   ")
    if option["rendezvous"]["changes"]:
        names = option["rendezvous"]
        yield from _folded(f"   MASTER_ADDR changes: {names['before']} to {names['after']}", "   ")
    if option["goodput"] is not None:
        yield from _folded(
            f"   goodput {_percent(option['goodput'])} over {format_duration(option['goodput_over_s'])}", "   "
        )
    yield from _seats(option["preview"])
    for node, gpus in list(option["gpu_order"].items())[:_MOST_SHOWN]:
        yield from _folded(f"   on {node}: CUDA_VISIBLE_DEVICES={gpus}", "   ")
    for command in option["commands"]:
        who = "in the job" if command["where"] == "in the job" else command["who"]
        when = "later, " if command["later"] else f"when {command['when']}, " if command["when"] else ""
        yield from _command(f"{when}{who}", command["text"])
    for need in option["needs"]:
        if need in common:
            continue
        yield from _folded(f"   needs: {need}", "     ")


def _seats(seats: Mapping[str, Any]) -> Iterator[str]:
    """Yield who sits where before and after, one line a node; x marks what failed."""
    if not seats["nodes"] or len(seats["columns"]) > _MOST_COLUMNS:
        return
    rows = list(zip(seats["nodes"], seats["before"], seats["after"], seats["failed"], strict=True))
    wide = max(len(str(rank)) for _, before, after, _ in rows for rank in (*before, *after)) + 2
    wide = max(wide, *(len(name.rpartition(" ")[2]) + 1 for name in seats["columns"]))
    name = min(max(len(node) for node, *_ in rows), _LONGEST_NODE)
    if name + 2 * wide * len(seats["columns"]) > WIDTH + _LONGEST_NODE:
        return
    kind = "rail" if all(column.startswith("rail ") for column in seats["columns"]) else "gpu"
    head = "".join(f"{column.rpartition(' ')[2]:>{wide}}" for column in seats["columns"])
    yield f"   {kind:<{name}} {head}  ->{head}"
    for node, before, after, failed in rows[:_MOST_ROWS]:
        cells = [
            "".join(f"{_seat(*seat):>{wide}}" for seat in zip(each, failed, strict=True)) for each in (before, after)
        ]
        yield escape(f"   {node[:name]:<{name}} {cells[0]}  ->{cells[1]}")
    if len(rows) > _MOST_ROWS:
        yield f"   ... {len(rows) - _MOST_ROWS} more nodes: --json"


def _seat(rank: int, failed: bool) -> str:
    return "x" if failed and rank < 0 else f"{rank}x" if failed else "." if rank < 0 else str(rank)


def _common(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return what is in all of several lists; nothing where there is but one."""
    if len(lists) < 2:
        return []
    return [entry for entry in lists[0] if all(entry in other for other in lists[1:])]


def _command(who: str, text: str) -> list[str]:
    """Return a command; it is never broken into lines, so that it can be copied."""
    return [escape(f"   [{who}]"), escape(f"      {text}")]


def _refused(shown: Mapping[str, Any]) -> list[str]:
    lines = [line for entry in shown["refused"] for line in _folded(f"no {entry['kind']}: {entry['why']}", "    ")]
    return [*lines, ""] if lines else []


def _remarks(shown: Mapping[str, Any]) -> list[str]:
    said = [f"note: {note}" for note in shown["notes"]]
    said += [f"assumed: {item['field']} = {item['value']} ({item['why']})" for item in shown["assumed"]]
    lines = [line for text in said for line in _folded(text, "    ")]
    return ["", *lines] if lines and shown["nothing_to_do"] else lines


def _step(predicted: Mapping[str, Any]) -> str:
    return format_duration(predicted["step_s"]) if predicted["step_s"] else "-"


def _loss(predicted: Mapping[str, Any]) -> str:
    loss = predicted["loss"]
    return f"{loss:.1%} slower" if loss > 0 else f"{-loss:.1%} faster" if loss < 0 else "as fast as today"


def _loss_number(predicted: Mapping[str, Any]) -> str:
    return f"{predicted['loss']:.1%}" if abs(predicted["loss"]) >= 5e-4 else "0 %"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.4g} %"


def _folded(text: str, indent: str = "        ") -> list[str]:
    return wrap(escape(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]


def echo_warning(text: str) -> None:
    """Print what went wrong beside a remap on stderr."""
    click.echo(f"opsk: {escape(text)}", err=True)
