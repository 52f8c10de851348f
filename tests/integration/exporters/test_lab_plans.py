"""Do the GPUs of a job of a real lab hold and draw what was predicted for the plan in its script?"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsk.costmodel.energy import CONFIDENCE_SIGMAS, POWER_LOG_SIGMA
from opsk.costmodel.predict import predict_one
from opsk.costmodel.table import PredictionTable
from opsk.hardware.catalog import parse_cluster
from opsk.job_key import JobKey
from opsk.lab.machine.work import load_file
from opsk.lab.programs import build_search_path
from opsk.workload.completion import complete_answer
from tests.fakes.advisor_process import eventually
from tests.fakes.exporter import Series, having, series
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.releases.roots import INSTALLED

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.fabric,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("slurm", [INSTALLED], indirect=True, scope="session"),
]
SIZES = ("--nodes", "2", "--gpus", "8", "--hcas", "2", "--spines", "1", "--exporters", "2")
PATIENCE_S = 90.0
IDLE_W, IDLE_BYTES = 100.0, 2 << 30
"""A GPU without a job draws and holds less."""
ROUNDED = 1e-5
"""The record of a job has six digits of a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLab:
    """A lab with exporters and advice, where ``torchrun`` is the tutorial's."""

    path: Path
    status: Mapping[str, Any]
    environment: Mapping[str, str]

    def run(self, *words: str | Path) -> str:
        """Run a command; return what it printed."""
        command = [str(word) for word in words]
        cwd = self.path.parent
        done = run_warm(command, environment=self.environment, cwd=cwd, timeout_s=120)
        assert done.stdout, done.stderr
        return done.stdout.strip()

    def predicted(self, script: Path) -> PredictionTable:
        """What the cost model says of a script's plan on this lab."""
        document = json.loads(self.run(sys.executable, "-m", "opsk", "check", "--json", "--nodes", "2", script))
        work = complete_answer(document)
        assert work is not None
        assert work.model is not None
        assert work.plan is not None
        cluster = self.path / "etc" / "cluster.toml"
        return predict_one(work.model, work.plan, parse_cluster(cluster.read_text(), origin=str(cluster)))

    def load(self, node: str, job: str) -> dict[str, Any]:
        """Return what a job asks of a node's GPUs; it has a power once the model was asked."""
        path = load_file(self.path / "run" / "nodes" / node / "jobs", JobKey(cluster=self.status["cluster"], job=job))
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def scraped(self) -> tuple[Series, ...]:
        """Return a scrape of each node."""
        return tuple(
            series(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode())
            for port in self.status["ports"]["exporters"].values()
        )

    def all_gpus(self, name: str) -> list[float]:
        """Return one metric of all GPUs."""
        return [float(value) for page in self.scraped() for value in having(page, name).values()]


@pytest.fixture
def lab(lab_programs: None, root: Path) -> Iterator[PlannedLab]:
    """A lab of two nodes of eight GPUs; taken down afterwards."""
    if shutil.which("gcc") is None:
        pytest.skip("no GPUs without gcc")
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    command = [sys.executable, "-m", "opsk", "lab"]
    try:
        up = [*command, "up", "--dir", str(top / "lab"), *SIZES, "--json"]
        started = run_warm(up, environment=plain, timeout_s=120)
        assert started.returncode == 0, started.stderr
        status = json.loads(started.stdout)
        path = f"{root}/examples/tutorial:{build_search_path()}"
        environment = {**plain, **status["environment"], "PATH": path, "OPSK_LAB_DIR": str(top / "lab"), "USER": "me"}
        yield PlannedLab(path=top / "lab", status=status, environment=environment)
    finally:
        run_warm([*command, "down", "--dir", str(top / "lab")], environment=plain, timeout_s=120).check_returncode()
        shutil.rmtree(top)


def test_measured_memory_and_watts_lie_within_the_predicted_ranges(lab: PlannedLab, root: Path) -> None:
    script = root / "examples" / "llama3-8b-megatron.sbatch"
    found = lab.predicted(script)
    job = lab.run("sbatch", "--parsable", script)
    for node in ("n0", "n1"):
        eventually(lambda node=node: lab.load(node, job), lambda load: bool(load.get("power_w")), PATIENCE_S)
    total = found.memory.total_bytes
    used = eventually(
        lambda: lab.all_gpus("opsk_gpu_memory_used_bytes"),
        lambda all_: all(float(total.low) < each < float(total.high) for each in all_),
        PATIENCE_S,
    )
    assert len(used) == 16
    # What the cost model takes for the range of a power.
    factor = math.exp(CONFIDENCE_SIGMAS * POWER_LOG_SIGMA)
    gpu_w = float(found.energy.gpu_w)
    # Until a node's devices are next updated they draw what they drew before the model was asked.
    watts = eventually(
        lambda: lab.all_gpus("opsk_gpu_power_watts"),
        lambda all_: all(gpu_w / factor < each < gpu_w * factor for each in all_),
        PATIENCE_S,
    )
    assert sum(watts) / 16 == pytest.approx(gpu_w, rel=0.1)

    subprocess.run(["scancel", job], env=dict(lab.environment), check=True)
    eventually(lambda: lab.all_gpus("opsk_gpu_power_watts"), lambda all_: max(all_) < IDLE_W, PATIENCE_S)
    assert max(lab.all_gpus("opsk_gpu_memory_used_bytes")) < IDLE_BYTES


def test_gpus_of_a_job_that_is_predicted_to_run_out_are_full(lab: PlannedLab, root: Path) -> None:
    script = root / "examples" / "tutorial" / "train.sbatch"  # with the micro-batch that the tutorial repairs
    memory = lab.predicted(script).memory
    assert float(memory.total_bytes.low) > float(memory.capacity_bytes)
    lab.run("sbatch", "--parsable", script)
    full = pytest.approx([float(memory.capacity_bytes)] * 16, rel=ROUNDED)
    # On a busy machine the prolog may ask slurmctld for the prediction longer than it takes the job to start.
    eventually(lambda: lab.all_gpus("opsk_gpu_memory_used_bytes"), lambda used: used == full, PATIENCE_S)
