"""Measures how long a calibration takes: ``python -m benchmarks.costmodel.calibrate_speed RUNS.csv [--processes N]``.

Prints the seconds of reading, of one evaluation of the model over all runs, of a fit, and of leaving every source out.
No aim: it should stay short enough to be run while one thinks.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import time_call
from opsk.calibration.accuracy.cross_validation import cross_validate
from opsk.calibration.calibration import select_timed_runs
from opsk.calibration.fitting.fit import TimedRuns, fit_time
from opsk.calibration.runs.runs import read_runs

LONGEST_SHORT = 12
"""Runs of a table that the short form fits to."""


def median_s(what: Callable[[], object], repeat: int) -> float:
    """Return the median seconds of some calls."""
    return statistics.median(time_call(what)[1] for _ in range(repeat))


def measure(asked: argparse.Namespace) -> Found:
    """Print and return how long it takes."""
    if asked.runs is None:
        raise NotRunError("no table of runs is named")
    table, reading_s, _ = time_call(lambda: read_runs(asked.runs))
    runs = select_timed_runs(table.runs[:LONGEST_SHORT] if asked.short else table.runs)
    prepared = TimedRuns(runs)
    fit, *_ = time_call(lambda: fit_time(runs))
    found = Found(figures={"fit_s": median_s(lambda: fit_time(runs), 1 if asked.short else 3)})
    evaluation_s = median_s(lambda: prepared.log_errors(fit.efficiency), 21)
    print(f"{reading_s:8.2f} s   read {len(table)} rows")
    print(f"{evaluation_s:8.4f} s   predict {len(runs)} runs once")
    print(f"{found.figures['fit_s']:8.2f} s   fit {len(fit.parameters)} parameters in {fit.steps} steps", flush=True)
    if not asked.short:
        left_out_s = found.figures["left_out_s"] = time_call(lambda: cross_validate(runs, processes=asked.processes))[1]
        sources = len({run.source for run in runs})
        print(f"{left_out_s:8.2f} s   leave {sources} sources out, {asked.processes} at the same time")
    return found


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--processes", type=int, default=1)
    run(measure, parser)
