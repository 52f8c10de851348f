"""Measures quick verdict and full advice on the example scripts: ``python -m benchmarks.jobcheck.advice``.

Read, complete and predict one plan; and that with ways out and the best plan. CPU time is reported: it does not depend
on what else the machine does. The figures are those of the 70B script; `benchmarks.jobcheck.live_advice` adds fabric
and neighbours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import median_p99
from opsk.hardware.catalog import cluster
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import record
from opsk_jobcheck.advice.rendering.terminal import lines
from opsk_jobcheck.scripts.script import read_script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REPEATS = 200
FULL_REPEATS = 50


FIGURES_OF = "llama3-70b-megatron"


def measure(asked: argparse.Namespace) -> Found:
    """Print median and P99 of every part, by script; return those of one."""
    quick = Adviser(cluster=cluster("superpod-h100"), search=False)
    full = Adviser(cluster=cluster("superpod-h100"))
    found = Found()
    print(f"{'script':28}{'part':16}{'median ms':>10}{'P99 ms':>10}")
    for path in sorted(EXAMPLES.glob("*.sbatch")):
        script = path.read_bytes()
        parts = (
            ("read", REPEATS, lambda script=script: read_script(script, file="job.sh")),
            ("quick verdict", REPEATS, lambda script=script: quick.advise(read_script(script, file="job.sh"))),
            ("full advice", FULL_REPEATS, lambda script=script: advise(full, script)),
        )
        for name, repeats, part in parts:
            median, p99 = time_calls(part, 2 if asked.short else repeats)
            print(f"{path.stem:28}{name:16}{median * 1e3:10.2f}{p99 * 1e3:10.2f}", flush=True)
            if path.stem == FIGURES_OF:
                key = name.replace(" ", "_")
                found.figures |= {f"{key}_median_s": median, f"{key}_p99_s": p99}
    return found


def advise(adviser: Adviser, script: bytes) -> None:
    """Do all that the advisor does for one submission: the lines for the terminal and the record, too."""
    advice = adviser.advise(read_script(script, file="job.sh"))
    lines(advice)
    record(advice)


def time_calls(part: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return median and P99 of the CPU time [s] of some warm calls."""
    part()
    times = []
    for _ in range(repeats):
        start = time.process_time_ns()
        part()
        times.append((time.process_time_ns() - start) / 1e9)
    return median_p99(times)


if __name__ == "__main__":
    run(measure, arguments(__doc__))
