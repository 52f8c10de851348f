"""A lab with real exporters and a real Prometheus on it: two jobs, a training log, faults, a minute of scrapes."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.prometheus_server import LabPrometheus
from tests.fakes.warm_opsk import OPSK
from tests.fakes.warm_opsk import run as run_warm

SIZES = ("--nodes", "3", "--gpus", "4", "--hcas", "4", "--spines", "2", "--no-advice", "--prometheus")
WATCHED = ("n0", "n1")
PATIENCE_S = 90.0
PREDICTED = "opsk:v1 verdict=fits step_s=0.9 step_s_low=0.8 step_s_high=1.1 mem_bytes=60000000000"
"""What the advisor leaves in the record of a job; here by hand, for the job's script is none that it reads."""
TRAIN = """#!/bin/bash
#SBATCH --nodes=2 --nodelist=n0,n1 --ntasks-per-node=1 --gpus-per-node=2 --time=00:20:00 --job-name=train
srun --overlap bash -c '
[ "$SLURM_PROCID" -eq 0 ] && echo "  seq_length ...................................... 8192"
for ((step = 1; step <= 900; step++)); do
    [ "$SLURM_PROCID" -eq 0 ] && printf " [%(%F %T)T] iteration %8d/     900 | consumed samples: %12d | elapsed time \
per iteration (ms): 1004.7 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.0E-04 | global batch size:  \
512 | lm loss: 3.%03dE+00 | loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations:   0 | number of nan \
iterations:   0 |\\n" -1 "$step" "$((512 * step))" "$((999 - step))"
    sleep 1
done'
"""
"""Trains, by its log: two GPUs of each of two nodes."""
IDLES = """#!/bin/bash
#SBATCH --nodes=2 --nodelist=n0,n1 --gpus-per-node=1 --time=00:20:00 --job-name=idles
sleep 900
"""
"""Has a GPU of a node on which it runs nothing: its batch script is on the other one."""
WAITS = "#!/bin/bash\n#SBATCH --nodes=3 --gpus-per-node=4 --exclusive --time=00:20:00 --job-name=waits\nsleep 1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLab:
    """A lab that is up, with the environment of its commands."""

    path: Path
    environment: Mapping[str, str]
    status: Mapping[str, Any]
    started_unix_s: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.status['ports']['prometheus']}"

    @property
    def prometheus(self) -> LabPrometheus:
        """Prometheus, and the time since the lab came up."""
        return LabPrometheus(self.url, self.started_unix_s, time.time())

    def page(self, node: str) -> str:
        """A scrape of one node."""
        address = f"http://127.0.0.1:{self.status['ports']['exporters'][node]}/metrics"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return str(answer.read().decode())

    def opsk(self, *words: str) -> str:
        """Run an ``opsk lab`` command; return what it printed."""
        command = [*OPSK, "lab", words[0], *words[1:]]
        environment = {**self.environment, "OPSK_LAB_DIR": str(self.path)}
        done = run_warm(command, environment=environment, timeout_s=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, name: str, script: str) -> str:
        """Submit a job; return its number."""
        path = self.path.parent / f"{name}.sh"
        path.write_text(script, encoding="utf-8")
        words = ["sbatch", "--parsable", "-D", str(self.path.parent), str(path)]
        done = subprocess.run(words, env=dict(self.environment), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def watched_lab_up(folder: Path) -> WatchedLab:
    """Start the lab; it is the caller's to take down."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    command = [*OPSK, "lab", "up", "--dir", str(folder / "lab"), *SIZES, "--json"]
    began = time.time()
    done = run_warm(command, environment=plain, timeout_s=240)
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    return WatchedLab(
        path=folder / "lab",
        environment={**plain, **status["environment"]},
        status=status,
        started_unix_s=began,
    )


def await_that(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds, for it follows from scrapes that come every few seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)
