"""What does a scrape of the exporter cost on a node with 8 HCAs? Budget: < 25 ms of CPU a scrape, RSS < 60 MB.

``python benchmarks/exporter_scrape.py [--scrapes N]`` starts a real ``opsk exporter`` on a generated sysfs tree, lets
it be scraped over HTTP, and reads what the exporter itself used from the kernel: CPU seconds and resident memory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fakes.sysfs import SysfsTree  # noqa: E402

HCAS = 8
CPU_BUDGET_S = 0.025
RSS_BUDGET_BYTES = 60e6


def main() -> int:
    """Measure, print one line a quantity, and say whether the budgets hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=200)
    scrapes = parser.parse_args().scrapes
    with tempfile.TemporaryDirectory() as folder:
        tree = SysfsTree(Path(folder) / "sys")
        for index in range(HCAS):
            tree.add_hca(index)
        started = time.monotonic()
        command = [sys.executable, "-m", "opsk", "exporter", "--listen", "127.0.0.1:0", "--sysfs", str(tree.root)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as exporter:
            try:
                return measure(exporter, started, scrapes)
            finally:
                exporter.terminate()


def measure(exporter: subprocess.Popen[str], started: float, scrapes: int) -> int:
    """Scrape a running exporter and print what that cost it."""
    assert exporter.stderr is not None
    found = re.search(r"http://\S+", exporter.stderr.readline())
    if found is None:
        print("the exporter did not start", file=sys.stderr)
        return 3
    start_s = time.monotonic() - started
    process = psutil.Process(exporter.pid)
    for _ in range(10):
        body = fetch(found[0])
    early_rss = process.memory_info().rss
    before, wall = process.cpu_times(), time.monotonic()
    for _ in range(scrapes):
        body = fetch(found[0])
    wall_s = (time.monotonic() - wall) / scrapes
    after, rss = process.cpu_times(), process.memory_info().rss
    cpu_s = (after.user + after.system - before.user - before.system) / scrapes
    series = sum(not line.startswith(b"#") for line in body.splitlines())
    print(f"start to serving     {start_s * 1e3:8.1f} ms")
    print(f"series a scrape      {series:8d}")
    print(f"CPU a scrape         {cpu_s * 1e3:8.2f} ms   (budget {CPU_BUDGET_S * 1e3:.0f} ms)")
    print(f"wall time a scrape   {wall_s * 1e3:8.2f} ms")
    print(f"RSS after 10 scrapes {early_rss / 1e6:8.1f} MB")
    print(f"RSS after {scrapes + 10:<10d} {rss / 1e6:8.1f} MB   (budget {RSS_BUDGET_BYTES / 1e6:.0f} MB)")
    return 0 if cpu_s < CPU_BUDGET_S and rss < RSS_BUDGET_BYTES else 1


def fetch(address: str) -> bytes:
    """Return one scrape."""
    with urllib.request.urlopen(address, timeout=30) as answer:
        return bytes(answer.read())


if __name__ == "__main__":
    sys.exit(main())
