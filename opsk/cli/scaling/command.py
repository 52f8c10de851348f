"""Implements ``opsk scaling``: the published scaling laws and closed forms, worked out for one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.app.inputs.named_inputs import load_model
from opsk.app.scaling import Quantity, ScalingRequest, compute_scaling
from opsk.cli.document import echo_json
from opsk.cli.render.chart import render_chart_svg
from opsk.cli.render.heat_map import MAX_RANKS, build_heat_map
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.costmodel.time.traffic_pairs import Layout, list_pairs
from opsk.errors import ExitStatus, InputError
from opsk.text import escape, format_bytes, format_duration

TITLES = {
    "compute": "Compute",
    "time": "Time and energy",
    "loss": "Loss",
    "memory": "Memory of states",
    "traffic": "Traffic of one GPU in a step",
    "axes": "Traffic of one GPU by axis (plain data parallelism, two bytes a gradient)",
    "step": "FLOP of a step (GPT shapes)",
    "layer": "Activations of one layer (GPT shapes: an MLP of 4 h, heads with their own keys)",
}
_NUMBER = click.FloatRange(min=0, min_open=True, max=1e40)
_COUNT = click.IntRange(1, 10**7)
_JOULES_PER_MWH = 3.6e9


@click.command()
@click.option("--model", metavar="NAME|FILE", help="A public model (gpt-3-175b), or a HuggingFace config.json.")
@click.option("--parameters", type=_NUMBER, metavar="P", help="Parameters, in place of a model: 175e9.")
@click.option("--tokens", type=_NUMBER, metavar="D", help="Tokens of the whole run.  [default: 20 a parameter]")
@click.option("--gpus", type=_COUNT, metavar="N", help="GPUs of the system.")
@click.option("--tflops-per-gpu", type=_NUMBER, metavar="X", help="What a GPU achieves [TFLOP/s]; needs --gpus.")
@click.option(
    "--watts-per-gpu", type=_NUMBER, metavar="W", help="Mean power of a GPU with its share [W]; needs --gpus."
)
@click.option("--tp", type=_COUNT, default=1, show_default=True, metavar="N", help="Tensor parallelism.")
@click.option("--pp", type=_COUNT, default=1, show_default=True, metavar="N", help="Pipeline parallelism.")
@click.option("--seq", type=_COUNT, metavar="N", help="Tokens of a sequence; else the model's own.")
@click.option("--global-batch", type=_COUNT, metavar="N", help="Sequences of a step, for the FLOP of a step.")
@click.option(
    "--micro-batch", type=_COUNT, default=1, show_default=True, metavar="N", help="Sequences of a micro-batch."
)
@click.option(
    "--heat-map", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Draw which GPUs exchange how much in a step as SVG into this file; needs --model, --gpus and --global-batch.",
)  # fmt: skip
@click.option("--hb-domain", type=_COUNT, default=8, show_default=True, metavar="K",
              help="GPUs of an HB domain, for --heat-map.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def scaling(
    *, model: str | None, parameters: float | None, tokens: float | None, gpus: int | None,
    tflops_per_gpu: float | None, watts_per_gpu: float | None, tp: int, pp: int, seq: int | None,
    global_batch: int | None, micro_batch: int, heat_map: Path | None, hb_domain: int, as_json: bool,
) -> int:  # fmt: skip
    """Work out the published scaling laws and closed forms for one run: FLOP, time, energy, loss, memory, traffic.

    They know nothing of a machine but its rate and power; opsk predict does. Each number has its formula and source,
    and a slip in the source is named.

    Exit status: 0 an answer; 2 the request cannot be.
    """
    _check(model, parameters, gpus, tp * pp, {"--tflops-per-gpu": tflops_per_gpu, "--watts-per-gpu": watts_per_gpu})
    shape = load_model(model, seq=seq)[0] if model is not None else None
    request = ScalingRequest(
        parameters=float(total_parameters(shape)) if shape is not None else float(parameters or 0),
        tokens=tokens,
        flop_per_s=gpus * tflops_per_gpu * 1e12 if gpus and tflops_per_gpu else None,
        power_w=gpus * watts_per_gpu if gpus and watts_per_gpu else None,
        gpus=gpus,
        tp=tp,
        pp=pp,
        shape=shape,
        global_batch=global_batch,
        micro_batch=micro_batch,
    )  # fmt: skip
    quantities = compute_scaling(request)
    if heat_map is not None:
        _write_heat_map(heat_map, request, quantities, hb_domain)
    if as_json:
        echo_json({"parameters": request.parameters, "quantities": [asdict(quantity) for quantity in quantities]})
    else:
        _print_tables(request, quantities)
    return ExitStatus.ANSWER


def _check(
    model: str | None, parameters: float | None, gpus: int | None, model_parallel: int, rates: dict[str, float | None]
) -> None:
    """Refuse what contradicts itself, with everything that is wrong."""
    wrong = []
    if (model is None) == (parameters is None):
        wrong.append("give either --model or --parameters")
    wrong += [f"{option} needs --gpus" for option, value in rates.items() if value is not None and gpus is None]
    if rates["--watts-per-gpu"] is not None and rates["--tflops-per-gpu"] is None:
        wrong.append("--watts-per-gpu needs --tflops-per-gpu: energy is power times time")
    if gpus is not None and gpus % model_parallel:
        wrong.append(f"--gpus {gpus} is not a multiple of tp x pp = {model_parallel}")
    if wrong:
        raise InputError("; ".join(wrong), hint="opsk scaling --parameters 175e9 --gpus 1024 --tflops-per-gpu 140")


def _write_heat_map(path: Path, request: ScalingRequest, quantities: Sequence[Quantity], hb_domain: int) -> None:
    """Write the heat map of a public model's traffic."""
    by_name = {quantity.name: quantity.value for quantity in quantities}
    axes = [name.removeprefix("share of ") for name in by_name if name.startswith("share of ")]
    if not axes or request.gpus is None:
        raise InputError(
            "--heat-map needs a model, its GPUs and its batch",
            hint="opsk scaling --model gpt-1t --gpus 3072 --tp 8 --pp 64 --global-batch 3072 --heat-map traffic.svg",
        )
    layout = Layout(tp=request.tp, dp=request.gpus // (request.tp * request.pp), pp=request.pp, hb_domain=hb_domain)
    ring = 2 * (layout.dp - 1) / layout.dp
    pairs = list_pairs(
        layout,
        tp_bytes=by_name["sent for tensor parallelism"],
        pp_bytes=by_name["sent for pipeline"],
        gradient_bytes=by_name["sent for data parallelism"] / ring if ring else 0.0,
        ranks=MAX_RANKS,
    )
    name = request.shape.name if request.shape is not None else "model"
    title = f"{name}, TP{layout.tp} PP{layout.pp} DP{layout.dp}, batch {request.global_batch:,}"
    chart = build_heat_map(escape(title), layout, list(pairs), [(axis, by_name[f"share of {axis}"]) for axis in axes])
    try:
        path.write_text(render_chart_svg(chart), encoding="utf-8")
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file for --heat-map") from error


def _print_tables(request: ScalingRequest, quantities: Sequence[Quantity]) -> None:
    """Print a table a group."""
    console = Console()
    name = f"{escape(request.shape.name or 'model')}: " if request.shape else ""
    console.print(Text(f"{name}{request.parameters:.4g} parameters", style="bold"))
    for group, members in groupby(quantities, key=lambda quantity: quantity.group):
        table = Table(box=None, pad_edge=False, title=TITLES[group], title_justify="left", title_style="bold")
        for heading in ("", "formula", "value", "source"):
            table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
        for quantity in members:
            source = ": ".join(filter(None, (quantity.source, quantity.note)))
            table.add_row(
                quantity.name, quantity.formula, format_value(quantity), source, style="dim" if "slip" in source else ""
            )
        console.print()
        console.print(table)


def format_value(quantity: Quantity) -> str:
    """Return a value with its unit, in the size that people read."""
    value = quantity.value
    if quantity.unit == "s":
        return f"{value / 86400:,.1f} days" if value >= 2 * 86400 else format_duration(value)
    if quantity.unit == "J":
        return f"{value / _JOULES_PER_MWH:,.4g} MWh"
    if quantity.unit == "bytes":
        return format_bytes(value)
    if quantity.unit == "bytes/s":
        return f"{value / 1e9:.4g} GB/s"
    if quantity.unit == "ratio":
        return f"{value:.2%}"
    return f"{value:.4g} {quantity.unit}"
