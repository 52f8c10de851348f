"""Measures time and memory to read the logs of 512 ranks: ``python -m benchmarks.monitoring.postmortem``.

Writes logs of 2 MB a rank of a job that died, reads and explains them in a process of its own, and reads its peak
memory and that of its children (the largest set that was resident, summed) from the kernel. It goes on with longer
logs, which are to take the same time a byte in the same memory, up to 50 MB a rank (27 GB, of which a few distinct
files are written and the others are links to them; ``--most-mb 8`` leaves them out), and with one line of 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import Peak
from tests.fakes.progress_logs import megatron_line

RANKS, SHORT_RANKS = 512, 16
SIZES_MB, SHORT_SIZES_MB = (2, 8, 50), (0.05, 0.1)
"""Of a rank's log. The first is the one that a time was asked for."""
LINE_MB, SHORT_LINE_MB = 1024, 4
DISTINCT = 16
LINES = 4000
"""That are unlike, in one log."""
NOISE = (
    "[2026-01-05 10:00:{s:02d},123] [INFO] [loader.py:{n}] rank {rank} read shard {n} of 4096 in 0.{n:03d} s\n",
    "gpu-{node:03d}:4711:4799 [{local}] NCCL INFO Channel {n:02d}/0 : {rank}[{local}] -> {n}[3] [send] via NET/IB/3\n",
    "/opt/venv/lib/python3.10/site-packages/torch/utils/checkpoint.py:{n}: UserWarning: please pass in use_reentrant\n",
    "DEBUG attention block {n}: q (4096, 128) k (4096, 128) rope 500000.0 flash=True dropout=0.0\n",
)
TIMEOUT = (
    "[rank{rank}]:[E105 11:00:0{s}.403872 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=70144, OpType=ALLREDUCE, NumelIn=466119168, "
    "NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
)
STACK = 'Traceback (most recent call last):\n  File "/opt/app/train.py", line 7, in <module>\n    main()\n'
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.10 GiB "
    "of which 1.62 GiB is free.\n"
)
CHILD = """
import json, sys, time
from pathlib import Path
from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
began = time.perf_counter()
report = explain(read_logs([LogFile(path=Path(name)) for name in sys.argv[1:]]))
root = report.root
print(json.dumps({"s": time.perf_counter() - began, "root": root and [root.failure, root.where.rank, root.confidence]}))
"""


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    ranks = SHORT_RANKS if asked.short else RANKS
    sizes = SHORT_SIZES_MB if asked.short else [size for size in SIZES_MB if size <= asked.most_mb]
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    points, peaks, rates = list[tuple[float, float]](), [], []
    with tempfile.TemporaryDirectory() as name:
        for size in sizes:
            folder = Path(name) / str(size)
            logs = job(folder, ranks, int(size * (1 << 20)))
            seconds, peak, read = measure_logs(f"{ranks} logs of {size:g} MB", logs)
            points.append((read, seconds))
            peaks.append(peak)
            rates.append(read / seconds)
            shutil.rmtree(folder)
        line_mb = SHORT_LINE_MB if asked.short else LINE_MB
        line_s, *_ = measure_logs(f"one line of {line_mb} MB", [one_line(Path(name) / "line.log", line_mb)])
    figures = {"read_s": points[0][1], "rss_bytes": peaks[0], "most_rss_bytes": max(peaks), "line_s": line_s}
    figures["per_byte_ratio"] = rates[0] / rates[-1]
    return Found(figures=figures, curves={"bytes": points})


def job(folder: Path, ranks: int, size: int) -> list[Path]:
    """Write the logs of a job of which a rank ran out of memory while all others waited for it."""
    dead = ranks // 7
    folder.mkdir()
    bodies = []
    for number in range(DISTINCT):
        path = folder / f"body{number}"
        write_body(path, size, random.Random(number), number)
        bodies.append(path)
    logs = []
    for rank in range(ranks):
        log = folder / f"train-4711-{rank}.out"
        if rank in (0, dead, ranks - 1):
            write_last(log, bodies[0], STACK + OOM if rank == dead else TIMEOUT.format(rank=rank, s=3))
        else:
            log.hardlink_to(bodies[rank % DISTINCT])
        logs.append(log)
    return logs


def write_body(path: Path, size: int, rng: random.Random, number: int) -> None:
    """Write lines that tell of nothing but a step now and then, and a time-out at the end."""
    values = {"rank": number, "node": number // 8, "local": number % 8}
    lines = [rng.choice(NOISE).format(n=rng.randint(0, 999), s=rng.randint(0, 59), **values) for _ in range(LINES)]
    with path.open("w") as file:
        step = 0
        while file.tell() < size:
            step += 1
            file.write("".join(rng.choices(lines, k=120)))
            file.write(megatron_line(step, total=10**6) + "\n" if number == 0 else "")
        file.write(TIMEOUT.format(rank=number, s=number % 10))


def write_last(log: Path, body: Path, end: str) -> None:
    """Write a log of its own with an end of its own."""
    shutil.copyfile(body, log)
    with log.open("a") as file:
        file.write(end)


def one_line(path: Path, size_mb: int) -> Path:
    """Write one line without an end."""
    part = b"x" * (1 << 20)
    with path.open("wb") as file:
        for _ in range(size_mb):
            file.write(part)
    return path


def measure_logs(name: str, logs: list[Path]) -> tuple[float, int, int]:
    """Measure one set of logs and print what it took: seconds, bytes of memory, bytes read."""
    size = sum(log.stat().st_size for log in logs)
    process = subprocess.Popen([sys.executable, "-P", "-c", CHILD, *map(str, logs)], stdout=subprocess.PIPE, text=True)
    peak = Peak(process.pid)
    peak.start()
    said = json.loads(process.communicate()[0] or "{}")
    peak.stop()
    seconds, root = float(said.get("s", float("nan"))), said.get("root")
    print(
        f"{name:22} {seconds:6.2f} s  {peak.bytes / 1e6:4.0f} MB  {size / seconds / 1e6:6.0f} MB/s  {root}",
        flush=True,
    )
    return seconds, peak.bytes, size


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--most-mb", type=float, default=max(SIZES_MB), help="of a rank's log")
    run(measure, parser)
