"""Measures how long a simulated cluster takes to start: ``python -m benchmarks.monitoring.lab_up``.

16 nodes of 8 GPUs and 8 HCAs. Real munge, MariaDB, slurmdbd, slurmctld, sixteen slurmd, ibsim and opensm, as ``opsk lab
up`` starts them; wall time until every node is idle, and until all have ended.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import time_call
from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import find_missing
from opsk.lab.record import LabRecord, LabShape

SHORT_NODES = 1


def measure(asked: argparse.Namespace) -> Found:
    """Print and return how long it takes."""
    if absent := find_missing():
        raise NotRunError("not installed: " + ", ".join(absent))
    shape = LabShape(nodes=SHORT_NODES) if asked.short else LabShape()
    with tempfile.TemporaryDirectory(prefix="opsk-bench-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "lab"
        record: LabRecord | None = None
        try:
            brought_up, up_s, _ = time_call(lambda: up(path, shape=shape, parts=(), progress=lambda _: None))
            record = brought_up[0]
        finally:
            ended, down_s, _ = time_call(lambda: take_down(path, record))
    print(f"{shape.nodes} nodes: up in {up_s:.1f} s, {ended} processes down in {down_s:.1f} s")
    return Found(figures={"up_s": up_s, "down_s": down_s})


if __name__ == "__main__":
    run(measure, arguments(__doc__))
