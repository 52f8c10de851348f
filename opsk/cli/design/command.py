"""Implements ``opsk design``: compares the cost of networks and the step times of models on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from opsk.cli.design.answer import build_comparison_document, build_paper_document, format_csv
from opsk.cli.design.charts import build_charts
from opsk.cli.design.inputs import USUAL_RADIX, Request, build_comparison
from opsk.cli.design.text import print_design
from opsk.cli.document import echo_json
from opsk.cli.render.chart import arrange_chart, render_chart_svg
from opsk.cli.render.chart_png import chart_png
from opsk.errors import ExitStatus, InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.limits import ANYTHING
from opsk.network_design.papers import PAPERS
from opsk.network_design.point import KEYS
from opsk.network_design.techniques import Extras, Technique
from opsk.text import escape

_STDOUT = Path("-")
_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_PRICE = click.FloatRange(min=0.0, max=1e9)
_SIZE = click.IntRange(1, 1 << 22)
_PRICES = (
    ("usd-per-switch-port", "A switch port [USD]. Default: 694, of 400 Gbit/s."),
    ("usd-per-transceiver", "A transceiver [USD]. Default: 199, of 400 Gbit/s."),
    ("w-per-switch-port", "A switch port [W]. Default: 18."),
    ("w-per-transceiver", "A transceiver [W]. Default: 9."),
)
_EXTRAS = (
    ("usd-per-server", Extras().usd_per_server, "A reduction server with its NICs (optcast)."),
    ("w-per-server", Extras().w_per_server, "A reduction server."),
    ("usd-per-circuit-port", Extras().usd_per_circuit_port, "A port of an optical circuit switch."),
    ("w-per-circuit-port", Extras().w_per_circuit_port, "A port of an optical circuit switch."),
)


def _add_price_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for each price and power."""
    for name, default, text in reversed(_EXTRAS):
        command = click.option(f"--{name}", type=_PRICE, default=default, metavar="X", show_default=True, help=text)(
            command
        )
    for name, text in reversed(_PRICES):
        command = click.option(f"--{name}", type=_PRICE, default=None, metavar="X", help=text)(command)
    return command


@click.command()
@click.option("--gpus", type=_SIZE, metavar="N", help="GPUs in all.")
@click.option("--model", "models", multiple=True, metavar="NAME|FILE",
              help="A model whose step to predict, with its best plan on each network; may be repeated.")  # fmt: skip
@click.option("--global-batch", type=click.IntRange(1, 10**7), metavar="N", help="Sequences of a step.")
@click.option("--seq", type=click.IntRange(1, 10**8), metavar="N", help="Tokens of a sequence; else the model's own.")
@click.option("--network", "networks", multiple=True, metavar="WIRING",
              help="rail-only, rail-optimized, fat-tree, or fat-tree:2 for leaves with half as much bandwidth up as "
              "down; may be repeated.  [default: all of them, with 2 and 4]")  # fmt: skip
@click.option("--option", "techniques", multiple=True, type=click.Choice([*(each.value for each in Technique), "all"]),
              help="Compare each network with this too; may be repeated.")  # fmt: skip
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=V1,V2",
              help=f"Compare at several values: {', '.join(KEYS)}; may be repeated.")  # fmt: skip
@click.option("--radix", type=int, metavar="N", default=USUAL_RADIX, show_default=True, help="Ports of a switch.")
@click.option("--hb-domain", metavar="K|all", help="GPUs that NVLink or its like joins.  [default: the node's]")
@click.option("--gpus-per-node", type=_SIZE, metavar="N", help="GPUs of a node.  [default: the node's]")
@click.option("--nics", type=_SIZE, metavar="N", help="NIC ports of a node on this network.  [default: the node's]")
@click.option("--nic-gbps", type=click.FloatRange(min=0, min_open=True, max=1e6), metavar="X",
              help="Rate of a NIC port [Gbit/s].")  # fmt: skip
@click.option("--hb-gbps", type=click.FloatRange(min=0, min_open=True, max=1e7), metavar="X",
              help="Rate of a GPU inside its HB domain, one direction [Gbit/s].")  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue cluster, or a TOML, whose nodes and GPUs to take.")
@click.option("--node", metavar="NAME", help="Catalogue node to take.  [default: dgx-h100]")
@click.option("--gpu", metavar="NAME", help="Catalogue GPU to put into the nodes.")
@click.option("--fix", "fixed", multiple=True, metavar="AXIS=V1,V2",
              help="Keep an axis of the plans to these values: tp=8; may be repeated.")  # fmt: skip
@click.option("--framework", type=click.Choice([ANYTHING.name, *FRAMEWORKS]), default=ANYTHING.name, show_default=True,
              help="Only plans that this framework can express.")  # fmt: skip
@click.option("--precision", default="bf16", show_default=True, metavar="WORD", help="Number format of the products.")
@click.option("--software", metavar="WORD", help="Family of the training software.  [default: megatron-core]")
@click.option("--servers-per-node", type=click.FloatRange(min=0, min_open=True, max=100), show_default=True,
              metavar="X", default=Extras().servers_per_node,
              help="Reduction servers for each node (optcast).")  # fmt: skip
@click.option("--interfaces", type=click.IntRange(2, 64), default=Extras().interfaces, show_default=True, metavar="N",
              help="Into how many a NIC is split where circuits join nodes (smartnic, topoopt).")  # fmt: skip
@_add_price_options
@click.option("--failures", is_flag=True, help="Add what can be done after failures, on small clusters of both kinds.")
@click.option("--paper", type=click.Choice(list(PAPERS)),
              help="In place of your own networks: what a paper states, compared with what opsk computes.")  # fmt: skip
@click.option("--efficiency", metavar="FILE", help="File that opsk calibrate wrote. Default: opsk's own efficiencies.")
@click.option("--csv", "csv_file", type=_FILE, metavar="FILE", help="Write the rows as a table; - is stdout.")
@click.option("--svg", type=_FILE, metavar="FILE", help="Draw the answer as SVG into this file; - is stdout.")
@click.option("--png", type=_FILE, metavar="FILE", help="Draw the answer as PNG into this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def design(
    *, paper: str | None, failures: bool, csv_file: Path | None, svg: Path | None, png: Path | None, as_json: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Compare networks: switches, transceivers, cost, power, and the steps of models on the best plan of each.

    A network is a wiring (rail-only, rail-optimized, fat tree) for --gpus GPUs with --hb-domain GPUs in each HB domain,
    and switches of --radix ports.

    Exit status: 0 an answer; 1 no model can be trained on any of the networks; 2 the request cannot be.
    """
    _refuse_two_stdouts({"--csv": csv_file, "--svg": svg, "--png": png}, as_json=as_json)
    request = _build_request(**given)
    if paper:
        document = build_paper_document(paper, request)
    else:
        document = build_comparison_document(build_comparison(request), failures=failures)
    chart = arrange_chart(build_charts(document)) if svg or png else None
    if csv_file is not None:
        _write(csv_file, format_csv(document).encode(), "--csv")
    if svg is not None and chart is not None:
        _write(svg, render_chart_svg(chart).encode(), "--svg")
    if png is not None and chart is not None:
        _write(png, chart_png(chart), "--png")
    if as_json:
        echo_json(document)
    elif _STDOUT not in (csv_file, svg, png):
        print_design(document)
    models = [step for row in document["rows"] for step in row["models"]]
    return ExitStatus.BAD_NEWS if models and all(step["plan"] is None for step in models) else ExitStatus.ANSWER


def _build_request(**given: Any) -> Request:
    """Return the options as one value."""
    prices = {name.replace("-", "_"): given.pop(name.replace("-", "_")) for name, _ in _PRICES}
    names = [*(name.replace("-", "_") for name, _, _ in _EXTRAS), "servers_per_node", "interfaces"]
    return Request(prices=prices, extras={name: given.pop(name) for name in names}, **given)


def _refuse_two_stdouts(files: Mapping[str, Path | None], *, as_json: bool) -> None:
    """Refuse two answers on stdout."""
    flags = [flag for flag, path in files.items() if path == _STDOUT] + ["--json"] * as_json
    if len(flags) > 1:
        raise click.UsageError(f"{' and '.join(flags)} all print on stdout: name files for all but one")


def _write(path: Path, content: bytes, flag: str) -> None:
    """Write a file, or stdout for ``-``."""
    if path == _STDOUT:
        click.echo(content, nl=False)
        return
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint=f"name another file for {flag}") from error
