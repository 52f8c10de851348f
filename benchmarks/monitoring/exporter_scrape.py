"""Measures a scrape on a node with 8 GPUs, 8 HCAs, RAPL and a job: ``python -m benchmarks.monitoring.exporter_scrape``.

Starts a real ``opsk exporter`` on a fake node, with the NVML stand-in (so gcc is needed) for GPUs, lets it be scraped
over HTTP as Prometheus does (OpenMetrics, gzip), and reads from the kernel what the exporter itself used: CPU seconds
and resident memory, which is to be as large after thousands of scrapes. Nodes with fewer and more HCAs show how the
cost grows. `benchmarks.monitoring.exporter_infiniband` measures the InfiniBand part beside node_exporter.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import cpu_s
from tests.fakes.exporter import Exporter, having, series
from tests.fakes.full_node import full_node
from tests.fakes.nvml import Nvml

STARTS, SHORT_STARTS = 5, 1
SCRAPES, SHORT_SCRAPES = 10_000, 10
HCAS = 8
GROWTH = (1, 2, 4, 8, 16, 32)
"""HCAs of a node."""
GROWTH_SCRAPES = 100
LOOKS = 10
AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept_Encoding": "gzip",
    "X_Prometheus_Scrape_Timeout_Seconds": "10",
}


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    if shutil.which("gcc") is None:
        raise NotRunError("gcc is not installed: the NVML stand-in cannot be built")
    scrapes = SHORT_SCRAPES if asked.short else asked.scrapes
    points = list[tuple[float, float]]()
    for hcas in GROWTH[:1] if asked.short else GROWTH:
        with node_with_exporter(hcas=hcas, jobs=asked.jobs) as (exporter, _):
            points.append((hcas, measure_scrapes(exporter, min(scrapes, GROWTH_SCRAPES))["cpu_s"]))
    with node_with_exporter(hcas=HCAS, jobs=asked.jobs, starts=SHORT_STARTS if asked.short else STARTS) as (
        exporter,
        start_s,
    ):
        for collector, seconds in collectors(exporter):
            print(f"  {collector:<19s} {seconds * 1e3:8.1f} ms of wall time")
        figures = {**measure_scrapes(exporter, scrapes), "start_s": start_s}
        at_once(exporter)
    return Found(figures=figures, curves={"hcas": points})


@contextmanager
def node_with_exporter(*, hcas: int, jobs: int, starts: int = 1) -> Iterator[tuple[Exporter, float]]:
    """Run the exporter of a made-up node; give it and the shortest time of some starts [s]."""
    with tempfile.TemporaryDirectory() as folder:
        node, nvml = full_node(Path(folder), hcas=hcas, jobs=jobs), Nvml(Path(folder))
        environment = {**nvml.environment, "OPSK_CONFIG": str(node.site_file)}
        took = []
        for _ in range(starts):
            with Exporter(environment=environment) as exporter:
                took.append(exporter.start_s)
        print(f"{hcas} HCAs, {jobs} jobs: serves after {min(took) * 1e3:.0f} ms (best of {starts})")
        with Exporter(environment=environment) as exporter:
            yield exporter, min(took)


def collectors(exporter: Exporter) -> list[tuple[str, float]]:
    """Return what each collector took at the last scrape [s]."""
    told = having(exporter.scrape(), "opsk_collector_duration_seconds")
    return sorted((dict(labels)["collector"], seconds) for labels, seconds in told.items())


def measure_scrapes(exporter: Exporter, scrapes: int) -> dict[str, float]:
    """Scrape a running exporter; print and return what that cost it."""
    pid = exporter.process.pid
    for _ in range(10):
        body = exporter.get()[2]
    memory, mark = [], max(1, scrapes // LOOKS)
    before, wall = cpu_s(pid), time.monotonic()
    for number in range(scrapes):
        packed = exporter.get(**AS_PROMETHEUS)[2]
        if number % mark == mark - 1:
            memory.append(exporter.resident_bytes())
    wall_s, spent_s = (time.monotonic() - wall) / scrapes, (cpu_s(pid) - before) / scrapes
    print(
        f"series {len(series(body.decode())):,} ({len(body):,} bytes, {len(packed):,} packed): {spent_s * 1e3:.1f} ms "
        f"of CPU, {wall_s * 1e3:.1f} ms of wall time a scrape"
    )
    print(f"RSS over {scrapes} scrapes: {', '.join(f'{each / 1e6:.1f}' for each in memory)} MB", flush=True)
    return {"cpu_s": spent_s, "rss_bytes": max(memory), "growth_ratio": memory[-1] / memory[len(memory) // 5]}


def at_once(exporter: Exporter, scrapers: int = 10) -> None:
    """Print what ten scrapers at the same time cost together: they share the reading."""
    before = cpu_s(exporter.process.pid)
    with ThreadPoolExecutor(scrapers) as pool:
        list(pool.map(lambda _: exporter.get(**AS_PROMETHEUS), range(scrapers)))
    print(f"{scrapers} scrapers at once: {(cpu_s(exporter.process.pid) - before) * 1e3:.1f} ms of CPU for all")


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--scrapes", type=int, default=SCRAPES)
    parser.add_argument("--jobs", type=int, default=1)
    run(measure, parser)
