"""Implements ``opsk calibrate``: fits the efficiency parameters of the cost model to measured runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.app.learning.store_jobs import read_store_jobs, require_jobs
from opsk.app.site_store import open_site_store
from opsk.calibration.accuracy.first_looks import read_first_looks, select_newest
from opsk.calibration.calibration import calibrate as find_parameters
from opsk.calibration.calibration import calibration_document, render_calibration
from opsk.calibration.fitting.fit import FitSettings, Start
from opsk.calibration.fitting.offsets import SOURCE_LOG_SIGMA
from opsk.calibration.runs.runs import Run, read_runs
from opsk.cli.calibration.learning import build_output_document, learn, show_fit, undo
from opsk.cli.document import echo_json
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.errors import ExitStatus, InputError
from opsk.text import escape, to_json_values

_WIDTH_WITHOUT_TERMINAL = 110
MAX_PROCESSES = 8


@click.command()
@click.argument("runs_files", nargs=-1, metavar="[RUNS.csv]...", type=click.Path(path_type=Path))
@click.option("--from-store", is_flag=True, help="Take jobs of the site's store that ran well too.")
@click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Fit to a node that opsk probe measured as well; repeatable.",
)
@click.option(
    "--learn",
    "is_learning",
    is_flag=True,
    help="Fit to the store and to all measured nodes, and publish the fit if it is better: what opsk-learn.timer does.",
)
@click.option("--undo", "is_undone", is_flag=True, help="Go back to the fit before the published one.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the efficiencies here, as TOML.")
@click.option(
    "--source-exponent",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Weight of each run of a source of n runs: n^-P."
    f"  [default: {FitSettings().source_exponent} from priors, else 0]",
)
@click.option(
    "--from-priors",
    is_flag=True,
    help="Fit from the sourced priors on, as for the efficiencies that ship with opsk; needs many sources.",
)
@click.option(
    "--without",
    default="",
    metavar="SOURCE,...",
    help="Leave these sources out of everything: to be predicted afterwards as sources that were never seen.",
)
@click.option(
    "--first-looks",
    "first_looks_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Errors of sources that nobody had seen (CSV): with --from-priors, ranges are made to hold these as well."
    " The newest of several looks is left out: it tests the fit and the ranges.",
)
@click.option(
    "--most-assumed",
    type=click.IntRange(0, 100),
    default=5,
    show_default=True,
    metavar="N",
    help="Leave out runs with more assumed inputs; 0 fits to runs with every input stated.",
)
@click.option(
    "--cross-validation/--no-cross-validation",
    "leave_out",
    default=True,
    help="Leave out every source in turn and predict it, or not (quicker).",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Sources to leave out at the same time.  [default: one a core, at most 8]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def calibrate(
    runs_files: tuple[Path, ...],
    *,
    from_store: bool,
    probes: tuple[Path, ...],
    is_learning: bool,
    is_undone: bool,
    output: Path | None,
    source_exponent: float | None,
    from_priors: bool,
    without: str,
    first_looks_file: Path | None,
    most_assumed: int,
    leave_out: bool,
    processes: int | None,
    as_json: bool,
) -> int:
    """Fit the efficiencies of GPUs, links and software to the runs in one RUNS.csv or more, or to those in the store.

    The fit starts from the efficiencies that ship with opsk, as sure as those are, and finds how much slower the site
    runs each framework: a handful of runs is enough.

    Runs that were not measured, or whose notes say that they cannot be compared, are passed over. The file that
    --output writes is read by --efficiency of the other commands, and by the site configuration.

    With --probe or --learn, the fit has offsets of each kind of jobs and of memory too. It is taken only where the
    site's jobs, left out one by one, are predicted better than before; it says what moved, and names jobs that the
    others contradict.

    Exit status: 0 a fit; 1 one that is not taken, as it is no better; 2 a table or a measurement cannot be read, or
    there is nothing to fit to.
    """
    if output is not None and not output.parent.is_dir():
        raise InputError(escape(f"{output}: there is no folder {output.parent}"), hint="make it first")
    if is_undone or is_learning or probes:
        if runs_files or from_priors or without:
            raise click.UsageError("--probe, --learn and --undo take no RUNS.csv, --from-priors or --without")
        if is_undone:
            return undo(as_json=as_json)
        return learn(probes, as_json=as_json) if is_learning else _fit_site(probes, output, from_store, as_json)
    if first_looks_file is not None and not from_priors:
        raise click.UsageError("--first-looks goes with --from-priors")
    if not runs_files and not from_store:
        raise click.UsageError("give RUNS.csv, --from-store, --probe, --learn or --undo")
    runs = tuple(run for path in runs_files for run in _read_runs(path))
    runs += _read_store_runs() if from_store else ()
    runs = _filter_runs(runs, {source for name in without.split(",") if (source := name.strip())})
    looks = read_first_looks(first_looks_file) if first_looks_file is not None else ()
    newest = select_newest(looks)
    runs = tuple(run for run in runs if run.source not in {look.source for look in newest})
    result = find_parameters(
        runs,
        _build_settings(from_priors=from_priors, source_exponent=source_exponent, most_assumed=most_assumed),
        processes=processes or min(os.cpu_count() or 1, MAX_PROCESSES),
        leave_out=leave_out,
        first_looks=[look for look in looks if look not in newest],
        progress=lambda line: click.echo(f"opsk: {escape(line)}", err=True),
    )
    if output is not None:
        _write_atomically(output, render_calibration(result))
    document = {**calibration_document(result), "output": output}
    if as_json:
        echo_json(document)
    else:
        print_calibration(document)
    return ExitStatus.ANSWER


def _fit_site(probes: Sequence[Path], output: Path | None, from_store: bool, as_json: bool) -> int:
    """Fit to measured nodes and to jobs of the store, and write the fit where it is better."""
    status, result, text = show_fit(probes, from_store=from_store, as_json=as_json)
    if output is not None and result.fit.is_taken:
        _write_atomically(output, result.text)
    if as_json:
        echo_json(build_output_document(result, output))
        return status
    click.echo(text, nl=False)
    if output is not None:
        click.echo(escape(f"written to {output}") if result.fit.is_taken else "nothing is written")
    return status


def _read_store_runs() -> tuple[Run, ...]:
    """Return the timed jobs of the site's store, and report those that do not count."""
    jobs = require_jobs(read_store_jobs(open_site_store(writing=False), with_memory=False))
    reasons = jobs.describe_left_out()
    click.echo(
        f"opsk: {len(jobs.runs.runs)} jobs of the store count" + (f"; left out: {reasons}" if reasons else ""), err=True
    )
    for run in jobs.runs.unpredictable:
        click.echo(escape(f"opsk: job {run.id} of the store cannot be predicted: {run.why}"), err=True)
    return jobs.runs.runs


def _read_runs(path: Path) -> tuple[Run, ...]:
    """Return the runs of a table, and warn of unknown columns."""
    table = read_runs(path)
    if table.unknown_columns:
        names = escape(", ".join(table.unknown_columns))
        click.echo(f"opsk: columns that are not known and say nothing: {names}", err=True)
    return table.runs


def _filter_runs(runs: tuple[Run, ...], without: Set[str]) -> tuple[Run, ...]:
    """Return the runs of the other sources."""
    sources = {run.source for run in runs}
    if missing := sorted(without - sources):
        raise InputError(
            escape(f"--without {', '.join(missing)}: no run of the table is of this source"),
            hint=escape(f"its sources are {', '.join(sorted(sources))}") if sources else "the table has no runs",
        )
    return tuple(run for run in runs if run.source not in without)


def _build_settings(*, from_priors: bool, source_exponent: float | None, most_assumed: int) -> FitSettings:
    """Return the fit settings; all runs of a site have the same weight."""
    usual = FitSettings(max_assumed=most_assumed)
    if from_priors:
        return usual if source_exponent is None else replace(usual, source_exponent=source_exponent)
    return replace(
        usual,
        start=Start.BASE,
        source_exponent=source_exponent or 0.0,
        offset_log_sigma=DEFAULT.spread.time_offset_log_sigma or SOURCE_LOG_SIGMA,
    )


def _write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("x", encoding="utf-8") as file:  # follows no existing link
            file.write(text)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file with --output") from error


def print_calibration(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk calibrate`` for people."""
    shown = to_json_values(document)
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(Text(escape(f"fitted to {shown['fit']['description']}"), style="bold"), soft_wrap=True)
    console.print(_build_parameter_table(shown["parameters"]))
    console.print(_format_unidentified(shown["parameters"]), soft_wrap=True)
    console.print()
    console.print(_build_offset_table(document["offsets"]))
    console.print()
    console.print(_build_error_table(shown["fit"], shown["cross_validation"]))
    console.print(_format_spread(shown["spread"]), soft_wrap=True)
    if shown["output"]:
        console.print(Text(escape(f"written to {shown['output']}")), soft_wrap=True)


def _build_parameter_table(parameters: Mapping[str, Any]) -> Table:
    """Return the table of parameters that the runs identify."""
    table = Table(box=None, pad_edge=False)
    table.add_column("parameter")
    for name in ("value", "±", "prior", "runs"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    for name, known in parameters.items():
        if known["identified"]:
            numbers = [f"{known[key]:.3g}" for key in ("value", "standard_error", "prior")]
            table.add_row(Text(escape(name)), *numbers, str(known["runs"] or "shared"), known["unit"])
    return table


def _format_unidentified(parameters: Mapping[str, Any]) -> Text:
    """Return the number of parameters that stayed at their prior."""
    count = sum(not known["identified"] for known in parameters.values())
    return Text(f"{count} of {len(parameters)} parameters are not determined by these runs and stay at their prior")


def _build_offset_table(offsets: Sequence[Mapping[str, Any]]) -> Table:
    """Return how much slower than predicted sources, or the site, run each family of software."""
    table = Table(box=None, pad_edge=False)
    table.add_column("offset of time")
    for name in ("measured / predicted", "±", "runs"):
        table.add_column(name, justify="right")
    for offset in offsets:
        name = f"{offset['source'] or 'all sources'}, {offset['software'] or 'any software'}"
        table.add_row(
            Text(escape(name)),
            f"{math.exp(offset['log']):.2f}",
            f"{offset['log_sigma']:.2f}",
            str(offset["runs"]),
        )
    return table


def _build_error_table(fit: Mapping[str, Any], validated: Mapping[str, Any] | None) -> Table:
    """Return the errors by source, and of all."""
    table = Table(box=None, pad_edge=False)
    table.add_column("source")
    for name in ("runs", "median", "P90", "bias", "left out: median", "P90", "bias"):
        table.add_column(name, justify="right")
    rows = [
        (name, figures, (validated or {}).get("by_source", {}).get(name)) for name, figures in fit["by_source"].items()
    ]
    rows += [(name, fit[name], (validated or {}).get(name)) for name in ("stated", "assumed", "overall") if fit[name]]
    for name, inside, outside in rows:
        table.add_row(Text(escape(name)), str(inside["runs"]), *_format_figures(inside), *_format_figures(outside))
    return table


def _format_figures(figures: Mapping[str, float] | None) -> list[str]:
    """Return median, P90 and bias as shares."""
    if figures is None:
        return ["", "", ""]
    return [f"{figures['median']:.1%}", f"{figures['p90']:.1%}", f"{figures['bias']:+.1%}"]


def _format_spread(spread: Mapping[str, Any]) -> Text:
    """Return the width of the ranges, and their coverage."""
    held = spread["coverage"]
    words = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in held.items() if isinstance(share, float)]
    sigmas = [f"{name} {spread[name]:.3f}" for name in spread if name != "coverage"]
    return Text(f"ranges: {', '.join(sigmas)}; they hold of {', of '.join(words)}")
