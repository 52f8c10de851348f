"""Implements ``opsk validate``: compares predictions of the cost model with measured runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.calibration.accuracy.scoring import ErrorSummary, Reliability, ScoredRun
from opsk.calibration.accuracy.validation import Validation, validate_runs, validation_document
from opsk.calibration.runs.runs import read_runs
from opsk.cli.document import echo_json
from opsk.errors import ExitStatus
from opsk.text import escape

_WIDTH_WITHOUT_TERMINAL = 120
_MAX_UNPREDICTABLE, _MAX_ODDITIES = 10, 10
_GROUP_TITLES = {"gpu": "GPU", "arch": "kind of model", "source": "source", "size": "parameters"}


@click.command()
@click.argument("runs_file", metavar="RUNS.csv", type=click.Path(path_type=Path))
@click.option(
    "--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote, instead of the shipped ones."
)
@click.option("--worst", type=click.IntRange(0, 1000), default=10, metavar="N", help="Rows shown that miss most (10).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def validate(runs_file: Path, *, efficiency: str | None, worst: int, as_json: bool) -> int:
    """Predict every row of RUNS.csv, and compare with what its columns say was measured.

    Measured columns may be missing. Inputs that a row does not state are filled in; each is listed as assumed.

    Exit status: 0 predictions, or a table without rows; 1 no row can be predicted; 2 the table cannot be read.
    """
    validation = validate_runs(read_runs(runs_file), load_efficiency(efficiency))
    if as_json:
        echo_json(validation_document(validation))
    else:
        print_validation(validation, worst=worst)
    return ExitStatus.BAD_NEWS if validation.unpredictable and not validation.rows else ExitStatus.ANSWER


def print_validation(validation: Validation, *, worst: int) -> None:
    """Print a validation for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    report = validation.report
    console.print(_format_headline(validation))
    console.print()
    if any(report.time.values()):
        console.print(
            _build_error_table("time: error of the first of step time, tokens/s, TFLOP/s, MFU, HFU", report.time)
        )
    if any(report.memory.values()):
        console.print(_build_error_table("memory: error of the peak", report.memory))
    for group, members in report.groups.items():
        for kind in ("time", "memory"):
            rows = {key: value[kind] for key, value in members.items()}
            if any(rows.values()):
                console.print(_build_error_table(f"{kind} by {_GROUP_TITLES[group]}", rows))
    for name, reliability in report.reliability.items():
        if reliability is not None:
            console.print(_build_reliability_table(name, reliability))
    console.print(_format_out_of_memory(validation), soft_wrap=True)
    console.print()
    if worst and any(row.time for row in validation.rows):
        console.print(_build_worst_table(validation, worst))
    for line in _list_problems(validation):
        console.print(Text(escape(line), style="yellow"), soft_wrap=True)
    for row in validation.unpredictable[:_MAX_UNPREDICTABLE]:
        console.print(Text(escape(f"not predicted  {row.id}: {row.why}"), style="yellow"), soft_wrap=True)
    hidden = len(validation.unpredictable) - _MAX_UNPREDICTABLE
    if hidden > 0:
        console.print(Text(f"not predicted  {hidden} more, all of them with --json", style="yellow"))


def _list_problems(validation: Validation) -> Iterator[str]:
    """Yield the problems of a table: unknown columns, and problems of rows, most frequent first."""
    if validation.unknown_columns:
        yield f"columns that are not known and say nothing: {', '.join(validation.unknown_columns)}"
    counted = Counter(problem for row in validation.rows for problem in row.run.problems)
    for problem, rows in counted.most_common(_MAX_ODDITIES):
        yield f"{rows} row{'s' if rows > 1 else ''}: {problem}"
    if len(counted) > _MAX_ODDITIES:
        yield f"{len(counted) - _MAX_ODDITIES} more, all of them with --json"


def _format_headline(validation: Validation) -> Text:
    """Return how many rows were predicted, in one line."""
    rows = len(validation.rows) + len(validation.unpredictable)
    measured = sum(row.time is not None or row.memory is not None for row in validation.rows)
    text = Text(
        f"{len(validation.rows)} of {rows} rows predicted, {measured} compared with a measurement", style="bold"
    )
    return text.append(escape(f"  · efficiencies: {validation.fit}"), style="not bold")


def _add_title(title: str, table: Table) -> Group:
    """Return a table under its title, which may be wider."""
    return Group(Text(escape(title), style="bold"), table, Text())


def _build_plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2), pad_edge=False)


def _build_error_table(title: str, rows: Mapping[str, ErrorSummary | None]) -> Group:
    """Return a table of error summaries."""
    table = _build_plain_table()
    table.add_column("", min_width=16)
    for name in ("rows", "median |error|", "P90", "worst", "bias", "in range", "range"):
        table.add_column(name, justify="right")
    for name, summary in rows.items():
        if summary is None:
            continue
        table.add_row(
            Text(escape(name)),
            str(summary.rows),
            f"{summary.median_absolute_error:.1%}",
            f"{summary.p90_absolute_error:.1%}",
            f"{summary.max_absolute_error:.1%}",
            f"{summary.median_error:+.1%}",
            f"{summary.coverage:.0%}",
            f"±{summary.median_half_width:.0%}",
        )
    return _add_title(title, table)


def _build_reliability_table(name: str, reliability: Reliability) -> Group:
    """Return a reliability table."""
    title = (
        f"chance to fit ({name}): Brier {reliability.brier:.4f}, always the base rate {reliability.base_rate_brier:.4f}"
    )
    table = _build_plain_table()
    for column in ("predicted chance", "events", "mean", "came true"):
        table.add_column(column, justify="right")
    for entry in reliability.bins:
        table.add_row(
            f"{entry.low:.0%}–{entry.high:.0%}", str(entry.events), f"{entry.told:.1%}", f"{entry.happened:.1%}"
        )
    return _add_title(title, table)


def _format_out_of_memory(validation: Validation) -> Text:
    """Return the accuracy of the verdicts, in one line."""
    calls = validation.report.out_of_memory
    text = Text(f"out of memory  {calls.out_of_memory - len(calls.missed)} of {calls.out_of_memory} were seen coming")
    if calls.missed:
        text.append(escape(f" (missed: {', '.join(calls.missed)})"), style="red")
    text.append(f"; {len(calls.false_alarms)} false alarms in {calls.had_room} runs with room")
    if calls.false_alarms:
        text.append(escape(f" ({', '.join(calls.false_alarms[:5])}{' …' if len(calls.false_alarms) > 5 else ''})"))
    return text


def _build_worst_table(validation: Validation, count: int) -> Group:
    """Return the table of rows with the largest errors in time."""
    table = _build_plain_table()
    for name in ("run", "model", "GPUs", "plan", "quantity"):
        table.add_column(name)
    for name in ("measured", "predicted", "error"):
        table.add_column(name, justify="right")
    rows = sorted((row for row in validation.rows if row.time), key=_compute_miss, reverse=True)
    for row in rows[:count]:
        score, plan = row.time, row.run.plan
        if score is None:
            continue
        axes = f"TP{plan.tp} PP{plan.pp} DP{plan.dp} mbs {plan.micro_batch} {plan.recompute.value}"
        table.add_row(
            Text(escape(row.run.id)),
            Text(escape(row.run.model.name[:24])),
            Text(escape(f"{plan.gpus} {row.run.gpu}")),
            axes + ("" if score.is_stated else " (assumed)"),
            score.quantity,
            f"{score.measured:.4g}",
            f"{score.predicted:.4g}",
            f"{score.error:+.1%}",
        )
    return _add_title("worst in time", table)


def _compute_miss(row: ScoredRun) -> float:
    """Return the absolute time error of a row."""
    return abs(row.time.error) if row.time else 0.0
