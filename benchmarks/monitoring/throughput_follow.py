"""Measures what it costs to follow a log that is silent, that steps, or that floods.

``python -m benchmarks.monitoring.throughput_follow [--seconds N]`` starts a real ``opsk throughput --follow --json`` on
a log that already has an hour of steps, waits until it has told them, and reads from the kernel what it uses while the
log then grows as a training job's does, much faster, or not at all. Latency is from a line's write to its step's
arrival here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import cpu_s
from tests.fakes.progress_logs import megatron_line

STEPS_BEFORE = 1800
SECONDS, SHORT_SECONDS = 7.0, 2.5
NOISE = b"[rank0]: DEBUG a line that tells of no step, as launchers and libraries print them by the thousand\n"
LOADS = (("nothing", 0.0, 0), ("a step every 2 s", 0.5, 0), ("10 steps a second", 10.0, 0), ("1 MB/s", 1.0, 1 << 20),
         ("20 MB/s", 1.0, 20 << 20))  # fmt: skip


class Log:
    """A log that grows, and when each of its steps was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step = 0
        self.written_at: dict[int, float] = {}

    def write(self, steps: int, noise_bytes: int = 0) -> None:
        """Add steps, and bytes that tell nothing in front of them."""
        with self.path.open("ab") as file:
            file.write(NOISE * (noise_bytes // len(NOISE)))
            for _ in range(steps):
                self.step += 1
                file.write(f"{megatron_line(self.step, total=10**6)}\n".encode("ascii"))
                self.written_at[self.step] = time.monotonic()


def measure(asked: argparse.Namespace) -> Found:
    """Print one line a load, and return the largest share of a core."""
    seconds = SHORT_SECONDS if asked.short else asked.seconds
    shares = {}
    for name, steps_per_s, noise_bytes_per_s in LOADS[1:2] if asked.short else LOADS:
        with tempfile.TemporaryDirectory() as folder:
            shares[name], late_s, told = follow_log(Log(Path(folder) / "log"), steps_per_s, noise_bytes_per_s, seconds)
        late = f"told {median(late_s):5.2f} s late (median), {max(late_s):5.2f} s at most" if late_s else ""
        print(f"{name:20} {100 * shares[name]:6.3f} % of a core   {told}   {late}", flush=True)
    return Found(figures={"steps_share": shares["a step every 2 s"], "worst_share": max(shares.values())})


def follow_log(log: Log, steps_per_s: float, noise_bytes_per_s: int, seconds: float) -> tuple[float, list[float], str]:
    """Return the share of a core, how late each step was told [s], and how many were."""
    log.write(STEPS_BEFORE)
    command = [sys.executable, "-P", "-m", "opsk", "throughput", "--follow", "--json", str(log.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    arrived: dict[int, float] = {}
    caught_up = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout, start=1):
            at, found = time.monotonic(), line.partition(b'"iteration": ')[2].partition(b",")[0]
            arrived[int(found)] = at
            if count == STEPS_BEFORE:
                caught_up.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        caught_up.wait(60)
        time.sleep(3)
        before, began = cpu_s(process.pid), time.monotonic()
        interval_s = min(1 / steps_per_s, 0.1) if noise_bytes_per_s else 1 / (steps_per_s or 1)
        written = 0.0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * steps_per_s) - written
            log.write(int(due), int(noise_bytes_per_s * interval_s))
            written += int(due)
            time.sleep(interval_s)
        share = (cpu_s(process.pid) - before) / (time.monotonic() - began)
        time.sleep(3)
    finally:
        process.kill()
        process.wait()
        reader.join()
    new = [step for step in range(STEPS_BEFORE + 1, log.step + 1) if step in arrived]
    late_s = [arrived[step] - log.written_at[step] for step in new]
    return share, late_s, f"{len(new)} of {log.step - STEPS_BEFORE} steps"


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    run(measure, parser)
