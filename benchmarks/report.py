"""Runs the benchmarks and renders docs/performance.md from their results: ``python -m benchmarks.report``.

It runs the benchmarks one after the other, or those that are named, shows what they print, stores each result in
``benchmarks/results/`` with machine and date, and renders the page from all results: one benchmark can be run again
without the others. A benchmark that cannot run here, or fails, leaves its earlier result as it is and is named at the
end. ``--list`` shows how long each takes; ``--render`` only renders; ``--short`` runs all in small and stores nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.catalogue import BENCHMARKS, Benchmark, find_benchmark
from benchmarks.found import NOT_RUN_STATUS, Found
from benchmarks.growth import picture
from benchmarks.machine import this_machine
from benchmarks.page import page
from benchmarks.results import Result, read_results, write_result

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance-growth.svg"
TO_CLEAN_UP_S = 60.0
"""For a benchmark that is ended, to end what it started."""


def main() -> int:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *(each.name for each in BENCHMARKS)], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="tell what there is, and how long each takes")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page from what is kept")
    parser.add_argument("--short", action="store_true", help="small and once, keep nothing")
    asked = parser.parse_args()
    # a shell that starts this in the background has it, and what it starts, ignore what ends a benchmark
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [find_benchmark(name) for name in asked.names] or [each for each in BENCHMARKS if is_usual(each)]
    if asked.list:
        tell(chosen)
        return 0
    left_out = [] if asked.render else measure(chosen, is_short=asked.short)
    if not asked.short:
        write_page()
    if left_out:
        print("no new figures of: " + "; ".join(left_out))
    return 0


def is_usual(benchmark: Benchmark) -> bool:
    """Say whether a benchmark runs when none is named."""
    return not benchmark.is_asked_for and (not benchmark.wants or benchmark.wants in os.environ)


def tell(chosen: list[Benchmark]) -> None:
    """Print what there is."""
    for benchmark in BENCHMARKS:
        when = "" if is_usual(benchmark) else f" (only with {benchmark.wants}=)" if benchmark.wants else " (if named)"
        print(f"{benchmark.name:20} {benchmark.usual_s / 60:5.1f} min   {benchmark.title}{when}")
    print(f"{'those that run':20} {sum(each.usual_s for each in chosen) / 60:5.1f} min")


def measure(chosen: list[Benchmark], *, is_short: bool) -> list[str]:
    """Run benchmarks and keep what they find; return those without figures, each with why."""
    left_out = []
    for number, benchmark in enumerate(chosen, start=1):
        rest_s = sum(each.usual_s for each in chosen[number - 1 :])
        left = "" if is_short else f"; about {benchmark.usual_s:.0f} s of {rest_s / 60:.0f} min that are left"
        print(f"== [{number}/{len(chosen)}] {benchmark.name}: {benchmark.title}{left}", flush=True)
        result = ran(benchmark, is_short=is_short)
        if isinstance(result, str):
            left_out.append(f"{benchmark.name} ({result})")
        elif not is_short:
            write_result(benchmark.name, result)
            write_page()
    return left_out


def ran(benchmark: Benchmark, *, is_short: bool) -> Result | str:
    """Run one benchmark in a process of its own, and show what it prints; without figures return why."""
    load, began, said = os.getloadavg()[0], time.monotonic(), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        process = subprocess.Popen(
            build_command(benchmark, path, is_short=is_short),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        late = threading.Timer(benchmark.most_s, end, [process])
        late.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.rstrip())
                print(f"   {said[-1]}", flush=True)
            status = process.wait()
        finally:
            late.cancel()
            end(process)
        if status == NOT_RUN_STATUS:
            return said[-1] if said else "not run"
        if status or not path.exists():
            return f"ended with status {status}" + (f": {said[-1]}" if said else "")
        found = Found(**json.loads(path.read_text(encoding="utf-8")))
    return Result(
        date=datetime.now(UTC).date().isoformat(),
        machine=this_machine(),
        load=load,
        took_s=time.monotonic() - began,
        found=found,
        said=tuple(said),
    )


def build_command(benchmark: Benchmark, found: Path, *, is_short: bool) -> list[str]:
    """Return the command of a benchmark, with the value of the variable that it wants."""
    wanted = [os.environ[benchmark.wants]] if benchmark.wants in os.environ else []
    words = [benchmark.path, *benchmark.options, *wanted, "--found", str(found)]
    return [sys.executable, "-P", "-m", *words, *(["--short"] if is_short else [])]


def end(process: subprocess.Popen[str]) -> None:
    """End a benchmark that still runs: asked first, so that it can take down what it started."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TO_CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def write_page() -> None:
    """Write the page and its picture from what is kept."""
    results = read_results()
    PICTURE.write_text(picture(results), encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; what was measured before is kept")
        sys.exit(130)
