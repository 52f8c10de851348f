"""How long does a calibration take? ``python -m benchmarks.calibrate_speed RUNS.csv [--processes N]``.

Prints the seconds of reading, of one evaluation of the model over all runs, of a fit, and of leaving every source out.
No aim: it should stay short enough to be run while one thinks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from opsk.calibration.cross_validation import cross_validate
from opsk.calibration.fit import TimedRuns, fit_time
from opsk.calibration.runs import read_runs
from opsk.calibration.timed_runs import timed_runs

Answer = TypeVar("Answer")


def timed(what: Callable[[], Answer], *, repeat: int = 1) -> tuple[float, Answer]:
    """Return the median seconds of some calls, and the last answer."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        answer = what()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    reading_s, table = timed(lambda: read_runs(arguments.runs))
    runs = timed_runs(table.runs)
    prepared = TimedRuns(runs)
    fit_s, fit = timed(lambda: fit_time(runs), repeat=3)
    evaluation_s, _ = timed(lambda: prepared.log_errors(fit.efficiency), repeat=21)
    leaving_out_s, _ = timed(lambda: cross_validate(runs, processes=arguments.processes))
    sources = len({run.source for run in runs})
    print(f"{reading_s:8.2f} s   read {len(table)} rows")
    print(f"{evaluation_s:8.4f} s   predict {len(runs)} runs once")
    print(f"{fit_s:8.2f} s   fit {len(fit.parameters)} parameters in {fit.steps} steps")
    print(f"{leaving_out_s:8.2f} s   leave {sources} sources out, {arguments.processes} at the same time")


if __name__ == "__main__":
    main()
