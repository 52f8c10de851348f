"""Implements ``opsk probe``: measures a node, writes the batch script that does, and shows a measurement."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import click

from opsk.app.inputs.named_inputs import load_cluster, load_efficiency
from opsk.app.learning.nodes import read_probe
from opsk.cli.document import echo_json
from opsk.cli.probe.page import describe_machine, render_page
from opsk.config import load_site
from opsk.errors import OpskError, UnavailableError
from opsk.probe.batch_script import read_program, write_batch_script
from opsk.probe.comparison import Compared, compare, find_implausible, find_probe_cluster, summarise_ratios
from opsk.probe.document import ProbeDocument
from opsk.text import escape, format_share

DEADLINE_S = 660.0
"""The program stops by itself before; this is for one that hangs in a driver [s]."""


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--sbatch", "is_script", is_flag=True, help="Print the batch script that measures; submit it with sbatch."
)
@click.option(
    "--nodes", default=1, show_default=True, help="With --sbatch: 1 node, or 2 to 8 for the links between them."
)
@click.option("--gpus-per-node", default=8, show_default=True, help="With --sbatch: GPUs of each node.")
@click.option("--python", default="python3", show_default=True, help="The Python that has PyTorch.")
@click.option(
    "--output", default="", help="File of the measurement; with --sbatch it is named after the job by default."
)
@click.option("--seconds", default=540.0, show_default=True, help="Longest time of a measurement here [s].")
@click.option("--cpu", is_flag=True, help="Measure processors in small sizes, to try it.")
@click.option("--cluster", help="Cluster to compare with: a catalogue name or a TOML file; by default the site's.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page of FILE, with charts, to this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def probe(
    file: Path | None,
    *,
    is_script: bool,
    nodes: int,
    gpus_per_node: int,
    python: str,
    output: str,
    seconds: float,
    cpu: bool,
    cluster: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Measure what a node's GPUs, memory, host links and collectives reach, with the PyTorch that the node has.

    With FILE, show a measurement: each value with the one that opsk expects of the same GPU. Without FILE, measure this
    node.

    Exit status: 0 measured or shown; 2 FILE cannot be used; 3 no PyTorch, or no GPU.
    """
    if is_script:
        click.echo(write_batch_script(nodes=nodes, gpus_per_node=gpus_per_node, python=python, output=output), nl=False)
        return
    if file is None:
        file = Path(output or "opsk-probe.json")
        _measure(python, file, seconds=seconds, cpu=cpu)
    document = read_probe(file)
    warnings = list_warnings(document)
    rows: tuple[Compared, ...] = ()
    try:
        rows = _compare(document, cluster)
        warnings += [
            f"{escape(' '.join(key))} is {ratio:.2g} times what opsk expects: opsk calibrate does not use it"
            for key, ratio in find_implausible(rows).items()
        ]
    except OpskError as error:
        warnings.append(f"not compared: {error.message}")
    if html is not None:
        html.write_text(render_page(document, rows, warnings), encoding="utf-8")
    if as_json:
        echo_json(build_document(document, rows, warnings))
    else:
        _print(document, rows, warnings)


def list_warnings(document: ProbeDocument) -> list[str]:
    """Return what makes a measurement less certain."""
    warnings = []
    if document.throttled_share > 0:
        share = format_share(document.throttled_share)
        warnings.append(f"heat held the clock down in {share} of the measurements: they count less")
    if document.disturbed:
        warnings.append(f"{document.disturbed} measurements varied by more than 10 %: was the node shared?")
    warnings += [f"{escape(row.part)} not measured: {escape(row.why)}" for row in document.skipped]
    return warnings


def build_document(document: ProbeDocument, rows: tuple[Compared, ...], warnings: list[str]) -> dict[str, object]:
    """Return the answer as JSON values."""
    return {
        "machine": document.machine.model_dump(),
        "took_s": document.took_s,
        "throttled_share": document.throttled_share,
        "warnings": warnings,
        "ratios": [
            {"part": part, "series": series, "ratio": ratio}
            for (part, series), ratio in summarise_ratios(rows).items()
        ],
        "rows": [
            {"part": row.part, "series": row.series, "label": row.label, "unit": row.unit, "measured": row.measured,
             "expected": row.expected}
            for row in rows
        ],
    }  # fmt: skip


def _measure(python: str, output: Path, *, seconds: float, cpu: bool) -> None:
    """Run the program with the node's own Python.

    Raises
    ------
    UnavailableError
        There is no such Python, no PyTorch or no GPU, or the program does not end.
    """
    with tempfile.TemporaryDirectory(prefix="opsk-probe-") as folder:
        program = Path(folder) / "opsk_probe.py"
        program.write_text(read_program(), encoding="utf-8")
        argv = [python, str(program), "--output", str(output), "--seconds", str(seconds), *(["--cpu"] if cpu else [])]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False
            )
        except OSError as error:
            raise UnavailableError(f"{python}: {error.strerror}", hint="name a Python with --python") from error
        except subprocess.TimeoutExpired as error:
            raise UnavailableError("the measurement does not end", hint="see dmesg for the GPU's driver") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnavailableError(escape(lines[-1].removeprefix("opsk probe: ")) if lines else "the measurement failed")


def _compare(document: ProbeDocument, cluster: str | None) -> tuple[Compared, ...]:
    """Return the values with the expected ones.

    Raises
    ------
    OpskError
        The GPU is unknown, or another than the cluster's.
    """
    named = cluster or load_site().cluster
    spec = find_probe_cluster(document, load_cluster(named) if named is not None else None)
    return compare(document, spec, load_efficiency(None))


def _print(document: ProbeDocument, rows: tuple[Compared, ...], warnings: list[str]) -> None:
    click.echo(describe_machine(document.machine))
    for (part, series), ratio in summarise_ratios(rows).items():
        click.echo(f"  {part:<12} {series:<24} {ratio:.2f} of what opsk expects")
    for text in warnings:
        click.echo(f"  ! {text}")
