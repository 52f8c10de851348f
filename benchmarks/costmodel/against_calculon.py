"""Measures how many plans a second opsk predicts and searches, and how many Calculon, where it is present.

``python -m benchmarks.costmodel.against_calculon CHECKOUT [--python PYTHON]``: CHECKOUT is a clone of
calculon-ai/calculon, PYTHON an interpreter that has its requirements (pandas, psutil). First one complete evaluation of
GPT-3 175B on 64 A100 (TP8 PP8x3, sequence parallelism, selective recomputation: Calculon's own validation case), done
as its search does it. Then both searches of that case: completed evaluations (predicted to the end: what its search
refuses and ours bounds away is told apart) a CPU second, Calculon's capped in time and as shipped, and with its logger
silenced from outside. Blocks of both in turn in one run, CPU seconds of one core. Calculon is no part of opsk and is
never fetched by it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.costmodel.calculon_driver import BATCH, GPUS
from benchmarks.costmodel.costmodel_rows import repeat_rows
from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.planning.search import get_model
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.catalog import cluster
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space
from opsk.workload.plan import Plan, Precision, Recompute, Software

BLOCKS = 5
SEARCH_BLOCKS = 2
SEARCH_CPU_S = 10.0
"""CPU seconds of one search of Calculon's, which would take hours to its end."""
DRIVER = Path(__file__).with_name("calculon_driver.py")
CALCULON_PLANS = 30
TABLE_PLANS = 100_000
ONE_PLAN_REPEATS = 200
TIME_LIMIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search did: CPU seconds, plans predicted to the end, and plans settled without."""

    cpu_s: float
    completed: int
    refused: int

    @property
    def rate(self) -> float:
        """Completed evaluations a CPU second; one is granted where there was none."""
        return max(self.completed, 1) / self.cpu_s

    @property
    def settled_rate(self) -> float:
        """All plans that were settled, a CPU second."""
        return (self.completed + self.refused) / self.cpu_s


def run_driver(checkout: Path, python: str, *words: str) -> list[float]:
    """Return the numbers that Calculon's driver prints."""
    command = [python, str(DRIVER), str(checkout), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S)
    return [float(word) for word in done.stdout.split()]


def calculon_s(checkout: Path, python: str) -> float:
    """Return the CPU seconds of one evaluation by Calculon."""
    return run_driver(checkout, python, "evaluate", str(CALCULON_PLANS))[0]


def calculon_search(checkout: Path, python: str, given_s: float, *, is_quiet: bool) -> Searched:
    """Return what Calculon's search does in the CPU time that it is given."""
    cpu_s, good, bad = run_driver(checkout, python, "search", str(given_s), *(["quiet"] if is_quiet else []))
    return Searched(cpu_s=cpu_s, completed=int(good), refused=int(bad))


def opsk_search(*, walk: bool) -> Searched:
    """Return what opsk's search of the same model, GPUs and batch does to its end; ``walk`` bounds nothing away."""
    template = Plan(global_batch=BATCH, precision=Precision.FP16, software=Software.MEGATRON)
    model, machine = get_model("GPT-3 175B"), cluster("selene")
    request = PlanRequest(model=model, cluster=machine, template=template, gpus=GPUS, global_batch=BATCH)
    start = time.process_time()
    *_, found = search_space(build_space(request), walk=walk)
    taken = time.process_time() - start
    return Searched(cpu_s=taken, completed=found.evaluated, refused=found.bounded)


def opsk_s(rows: int, repeats: int) -> float:
    """Return the CPU seconds a plan of a table of so many rows."""
    model, machine = get_model("GPT-3 175B"), cluster("titan")
    plan = Plan(
        tp=8,
        pp=8,
        vpp=3,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
        precision=Precision.FP16,
        global_batch=BATCH,
        software=Software.MEGATRON,
    )
    table = repeat_rows(PlanTable.of([plan]), rows)
    predict(model, table, machine)
    start = time.process_time()
    for _ in range(repeats):
        predict(model, table, machine)
    return (time.process_time() - start) / repeats / rows


def measure(asked: argparse.Namespace) -> Found:
    """Print both and their ratio, and return them."""
    if asked.checkout is None or not (asked.checkout / "bin" / "calculon").exists():
        raise NotRunError("no clone of Calculon is named")
    evaluations = compare_evaluations(asked.checkout, asked.python, 1 if asked.short else BLOCKS)
    given = (1, 1.0) if asked.short else (SEARCH_BLOCKS, SEARCH_CPU_S)
    return Found(figures={**evaluations, **compare_searches(asked.checkout, asked.python, *given)})


def compare_evaluations(checkout: Path, python: str, times: int) -> dict[str, float]:
    """Print and return what one evaluation takes."""
    blocks = [(calculon_s(checkout, python), opsk_s(1, ONE_PLAN_REPEATS), opsk_s(TABLE_PLANS, 1)) for _ in range(times)]
    theirs, one, row = (statistics.median(column) for column in zip(*blocks, strict=True))
    print(f"Calculon, one plan             {theirs * 1e3:9.2f} ms CPU {1 / theirs:12,.0f} plans/s")
    print(f"opsk, one plan                 {one * 1e3:9.2f} ms CPU {1 / one:12,.0f} plans/s")
    print(f"opsk, a table of {TABLE_PLANS:,} plans {row * 1e3:7.4f} ms CPU {1 / row:12,.0f} plans/s")
    ratios = [(a / b, a / c) for a, b, c in blocks]
    print(
        f"ratio in one run: one plan {statistics.median(r for r, _ in ratios):,.0f} x, "
        f"table {statistics.median(r for _, r in ratios):,.0f} x",
        flush=True,
    )
    return {
        "one_plan_s": one, "calculon_one_plan_s": theirs, "rows_per_s": 1 / row, "calculon_rows_per_s": 1 / theirs
    }  # fmt: skip


def compare_searches(checkout: Path, python: str, times: int, given_s: float) -> dict[str, float]:
    """Print and return what the searches complete."""
    blocks = [
        (
            calculon_search(checkout, python, given_s, is_quiet=False),
            calculon_search(checkout, python, given_s, is_quiet=True),
            opsk_search(walk=False),
            opsk_search(walk=True),
        )
        for _ in range(times)
    ]
    names = ("Calculon's search, as shipped", "the same, logger silenced", "opsk's search", "opsk, nothing bounded")
    keys, figures = ("calculon", "calculon_quiet", "opsk", "opsk_walk"), dict[str, float]()
    for place, (name, key) in enumerate(zip(names, keys, strict=True)):
        middle = sorted((block[place] for block in blocks), key=lambda one: one.rate)[times // 2]
        ratio = statistics.median(block[place].rate / block[0].rate for block in blocks)
        figures |= {f"{key}_completed_per_s": middle.rate, f"{key}_ratio": ratio}
        print(
            f"{name:30} {middle.completed:9,} completed, {middle.refused:9,} not, in {middle.cpu_s:6.2f} s CPU: "
            f"{middle.rate:11,.1f} completed/s, {middle.settled_rate:13,.0f} settled/s, {ratio:9,.0f} x",
            flush=True,
        )
    return figures


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("checkout", type=Path, nargs="?")
    parser.add_argument(
        "--python", default=os.environ.get("CALCULON_PYTHON", sys.executable), help="that has what Calculon requires"
    )
    run(measure, parser)
