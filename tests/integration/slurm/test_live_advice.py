"""On a real slurmctld: is a job told which nodes are free, and about the job that was submitted before it?

Eight nodes in two units, one spine: what crosses units shares one cable up from each leaf.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsk.config import load_site
from opsk.lab.lifecycle import take_down, up
from opsk.lab.parts import ADVISOR
from opsk.lab.record import LabRecord, LabShape
from opsk.lab.status import build_slurm_environment
from opsk_jobcheck.service.hooks import install_hooks
from tests.fakes.advised_lab import OWN_DEADLINE, PATIENT, wait_until
from tests.fakes.warm_opsk import OPSK
from tests.fakes.warm_opsk import run as run_warm
from tests.integration.conftest import INSTALLED_ONLY

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600), INSTALLED_ONLY]

TOLD_WITHIN_S = 60.0
INTERVAL_S = 2
"""How often the watcher asks, and less often where the machine is slow."""
SCRIPT = """#!/bin/bash
#SBATCH --nodes={nodes} --gpus-per-node=8 --ntasks-per-node=1 --output=/dev/null {options}
torchrun --nnodes {nodes} --nproc-per-node 8 pretrain_gpt.py --bf16 --train-iters 10 --vocab-size 50257 \\
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size {batch} \\
  --seq-length 2048 --max-position-embeddings 2048 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \\
  --use-distributed-optimizer
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLab:
    """A lab with advisor and hooks, and a terminal in it."""

    record: LabRecord
    directory: Path
    environ: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, capture_output=True, text=True, cwd=self.directory, env=self.environ, timeout=60, check=False
        )

    def script(self, nodes: int, options: str = "") -> str:
        path = self.directory / f"job{nodes}.sh"
        path.write_text(SCRIPT.format(nodes=nodes, options=options, batch=16 * nodes))
        return str(path)

    def check(self, nodes: int, options: str = "") -> dict[str, Any]:
        site = str(self.record.folder.site)
        done = run_warm(
            [*OPSK, "check", "--live", "--json", self.script(nodes, options)],
            environment={**self.environ, "OPSK_CONFIG": site}, timeout_s=60,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        assert not done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def live_lab(lab_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveLab]:
    """A lab whose training jobs do nothing, for a while."""
    path = tmp_path_factory.mktemp("live")
    work = path / "work"
    (work / "bin").mkdir(parents=True)
    (work / "bin" / "torchrun").write_text("#!/bin/sh\nexec sleep 600\n")
    (work / "bin" / "torchrun").chmod(0o755)
    shape = LabShape(nodes=8, leaves=16, spines=1)
    record, _ = up(path / "lab", shape=shape, parts=(ADVISOR,), progress=lambda _: None)
    environ = {
        "PATH": f"{work / 'bin'}:{os.environ['PATH']}",
        "HOME": str(work),
        "LC_ALL": "C.UTF-8",
        "OPSK_ADVICE": "long",
        **build_slurm_environment(record),
    }
    try:
        configure(record)
        yield LiveLab(record=record, directory=work, environ=environ)
    finally:
        take_down(path / "lab", record)


def configure(record: LabRecord) -> None:
    """Let the watcher ask more often than every 15 s, and slurmctld wait for an answer of a busy machine."""
    site = record.folder.site
    plain = site.read_text().replace(OWN_DEADLINE, "")
    site.write_text(plain + f"live_interval_s = {INTERVAL_S}\n" + PATIENT)
    install_hooks(record.folder.etc, load_site(site))
    (daemon,) = (each for each in record.daemons if each.name == ADVISOR)
    assert daemon.process is not None
    log = record.folder.log / "advisor.out"
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: "configuration read again" in log.read_text())


@pytest.fixture(scope="module")
def first_job(live_lab: LiveLab) -> str:
    """A job that trains on four nodes of both units, with its plan in its record."""
    submitted = live_lab.run("sbatch", live_lab.script(4, "--nodelist=n0,n1,n4,n5"))
    found = re.search(r"Submitted batch job (\d+)", submitted.stdout)
    assert found, submitted.stderr
    end = time.monotonic() + TOLD_WITHIN_S
    while "JobState=RUNNING" not in (shown := live_lab.run("scontrol", "show", "job", found[1]).stdout):
        assert time.monotonic() < end, shown
        time.sleep(0.2)
    assert "AdminComment=opsk:v1" in shown
    return found[1]


def test_the_second_job_is_placed_on_free_nodes_and_told_about_the_first(live_lab: LiveLab, first_job: str) -> None:
    told = live_lab.check(4)
    assert told["placement"]["is_free"]
    assert told["placement"]["hostlist"] == "n[2-3,6-7]"
    assert (told["placement"]["asked_nodes"], told["placement"]["free"]["nodes"]) == (4, 4)
    shared = told["interference"]
    assert [job["job"] for job in shared["jobs"]] == [first_job]
    assert shared["running"]["known_as"] == {"plan": 1}
    assert shared["slowdown"]["high"] >= shared["slowdown"]["low"] >= 0


def test_a_job_that_fits_under_one_leaf_group_asks_for_it(live_lab: LiveLab, first_job: str) -> None:
    placement = live_lab.check(2)["placement"]
    assert placement["leaf_groups"] == 1
    assert placement["slurm_flags"] == ["--switches=1"]
    assert placement["hostlist"] in ("n[2-3]", "n[6-7]")


def test_excluded_nodes_are_not_advised(live_lab: LiveLab, first_job: str) -> None:
    placement = live_lab.check(2, "--exclude=n[2-3]")["placement"]
    assert placement["hostlist"] == "n[6-7]"
    assert placement["free"]["nodes"] == 2


def test_too_few_free_nodes_are_counted(live_lab: LiveLab, first_job: str) -> None:
    told = live_lab.check(8)
    assert (told["placement"]["is_free"], told["placement"]["free"]["nodes"]) == (False, 4)


def test_sbatch_says_so_by_itself(live_lab: LiveLab, first_job: str) -> None:
    """The advisor's watcher has asked: the hook waits for nothing."""
    end = time.monotonic() + TOLD_WITHIN_S
    while True:
        said = live_lab.run("sbatch", "--hold", live_lab.script(4)).stderr
        line = " ".join(text for text in said.splitlines() if "free" in text)
        if "4 of 4 free nodes" in line:
            break
        assert time.monotonic() < end, said
        time.sleep(0.5)
    assert "sbatch: opsk  " in line
