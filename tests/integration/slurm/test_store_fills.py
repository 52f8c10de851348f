"""From a submission to a run that ``opsk calibrate`` counts, and from a GPU that dies to its record: by themselves.

The lab's job prints steps as Megatron-LM does. Nobody writes a record by hand: the advisor keeps its advice, and ``opsk
top --record`` keeps what exporters and Slurm tell. What a release of Slurm changes is in what is read of it, which
test_contract and test_accounting have on all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import StoreError
from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from opsk.store.database.engine import open_store
from opsk.store.export import export
from tests.integration.conftest import INSTALLED_ONLY, RunningLab, Slurm, path_is

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(900), INSTALLED_ONLY]

STEPS_PER_S = 5
INTERVAL_S = 6
PROGRAM = f"""#!/bin/bash
[ "$SLURM_PROCID" = 0 ] || exec sleep 600
for ((step = 1; step <= 3000; step++)); do
    printf " [%(%F %T)T] iteration %8d/    3000 | consumed samples: %12d | elapsed time per iteration (ms): %d.7 | \
throughput per GPU (TFLOP/s/GPU): 212.3 | learning rate: 1.0E-04 | global batch size:   128 | lm loss: 2.5E+00 | \
number of skipped iterations:   0 | number of nan iterations:   0 |\\n" -1 $step $((128 * step)) $((500 + step % 5))
    sleep {1 / STEPS_PER_S}
done
"""
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=2 --ntasks-per-node=1 --job-name=gpt
#SBATCH --output={top}/out-%j
srun torchrun --nnodes 2 --nproc-per-node 2 pretrain_gpt.py --bf16 --train-iters 10 --vocab-size 50257 --num-layers 24 \
--hidden-size 2048 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 128 --seq-length 2048 \
--max-position-embeddings 2048 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
--use-distributed-optimizer
"""
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def keeping_lab(slurm: Slurm) -> Iterator[RunningLab]:
    """Three nodes with exporters and an advisor that keeps what it says, and a torchrun that only prints."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    (top / "bin").mkdir()
    (top / "bin" / "torchrun").write_text(PROGRAM)
    (top / "bin" / "torchrun").chmod(0o755)
    shape = LabShape(nodes=3, gpus=2, hcas=2, spines=1)
    with path_is(slurm.path):
        record, _ = up(top / "lab", shape=shape, parts=("exporter", "advisor"), progress=lambda _: None, exporters=3)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
        path = f"{top / 'bin'}{os.pathsep}{build_search_path()}"
        environment = {**kept, "PATH": path, "XDG_STATE_HOME": str(top / "state"), **build_slurm_environment(record)}
    lab = RunningLab(path=top / "lab", environment=environment)
    with (lab.path / "etc" / "opsk.toml").open("a") as site:
        site.write(f'\n[store]\nurl = "sqlite:///{top}/opsk.db"\n')
    (advisor,) = (each.process.pid for each in record.daemons if each.name == "advisor" and each.process)
    os.kill(advisor, signal.SIGHUP)
    end = time.monotonic() + PATIENCE_S
    while "configuration read again" not in (lab.path / "log" / "advisor.out").read_text():
        assert time.monotonic() < end
        time.sleep(0.2)
    try:
        yield lab
    finally:
        lab.run("scancel", "--user", str(os.getuid()))
        take_down(top / "lab", record)
        shutil.rmtree(top, ignore_errors=True)


def kept(lab: RunningLab, kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind as `opsk store export` prints them, without a process for each look."""
    path = lab.path.parent / "opsk.db"
    if not path.exists():
        return []
    try:
        engine = open_store(f"sqlite:///{path}", writing=False)
    except StoreError as error:
        if "it is empty" not in error.message:  # so it is while it is being made
            raise
        return []
    try:
        rows = [json.loads(line) for line in export(engine)]
    finally:
        engine.dispose()
    return [row for row in rows if row["kind"] == kind]


def advised(lab: RunningLab) -> str:
    """Submit until the job has advice: a reloaded advisor takes a moment."""
    script = lab.path.parent / "train.sbatch"
    script.write_text(SCRIPT.format(top=lab.path.parent))
    end = time.monotonic() + PATIENCE_S
    while True:
        number = lab.run("sbatch", "--parsable", str(script)).stdout.strip()
        assert number.isdigit()
        if "opsk:v1" in lab.run("scontrol", "show", "job", number).stdout:
            return number
        lab.run("scancel", number)
        assert time.monotonic() < end, "no advice"
        time.sleep(1)


def test_a_training_job_becomes_a_run_and_a_dead_gpu_a_failure(keeping_lab: RunningLab) -> None:
    lab = keeping_lab
    number = advised(lab)
    recorder = subprocess.Popen(
        [sys.executable, "-m", "opsk", "top", "--record", "--every", str(INTERVAL_S)], env=dict(lab.environment)
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while len(kept(lab, "measured")) < 6:
            assert recorder.poll() is None
            assert time.monotonic() < end, kept(lab, "measured")
            time.sleep(2)
        counted = lab.opsk("calibrate", "--from-store", "--no-cross-validation", "--json")
        assert "1 jobs of the store count" in counted.stderr
        nodes = lab.run("squeue", "-h", "-j", number, "-o", "%N").stdout.strip()
        assert nodes == "n[0-1]"
        assert lab.opsk("lab", "break", "gpu", "n0", "1", "--dir", str(lab.path)).returncode == 0
        while not (found := kept(lab, "failure")):
            assert time.monotonic() < end + PATIENCE_S
            time.sleep(1)
        assert [(row["what"], row["code"], row["job"]) for row in found] == [("gpu:n0/1", "79", number)]
        lab.run("scancel", number)
        while "ended_at" not in (last := kept(lab, "job")[-1]):
            assert time.monotonic() < end + 2 * PATIENCE_S
            time.sleep(1)
        assert (last["job"], last["verdict"], last["state"]) == (number, "fits", "CANCELLED")
    finally:
        recorder.terminate()
        recorder.wait(30)
    assert recorder.returncode == 0
    shown = json.loads(lab.opsk("store", "size", "--json").stdout)
    counts = {row["kind"]: row["records"] for row in shown["kinds"]}
    assert counts["jobs"] >= 1
    assert counts["measured"] >= 6
    refused = lab.opsk("calibrate", "--from-store")
    assert "1 with a failure" in refused.stderr


def test_a_job_that_came_and_went_while_no_recorder_ran_is_kept_afterwards(keeping_lab: RunningLab) -> None:
    lab = keeping_lab
    number = advised(lab)
    end = time.monotonic() + PATIENCE_S
    while lab.run("squeue", "-h", "-j", number, "-o", "%T").stdout.strip() != "RUNNING":
        assert time.monotonic() < end
        time.sleep(0.5)
    while "JobState=CANCELLED" not in (said := lab.run("scontrol", "show", "job", number)).stdout:
        assert time.monotonic() < end, said
        lab.run("scancel", number)  # again where a busy slurmctld did not take it
        time.sleep(0.5)
    recorder = subprocess.Popen(
        [sys.executable, "-m", "opsk", "top", "--record", "--every", str(INTERVAL_S)], env=dict(lab.environment)
    )
    try:
        while not (found := [row for row in kept(lab, "job") if row["job"] == number and "ended_at" in row]):
            assert recorder.poll() is None
            assert time.monotonic() < end, kept(lab, "job")
            time.sleep(2)
    finally:
        recorder.terminate()
        recorder.wait(60)
    (seen,) = found
    assert (seen["state"], seen["verdict"], seen["node_list"], seen["gpus"]) == ("CANCELLED", "fits", "n[0-1]", 4)
    assert seen["submitted_at"] <= seen["started_at"] <= seen["ended_at"]
