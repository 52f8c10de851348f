"""Implements ``opsk validate``: compares predictions of the cost model with measured runs."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.app.inputs.efficiency import load_efficiency
from opsk.calibration.accuracy.validation import validate_runs, validation_document
from opsk.calibration.runs.runs import read_runs
from opsk.cli.calibration.validation_text import print_validation
from opsk.cli.document import echo_json
from opsk.errors import ExitStatus


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
