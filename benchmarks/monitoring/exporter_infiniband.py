"""Compares what 8 HCAs add to a scrape of opsk's exporter and of Prometheus' own node_exporter.

``python -m benchmarks.monitoring.exporter_infiniband`` starts both on one generated sysfs tree, with the InfiniBand
collector alone, scrapes them in turn in short blocks of one run, and reads from the kernel what CPU each used. The
ratio is that of the medians. node_exporter of the release at hand may read fewer files: series are counted for both.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import cpu_s, rss_bytes
from tests.fakes.exporter import Exporter
from tests.fakes.node_exporter import fetch, node_exporter, node_exporter_program
from tests.fakes.sysfs import SysfsTree

HCAS = 8
SCRAPES, SHORT_SCRAPES = 50, 3
PAIRS, SHORT_PAIRS = 7, 1


def measure(asked: argparse.Namespace) -> Found:
    """Print one line a quantity, and return the figures of both."""
    program = node_exporter_program()
    if program is None:
        raise NotRunError("node_exporter (Debian package prometheus-node-exporter) is not installed")
    pairs, scrapes = (SHORT_PAIRS, SHORT_SCRAPES) if asked.short else (asked.pairs, asked.scrapes)
    with tempfile.TemporaryDirectory() as folder:
        tree = SysfsTree(Path(folder) / "sys")
        for index in range(HCAS):
            tree.add_hca(index)
        with (
            Exporter("--sysfs", tree.root, "--collectors", "infiniband") as ours,
            node_exporter(program, tree.root) as theirs,
        ):
            return compare_exporters((f"{ours.address}/metrics", ours.process.pid), theirs, pairs, scrapes)


def compare_exporters(ours: tuple[str, int], theirs: tuple[str, int], pairs: int, scrapes: int) -> Found:
    """Scrape both in turn; print and return what each used."""
    for address, _ in (ours, theirs):
        block(address, 0, 10)
    mine, other = [], []
    for _ in range(pairs):
        mine.append(block(*ours, scrapes))
        other.append(block(*theirs, scrapes))
    found = Found()
    for name, (address, pid), seconds in (("opsk", ours, mine), ("node_exporter", theirs, other)):
        series = sum("_infiniband_" in line and not line.startswith("#") for line in fetch(address).splitlines())
        spent_s, resident = statistics.median(seconds), rss_bytes(pid)
        found.figures |= {f"{name}_cpu_s": spent_s, f"{name}_series_count": series, f"{name}_rss_bytes": resident}
        print(
            f"{name:14} {spent_s * 1e3:7.2f} ms of CPU a scrape   {series:5d} InfiniBand series   "
            f"{spent_s / series * 1e6:6.2f} us a series   RSS {resident / 1e6:5.1f} MB"
        )
    found.figures["cpu_ratio"] = statistics.median(mine) / max(statistics.median(other), 1e-6)
    print(f"CPU ratio      {found.figures['cpu_ratio']:7.2f}   (opsk / node_exporter)")
    return found


def block(address: str, pid: int, scrapes: int) -> float:
    """Return the CPU time that a process uses for a scrape [s]; without a process, only scrape."""
    before = cpu_s(pid) if pid else 0.0
    for _ in range(scrapes):
        fetch(address)
    return (cpu_s(pid) - before) / scrapes if pid else 0.0


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--scrapes", type=int, default=SCRAPES, help="a block")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="blocks of each")
    run(measure, parser)
