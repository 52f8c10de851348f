"""Measures what it costs to keep a large cluster's view up to date: ``python -m benchmarks.monitoring.tui_data``.

A made-up Prometheus answers in another process for 2,000 nodes, 16,000 GPUs and 500 jobs, and an advisor shares Slurm's
jobs. Measured is the processor time of the process alone that shows: all threads of the feed, the first view of all and
one every 5 s. Smaller clusters, each in a process of its own, show how the first view grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import own_peak_bytes
from opsk.config import SiteConfig
from opsk.errors import SlurmError
from opsk.slurm.commands.remap_commands import Who
from opsk_tui.data.feed import ClusterFeed


class NoSlurm:
    """Is never asked: the advisor shares."""

    def __getattr__(self, name: str) -> object:
        raise SlurmError(f"asked for {name}")


REFRESH_S = 5.0
NODES, ROUNDS = 2000, 6
SHORT_NODES, SHORT_ROUNDS = 40, 1
GROWTH = (250, 500, 1000)
"""Nodes of smaller clusters."""


async def measure_cluster(url: str, advisor: Path, rounds: int) -> dict[str, float]:
    """Follow a cluster for so many refreshes; print and return what they took."""
    site = SiteConfig.model_validate(
        {"advisor": {"socket": str(advisor)}, "top": {"prometheus": url, "refresh_s": REFRESH_S}}
    )
    began = time.process_time()
    feed = ClusterFeed(site, slurm=NoSlurm(), rights=lambda: (Who.USER,))  # type: ignore[arg-type]
    spent, last = list[float](), time.monotonic()
    full = None
    try:
        async for view in feed.views():
            if full is None and view.gpus is not None and len(view.gpus.values) >= 7 and view.jobs:
                full = time.process_time() - began
                print(
                    f"full reload: {full * 1e3:.0f} ms of CPU, {len(view.nodes)} nodes, {len(view.jobs)} jobs",
                    flush=True,
                )
                began, last = time.process_time(), time.monotonic()
            elif full is not None and time.monotonic() - last >= REFRESH_S:
                spent.append((time.process_time() - began) * REFRESH_S / (time.monotonic() - last))
                began, last = time.process_time(), time.monotonic()
            if full is not None and len(spent) >= rounds:
                break
    finally:
        await feed.close()
    figures = {"reload_cpu_s": full or 0.0, "rss_bytes": float(own_peak_bytes())}
    if spent:
        figures |= {"refresh_cpu_s": statistics.mean(spent), "worst_refresh_cpu_s": max(spent)}
        print(
            f"each {REFRESH_S:g} s: mean {statistics.mean(spent) * 1e3:.0f} ms, worst {max(spent) * 1e3:.0f} ms of CPU"
        )
    print(f"largest memory: {figures['rss_bytes'] / 1e6:.0f} MB", flush=True)
    return figures


def follow_cluster(nodes: int, rounds: int) -> dict[str, float]:
    """Follow a cluster of so many nodes, and a quarter as many jobs."""
    with tempfile.TemporaryDirectory() as folder:
        # loading what reads a store takes half a second, as loading Python's parts does, and is no reload
        os.environ["XDG_STATE_HOME"] = folder
        advisor = Path(folder) / "advisor.sock"
        command = (sys.executable, "-P", "-m", "tests.fakes.large_cluster", str(nodes), str(nodes // 4), str(advisor))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as prometheus:
            try:
                assert prometheus.stdout is not None
                url = prometheus.stdout.readline().strip()
                return asyncio.run(measure_cluster(url, advisor, rounds))
            finally:
                prometheus.terminate()


def reload_s(nodes: int) -> float:
    """Return the CPU time of a first view in a process of its own [s]."""
    command = (sys.executable, "-P", "-m", "benchmarks.monitoring.tui_data", "--one", str(nodes))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["reload_cpu_s"])


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    nodes, rounds = (SHORT_NODES, SHORT_ROUNDS) if asked.short else (NODES, asked.rounds)
    points = [(smaller, reload_s(smaller)) for smaller in (GROWTH[:0] if asked.short else GROWTH)]
    figures = follow_cluster(nodes, rounds)
    return Found(figures=figures, curves={"nodes": [*points, (nodes, figures["reload_cpu_s"])]})


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="refreshes that are waited for")
    parser.add_argument("--one", type=int, metavar="NODES", help=argparse.SUPPRESS)
    if one := parser.parse_args().one:
        print(json.dumps(follow_cluster(one, 0)))
    else:
        run(measure, parser)
