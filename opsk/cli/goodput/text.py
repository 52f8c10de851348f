"""Prints goodput for people: where the time goes, and what each spare adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from opsk.app.goodput import format_percent
from opsk.cli.predict.text import (
    build_labelled,
    create_stdout_console,
    format_assumed,
    format_energy,
    format_headline,
    format_tokens,
)
from opsk.text import escape, format_bytes, format_duration, to_json_values

_NARROW = 100
_LONG_BAR, _SHORT_BAR = 20, 10
_AROUND = 3
"""Rows shown on each side of the best one."""
_STEPS = 4
"""Rows shown between the first one and these."""
_EIGHTHS = "▁▂▃▄▅▆▇█"
_SHARES = {
    "useful": "training",
    "saving": "saving",
    "again": "work done again",
    "restart": "restarts",
    "waiting": "waiting for repair",
}
_CAUSES = {"gpu": "GPUs", "host": "hosts", "nic": "NIC ports", "link": "links", "switch": "switches",
           "hb_domain": "HB domains", "software": "software, by GPU"}  # fmt: skip


def print_goodput(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the answer of ``opsk goodput`` for people, on stdout where no console is given."""
    shown = to_json_values(document)
    console = console or create_stdout_console()
    console.print(format_headline(shown), style="bold")
    console.print()
    for block in _build_blocks(shown, _SHORT_BAR if console.width < _NARROW else _LONG_BAR):
        console.print(block)


def _build_blocks(shown: Mapping[str, Any], bar: int) -> Iterator[RenderableType]:
    """Yield the blocks below the headline, from top to bottom."""
    if shown["verdict"] == "oom":
        yield build_labelled("memory", Text("✗ the plan will run out of memory: see opsk predict", "bold red"))
    yield build_labelled("goodput", _format_goodput(shown))
    yield _build_share_table(shown["time_shares"], bar)
    yield build_labelled("stops", _format_failures(shown))
    yield _build_cause_table(shown["causes"], bar)
    yield build_labelled("saving", _format_saving(shown["checkpoint"]))
    yield build_labelled("spares", _format_spares_heading(shown["spares"]))
    yield _build_spares_table(shown["spares"], bar)
    if "run" in shown:
        yield build_labelled("run", _format_run(shown["run"]))
    yield build_labelled("advice", _format_advice(shown["recommendation"]))
    if shown.get("assumed"):
        yield build_labelled("assumed", format_assumed(shown["assumed"]))


def _format_goodput(shown: Mapping[str, Any]) -> Text:
    """Return the share of the ideal and the tokens of a second."""
    goodput = shown["goodput"]
    rate, ideal = goodput["tokens_per_s"], goodput["ideal_tokens_per_s"]
    text = Text()
    text.append(f"{goodput['share']:.1%} of the ideal", style="bold")
    text.append(
        f": {rate['expected']:,.0f} tokens/s ({rate['low']:,.0f}–{rate['high']:,.0f}) of {ideal['expected']:,.0f}"
    )
    text.append(f" · {format_duration(goodput['step_s']['expected'])} a step")
    return text


def _build_share_table(shares: Mapping[str, float], bar: int) -> Table:
    """Return the table of time shares."""
    table = _build_grid()
    for name, words in _SHARES.items():
        share = shares[name]
        table.add_row("", words, format_percent(share), "", Text("█" * _compute_bar_length(share, bar), "cyan"))
    return table


def _format_failures(shown: Mapping[str, Any]) -> Text:
    """Return how often the job is interrupted."""
    if shown["mtbf_s"] is None:
        return Text("none: nothing fails")
    name = escape(str(shown["rates"]["name"]))
    return Text(f"an interruption every {format_duration(shown['mtbf_s'])}, by the rates of {name}")


def _build_cause_table(causes: Sequence[Mapping[str, Any]], bar: int) -> Table:
    """Return the table of interruptions by cause."""
    table = _build_grid()
    for cause in causes:
        words = f"{cause['count']:,} {_CAUSES[cause['name']]}"
        length = Text("█" * _compute_bar_length(cause["share"], bar), "yellow")
        table.add_row("", words, f"{cause['per_day']:.3g} a day", format_percent(cause["share"]), length)
    return table


def _format_saving(saving: Mapping[str, Any]) -> Text:
    """Return the checkpointing, the loss by interval, and the loss of the other mode."""
    how = ("synchronous", "asynchronous")
    text = Text(f"{format_bytes(saving['size_bytes'])} a checkpoint, {how[saving['asynchronous']]}: ")
    text.append(f"written in {format_duration(saving['write_s'])}, training stands still for ")
    text.append(f"{format_duration(saving['stall_s'])}")
    if saving["interval_steps"] is not None:
        interval = f"{saving['interval_steps']:,} steps ({format_duration(saving['interval_s'])})"
        text.append(", every ")
        text.append(interval, style="bold")
    other = saving["other"]
    text.append(
        f"\n{how[other['asynchronous']]} would lose {format_percent(1 - other['useful'])} of the running time, "
    )
    text.append(f"{how[saving['asynchronous']]} loses {format_percent(1 - saving['useful'])}")
    if saving["intervals"]:
        lost = [1 - entry["useful"] for entry in saving["intervals"]]
        first, last = (format_duration(saving["intervals"][place]["interval_s"]) for place in (0, -1))
        text.append(f"\nlost by interval: {format_percent(lost[0])} at {first} ")
        text.append(_render_sparkline(lost), style="cyan")
        text.append(f" {format_percent(lost[-1])} at {last}")
    return text


def _format_advice(sentences: Sequence[str]) -> Text:
    """Return the recommendations, one per line."""
    return Text("\n".join(f"· {escape(sentence)}" for sentence in sentences))


def _format_gain(row: Mapping[str, Any]) -> str:
    """Return the gain of one more spare."""
    words = format_percent(row["gain"])
    if row["gain"] < 0:
        return f"{format_percent(-row['gain'])} less"
    return words if words.startswith("<") else f"+{words}"


def _format_spares_heading(spares: Mapping[str, Any]) -> Text:
    """Return the heading of the table of spares."""
    out = "waits" if spares["when_out"] == "wait" else "continues with fewer replicas"
    unit = "nodes" if spares["kind"] == "node" else "HB domains"
    marked = "where each GPU held gives most" if spares["held"] is None else "what is held"
    return Text(f"with too few {unit} the job {out}; the bar is goodput, ▶ {marked}")


def _build_spares_table(spares: Mapping[str, Any], bar: int) -> Table:
    """Return the table of selected rows, with the best one marked."""
    inside = spares["kind"] == "hb_domain"
    bar = bar // 2 if inside else bar
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    table.add_column("", min_width=6, justify="right")
    if inside:
        table.add_column("spares in\na domain", justify="right")
    table.add_column("spare\ndomains" if inside else "spare\nnodes", justify="right")
    for title in ("GPUs\nheld", "enough\nin order", "goodput", "this one\nbrings", "for each\nGPU held"):
        table.add_column(title, justify="right")
    table.add_column("", min_width=bar)
    for row in _select_rows(spares["rows"]):
        first = [str(row["spare_nodes_inside"])] if inside else []
        table.add_row(
            "▶" if row["is_best"] else "",
            *first,
            f"{row['spares']:,}",
            f"{row['held_gpus']:,}",
            _format_availability(row["availability"]),
            f"{row['goodput']:.1%}",
            _format_gain(row) if row["spares"] else "",
            f"{row['per_held']:.1%}",
            Text("█" * _compute_bar_length(row["goodput"], bar), "green" if row["is_best"] else "cyan"),
            style="bold" if row["is_best"] else "",
        )
    return table


def _select_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return, per number of spares inside a domain, the first row, those around the best, and a few between."""
    chosen: list[Mapping[str, Any]] = []
    for inside in dict.fromkeys(row["spare_nodes_inside"] for row in rows):
        series = [row for row in rows if row["spare_nodes_inside"] == inside]
        best = max(range(len(series)), key=lambda index: (series[index]["is_best"], series[index]["per_held"], -index))
        around = 1 if len(series) != len(rows) else _AROUND
        places = {0, *range(max(best - around, 0), min(best + around + 1, len(series)))}
        places |= {round(best * part / _STEPS) for part in range(_STEPS)} if around > 1 else set()
        chosen += [series[place] for place in sorted(places)]
    return chosen


def _format_run(run: Mapping[str, Any]) -> Text:
    """Return time and energy of the whole run."""
    time, energy, ideal = run["time_s"], run["energy_j"], run["ideal_time_s"]
    low, expected, high = (format_duration(time[end]) for end in ("low", "expected", "high"))
    text = Text()
    text.append(expected, style="bold")
    text.append(f" ({low}–{high}; {format_duration(ideal['expected'])} without failures) and ")
    text.append(format_energy(energy["expected"]), style="bold")
    text.append(f" for {run['steps']:,.0f} steps, {format_tokens(run['tokens'])} tokens; ")
    text.append(f"{run['interruptions']:,.1f} interruptions")
    return text


def _build_grid() -> Table:
    """Return the columns of a list with bars."""
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=6)
    table.add_column(min_width=22)
    table.add_column(justify="right", min_width=10)
    table.add_column(justify="right", min_width=5)
    table.add_column(no_wrap=True)
    return table


def _compute_bar_length(share: float, bar: int) -> int:
    """Return the length of a bar; visible shares get at least one character."""
    return max(round(share * bar), int(share >= 1e-3))


def _format_availability(share: float) -> str:
    """Format an availability so that it is not rounded to 100 %."""
    if 0.99999 < share < 1:
        return "> 99.999%"
    return f"{share:.3%}" if 0.999 < share < 1 else f"{share:.1%}"


def _render_sparkline(values: Sequence[float]) -> str:
    """Return a line of blocks, lowest to highest."""
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_EIGHTHS[round((value - low) / span * (len(_EIGHTHS) - 1))] for value in values)
