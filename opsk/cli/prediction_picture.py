"""How is a prediction shown to people: will it fit, how fast is it, and what takes the memory and the time?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.cli.document import harmless, plain
from opsk.units import TERA, as_gib, format_bytes, format_duration

_WIDTH_WITHOUT_TERMINAL = 100
_BAR = 24
_WORDS = {
    "fits": ("✓", "green", "fits"),
    "tight": ("!", "yellow", "tight: may run out"),
    "oom": ("✗", "red", "will run out of memory"),
    "unknown": ("?", "yellow", "cannot tell"),
}
_JOULES_PER_KWH = 3.6e6


def picture(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk predict`` for people."""
    shown = plain(document)
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(_headline(shown), soft_wrap=True)
    console.print()
    console.print(_verdict(shown))
    console.print(_parts(shown["memory"]["components"], format_bytes))
    console.print(_speed(shown["time"]))
    console.print(_parts(shown["time"]["components"], format_duration))
    console.print(_energy(shown["energy"]))


def _headline(shown: Mapping[str, Any]) -> Text:
    """Return what was asked, in one line."""
    model, plan, cluster = shown["model"], shown["plan"], shown["cluster"]
    axes = " ".join(f"{axis.upper()}{plan[axis]}" for axis in ("tp", "pp", "cp", "ep", "dp") if plan[axis] > 1)
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
    ]
    return Text(harmless(" · ".join(words)), style="bold")


def _verdict(shown: Mapping[str, Any]) -> Text:
    """Return whether it fits, in one line."""
    memory = shown["memory"]
    mark, style, words = _WORDS[shown["verdict"]]
    total = {name: as_gib(value) for name, value in memory["total_bytes"].items()}
    text = Text("memory  ")
    text.append(f"{mark} {words}", style=f"bold {style}")
    text.append(f"  {total['expected']:.1f} GiB ({total['low']:.1f}–{total['high']:.1f})")
    text.append(f" of {as_gib(memory['capacity_bytes']):.1f} GiB, chance to fit {memory['fit_probability']:.0%}")
    text.append(f", fullest stage {memory['stage']}")
    return text


def _speed(time: Mapping[str, Any]) -> Text:
    """Return how fast it is, in one line."""
    step, rate, tokens, mfu = (time[name] for name in ("step_s", "tflops_per_gpu", "tokens_per_s_per_gpu", "mfu"))
    text = Text("speed   ")
    text.append(f"{format_duration(step['expected'])} a step", style="bold")
    text.append(f" ({format_duration(step['low'])}–{format_duration(step['high'])}) · ")
    text.append(f"{rate['expected']:.0f} TFLOP/s/GPU ({rate['low']:.0f}–{rate['high']:.0f}) · ")
    text.append(f"MFU {mfu['expected']:.0%} · {tokens['expected']:,.0f} tokens/s/GPU")
    return text


def _energy(energy: Mapping[str, Any]) -> Text:
    """Return what it costs in energy, in one line."""
    step_kwh = energy["step_j"]["expected"] / _JOULES_PER_KWH
    per_trillion_mwh = energy["j_per_token"]["expected"] * TERA / _JOULES_PER_KWH / 1e3
    return Text(
        f"energy  {step_kwh:.3g} kWh a step, {energy['gpu_w']:.0f} W a GPU, "
        f"{energy['j_per_token']['expected']:.3g} J a token ({per_trillion_mwh:,.0f} MWh for 10¹² tokens); GPUs only"
    )


def _parts(components: Mapping[str, float], shown_as: Any) -> Table:
    """Return the parts of a sum, largest first, with a bar each; parts below one in a thousand are left out."""
    total = sum(components.values()) or 1.0
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=6)
    table.add_column(min_width=14)
    table.add_column(justify="right", min_width=9)
    table.add_column(justify="right", min_width=4)
    table.add_column()
    for name, value in sorted(components.items(), key=lambda item: -item[1]):
        share = value / total
        if share >= 1e-3:
            table.add_row("", name, shown_as(value), f"{share:.0%}", Text("█" * max(round(share * _BAR), 1), "cyan"))
    return table
