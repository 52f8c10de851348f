"""Prints a prediction for people: fit, speed, and the parts of memory, time and energy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from opsk.text import escape, format_bytes, format_duration, format_share, to_json_values
from opsk.units import GB, TERA, as_gib

_WIDTH_WITHOUT_TERMINAL = 100
_NARROW = 100
"""Below this width bars are short."""
_LABEL = 8
_BAR, _SHORT_BAR = 24, 14
_SMALLEST = 1e-3
"""Parts below this share are left out."""
_WORDS = {
    "fits": ("✓", "green", "fits"),
    "tight": ("!", "yellow", "tight, may run out"),
    "oom": ("✗", "red", "will run out of memory"),
    "unknown": ("?", "yellow", "cannot tell"),
}
_JOULES_PER_KWH = 3.6e6


def print_prediction(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the answer of ``opsk predict`` for people, on stdout where no console is given."""
    shown = to_json_values(document)
    console = console or create_stdout_console()
    console.print(format_headline(shown), style="bold")
    console.print()
    for block in _build_blocks(shown, _SHORT_BAR if console.width < _NARROW else _BAR):
        console.print(block)


def create_stdout_console() -> Console:
    """Return the console of stdout, with a fixed width where that is no terminal."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _build_blocks(shown: Mapping[str, Any], bar: int) -> Iterator[RenderableType]:
    """Yield the blocks below the headline, from top to bottom."""
    memory, time, energy = shown["memory"], shown["time"], shown["energy"]
    yield build_labelled("memory", _format_verdict(shown))
    yield _build_parts_table(memory["components"], format_bytes, bar)
    yield build_labelled("", _format_definitions(memory))
    yield build_labelled("speed", _format_speed(time))
    yield _build_parts_table(time["components"], format_duration, bar, _format_totals(time))
    yield build_labelled("energy", _format_energy_line(energy))
    yield _build_parts_table(energy["components"], format_energy, bar)
    if "checkpoint" in shown:
        yield build_labelled("saving", format_checkpoint(shown["checkpoint"]))
    if "run" in shown:
        yield build_labelled("run", format_run(shown["run"]))
    if shown.get("assumed"):
        yield build_labelled("assumed", format_assumed(shown["assumed"]))


def build_labelled(label: str, content: Text) -> Table:
    """Return a text with a label on its left; wrapped lines are aligned."""
    table = Table.grid(padding=0)
    table.add_column(width=_LABEL)
    table.add_column(overflow="fold")
    table.add_row(label, content)
    return table


def format_headline(shown: Mapping[str, Any]) -> Text:
    """Return the headline: model, plan and cluster."""
    model, plan, cluster = shown["model"], shown["plan"], shown["cluster"]
    axes = " ".join(f"{axis.upper()}{plan[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep", "dp") if plan[axis] > 1)
    words = [
        model["name"],
        f"{plan['gpus']} × {cluster['gpu']} ({cluster['name']})",
        axes or "one GPU",
        f"mbs {plan['micro_batch']}",
        f"batch {plan['global_batch']}",
        f"seq {model['seq']}",
        plan["precision"],
        f"recompute {plan['recompute']}",
        f"sharding {plan['sharding']}",
        plan["software"],
    ]
    return Text(escape(" · ".join(words)))


def _format_verdict(shown: Mapping[str, Any]) -> Text:
    """Return the memory verdict.

    The chance is for the memory that the device needs: cached blocks are in the range, but released before an
    allocation fails. Where that matters a note is added, since the range may exceed the capacity despite a fair chance.
    """
    memory = shown["memory"]
    mark, style, words = _WORDS[shown["verdict"]]
    total = {name: as_gib(value) for name, value in memory["total_bytes"].items()}
    text = Text()
    text.append(f"{mark} {words}", style=f"bold {style}")
    text.append(f" (chance to fit {format_share(memory['fit_probability'])}): {total['expected']:.1f} GiB ")
    text.append(f"({total['low']:.1f}–{total['high']:.1f}) of {as_gib(memory['capacity_bytes']):.1f} GiB")
    needed = {name: as_gib(value) for name, value in memory["needed_bytes"].items()}
    if shown["verdict"] == "tight" and total["expected"] - needed["expected"] >= 0.05:
        range_of_needed = f"{needed['expected']:.1f} GiB ({needed['low']:.1f}–{needed['high']:.1f})"
        text.append(f"; the chance is that of {range_of_needed}, without cached blocks")
    return text


def _format_definitions(memory: Mapping[str, Any]) -> Text:
    """Return place and time of the peak, and its measured equivalents."""
    tensors, held, device = (format_bytes(memory[f"{name}_bytes"]) for name in ("allocated", "reserved", "device"))
    return Text(
        f"peak on stage {memory['stage']}, {memory['moment']}: PyTorch allocates {tensors} and reserves {held}, "
        f"the device shows {device}"
    )


def _format_speed(time: Mapping[str, Any]) -> Text:
    """Return step time, rate and MFU."""
    step, rate, tokens, mfu = (time[name] for name in ("step_s", "tflops_per_gpu", "tokens_per_s_per_gpu", "mfu"))
    text = Text()
    text.append(f"{format_duration(step['expected'])} a step", style="bold")
    text.append(f" ({format_duration(step['low'])}–{format_duration(step['high'])}) · ")
    text.append(f"{rate['expected']:.0f} TFLOP/s/GPU ({rate['low']:.0f}–{rate['high']:.0f}) · ")
    text.append(f"MFU {mfu['expected']:.0%} · {tokens['expected']:,.0f} tokens/s/GPU")
    return text


def _format_totals(time: Mapping[str, Any]) -> dict[str, str]:
    """Return the total communication of each axis, as a note to its exposed part."""
    return {
        axis: f"exposed of {format_duration(entry['total_s'])}"
        for axis, entry in time["communication"].items()
        if entry["total_s"] > 0
    }


def _format_energy_line(energy: Mapping[str, Any]) -> Text:
    """Return the energy and power."""
    step, token = energy["step_j"], energy["j_per_token"]
    per_trillion_mwh = token["expected"] * TERA / _JOULES_PER_KWH / 1e3
    low, high = (format_energy(step[name]) for name in ("low", "high"))
    text = Text()
    text.append(f"{format_energy(step['expected'])} a step", style="bold")
    text.append(f" ({low}–{high}) · {token['expected']:.3g} J a token ({per_trillion_mwh:,.0f} MWh for 10¹² tokens)")
    text.append(f" · job {energy['job_w'] / 1e3:.3g} kW, of each GPU {energy['gpu_w']:.0f} W")
    text.append(f" + host {energy['host_w']:.0f} W + network {energy['network_w']:.0f} W")
    if energy.get("pue", 1.0) != 1:
        text.append(f", PUE {energy['pue']:.2f}")
    return text


def format_energy(energy_j: float) -> str:
    """Format an energy for people, in Wh, kWh, MWh or GWh."""
    for limit, divisor, unit in ((1.0, 1e-3, "Wh"), (1e3, 1.0, "kWh"), (1e6, 1e3, "MWh")):
        if energy_j / _JOULES_PER_KWH < limit:
            return f"{energy_j / _JOULES_PER_KWH / divisor:.3g} {unit}"
    return f"{energy_j / _JOULES_PER_KWH / 1e6:.3g} GWh"


def format_checkpoint(checkpoint: Mapping[str, Any]) -> Text:
    """Return the cost of checkpoints."""
    how = "asynchronous" if checkpoint["asynchronous"] else "synchronous"
    durations = {name: format_duration(checkpoint[f"{name}_s"]) for name in ("write", "stall", "interval", "mtbf")}
    best = format_duration(checkpoint["best_interval_s"])
    comparison = "the best interval" if best == durations["interval"] else f"the best is {best}"
    return Text(
        f"{format_bytes(checkpoint['size_bytes'])} a checkpoint, {how}: written in {durations['write']}, training "
        f"stands still for {durations['stall']}, every {durations['interval']} ({comparison}); with a failure every "
        f"{durations['mtbf']}, {checkpoint['lost_fraction']:.1%} of the time is lost"
    )


def format_run(run: Mapping[str, Any]) -> Text:
    """Return time and energy of the whole run."""
    time, energy = run["time_s"], run["energy_j"]
    low, expected, high = (format_duration(time[name]) for name in ("low", "expected", "high"))
    text = Text()
    text.append(expected, style="bold")
    text.append(f" ({low}–{high}) and ")
    text.append(format_energy(energy["expected"]), style="bold")
    text.append(f" ({format_energy(energy['low'])}–{format_energy(energy['high'])})")
    text.append(f" for {run['steps']:,.0f} steps, {format_tokens(run['tokens'])} tokens")
    return text


def format_tokens(tokens: float) -> str:
    """Format a number of tokens as the field does: ``15T``, ``300B``, ``20M``."""
    for divisor, unit in ((TERA, "T"), (GB, "B"), (10**6, "M")):
        if tokens >= divisor:
            return f"{tokens / divisor:.4g}{unit}"
    return f"{tokens:,.0f}"


def format_assumed(assumed: Sequence[Mapping[str, Any]]) -> Text:
    """Return the assumptions, one per line."""
    return Text(
        "\n".join(
            escape(f"{entry['field']} = {_format_value(entry['field'], entry['value'])}: {entry['why']}")
            for entry in assumed
        )
    )


def _format_value(field: str, value: Any) -> str:
    """Return an assumed value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_bytes_per_s"):
        return f"{value / GB:.3g} GB/s"
    return format_duration(value) if field.endswith("_s") else str(value)


def _build_parts_table(
    components: Mapping[str, float],
    shown_as: Callable[[float], str],
    bar: int,
    notes: Mapping[str, str] | None = None,
) -> Table:
    """Return the parts of a sum, largest first, with a bar and a note each; small ones only where they have a note."""
    notes = notes or {}
    total = sum(components.values()) or 1.0
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=_LABEL - 2)
    table.add_column(min_width=13)
    table.add_column(justify="right", min_width=9)
    table.add_column(justify="right", min_width=4)
    table.add_column(min_width=bar)
    table.add_column(no_wrap=True)
    for name, value in sorted(components.items(), key=lambda item: -item[1]):
        share = value / total
        if share >= _SMALLEST or name in notes:
            percent = f"{share:.0%}" if share >= 0.005 or not share else "<1%"
            length = max(round(share * bar), int(share >= _SMALLEST))
            table.add_row(
                "", name.replace("_", " "), shown_as(value), percent, Text("█" * length, "cyan"), notes.get(name, "")
            )
    return table
