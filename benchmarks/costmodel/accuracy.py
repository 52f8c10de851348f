"""Compares predictions with step times of sources: ``python -m benchmarks.costmodel.accuracy RUNS.csv PREFIX…``.

Prints the rows of the sources named by prefix one by one, as a Markdown table, with the shipped efficiencies, which
were fitted to most of them. What is known of all sources is in ``docs/accuracy.md``, and printed by ``opsk validate``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opsk.calibration.accuracy.predictions import predict_runs
from opsk.calibration.runs.conventions import measured_step_s
from opsk.calibration.runs.runs import Run, read_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRow:
    """A run with the predicted and the measured time of its step [s]; a published rate is turned into one."""

    run: Run
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1


def time_rows(path: Path) -> list[TimedRow]:
    """Return the rows of a table whose time can be compared."""
    runs = [run for run in read_runs(path).runs if run.is_time_scored]
    found, _ = predict_runs(runs)
    return [
        TimedRow(run=run, predicted_s=prediction.quantities["step_s"].expected, measured_s=float(seconds))
        for run, prediction, seconds in zip(runs, found, measured_step_s(runs), strict=True)
        if prediction is not None and np.isfinite(seconds)
    ]


def markdown(rows: Sequence[TimedRow], prefixes: tuple[str, ...]) -> str:
    """Return the rows of some sources as a Markdown table."""
    lines = [
        "| run | model | GPUs | plan | measured s | predicted s | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row.run.source.startswith(prefixes):
            plan = row.run.plan
            chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
            axes = f"TP{plan.tp} PP{plan.pp}{chunks} DP{plan.dp} mbs {plan.micro_batch}"
            recompute = f"{plan.recompute.value}{', SP' if plan.sequence_parallel else ''}"
            lines.append(
                f"| {row.run.id} | {row.run.model.name} | {plan.gpus} | {axes}, {recompute} | {row.measured_s:.2f} "
                f"| {row.predicted_s:.2f} | {row.error:+.1%} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    parser.add_argument("prefixes", nargs="+", help="sources whose rows are shown")
    asked = parser.parse_args()
    print(markdown(time_rows(asked.runs), tuple(asked.prefixes)), end="")


if __name__ == "__main__":
    main()
