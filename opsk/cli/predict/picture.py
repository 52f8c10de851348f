"""How is a prediction shown to people: does it fit, how fast is it, what takes memory, time and energy?"""

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


def picture(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the answer of ``opsk predict`` for people, on stdout where no console is given."""
    shown = to_json_values(document)
    console = console or stdout_console()
    console.print(headline(shown), style="bold")
    console.print()
    for block in _blocks(shown, _SHORT_BAR if console.width < _NARROW else _BAR):
        console.print(block)


def stdout_console() -> Console:
    """Return the console of stdout, with a fixed width where that is no terminal."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _blocks(shown: Mapping[str, Any], bar: int) -> Iterator[RenderableType]:
    """Yield what is printed below the headline, from top to bottom."""
    memory, time, energy = shown["memory"], shown["time"], shown["energy"]
    yield labelled("memory", _verdict(shown))
    yield _parts(memory["components"], format_bytes, bar)
    yield labelled("", _definitions(memory))
    yield labelled("speed", _speed(time))
    yield _parts(time["components"], format_duration, bar, _in_all(time))
    yield labelled("energy", _energy(energy))
    yield _parts(energy["components"], format_energy, bar)
    if "checkpoint" in shown:
        yield labelled("saving", checkpoint_words(shown["checkpoint"]))
    if "run" in shown:
        yield labelled("run", run_words(shown["run"]))
    if shown.get("assumed"):
        yield labelled("assumed", assumed_text(shown["assumed"]))


def labelled(label: str, content: Text) -> Table:
    """Return text behind a label, wrapped lines under its first."""
    table = Table.grid(padding=0)
    table.add_column(width=_LABEL)
    table.add_column(overflow="fold")
    table.add_row(label, content)
    return table


def headline(shown: Mapping[str, Any]) -> Text:
    """Return what was asked."""
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


def _verdict(shown: Mapping[str, Any]) -> Text:
    """Return whether it fits.

    The chance is that of what the device needs: cached blocks are in the range, but given back before an allocation
    fails. Where that matters it is said, since the range may lie above the capacity beside a fair chance.
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


def _definitions(memory: Mapping[str, Any]) -> Text:
    """Return where and when the peak is, and how it would be measured."""
    tensors, held, device = (format_bytes(memory[f"{name}_bytes"]) for name in ("allocated", "reserved", "device"))
    return Text(
        f"peak on stage {memory['stage']}, {memory['moment']}: PyTorch allocates {tensors} and reserves {held}, "
        f"the device shows {device}"
    )


def _speed(time: Mapping[str, Any]) -> Text:
    """Return how fast it is."""
    step, rate, tokens, mfu = (time[name] for name in ("step_s", "tflops_per_gpu", "tokens_per_s_per_gpu", "mfu"))
    text = Text()
    text.append(f"{format_duration(step['expected'])} a step", style="bold")
    text.append(f" ({format_duration(step['low'])}–{format_duration(step['high'])}) · ")
    text.append(f"{rate['expected']:.0f} TFLOP/s/GPU ({rate['low']:.0f}–{rate['high']:.0f}) · ")
    text.append(f"MFU {mfu['expected']:.0%} · {tokens['expected']:,.0f} tokens/s/GPU")
    return text


def _in_all(time: Mapping[str, Any]) -> dict[str, str]:
    """Return all communication of each axis, to stand beside the part that nothing hides."""
    return {
        axis: f"exposed of {format_duration(entry['total_s'])}"
        for axis, entry in time["communication"].items()
        if entry["total_s"] > 0
    }


def _energy(energy: Mapping[str, Any]) -> Text:
    """Return what it takes in energy."""
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


def checkpoint_words(checkpoint: Mapping[str, Any]) -> Text:
    """Return what checkpoints cost."""
    how = "asynchronous" if checkpoint["asynchronous"] else "synchronous"
    durations = {name: format_duration(checkpoint[f"{name}_s"]) for name in ("write", "stall", "interval", "mtbf")}
    best = format_duration(checkpoint["best_interval_s"])
    asked = "the best interval" if best == durations["interval"] else f"the best is {best}"
    return Text(
        f"{format_bytes(checkpoint['size_bytes'])} a checkpoint, {how}: written in {durations['write']}, training "
        f"stands still for {durations['stall']}, every {durations['interval']} ({asked}); with a failure every "
        f"{durations['mtbf']}, {checkpoint['lost_fraction']:.1%} of the time is lost"
    )


def run_words(run: Mapping[str, Any]) -> Text:
    """Return what the whole run takes."""
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


def assumed_text(assumed: Sequence[Mapping[str, Any]]) -> Text:
    """Return what nobody stated, a line each."""
    return Text(
        "\n".join(
            escape(f"{entry['field']} = {_shown(entry['field'], entry['value'])}: {entry['why']}") for entry in assumed
        )
    )


def _shown(field: str, value: Any) -> str:
    """Return an assumed value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_bytes_per_s"):
        return f"{value / GB:.3g} GB/s"
    return format_duration(value) if field.endswith("_s") else str(value)


def _parts(
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
