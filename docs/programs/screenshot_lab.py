"""Starts the lab that the screenshots show: jobs that pretend to train, and parts that failed.

Everything on them is measured: real Slurm, real exporters on stand-ins of devices, logs that jobs write. Only what they
train is made up. It takes about three minutes, and ends what it started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opsk.lab.lifecycle import take_down, up
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment

OPSK = (sys.executable, "-P", "-m", "opsk")
SHAPE = LabShape(nodes=16, gpus=4, hcas=4, spines=2)
FILLS_S = 70.0
"""By then sparklines and intervals have some points."""
PROGRAM = r"""#!/bin/bash
# Prints what Megatron-LM prints; SECONDS_A_STEP and its fate are the job's.
[ "${SLURM_PROCID:-0}" -eq 0 ] || exec sleep 36000
echo "  seq_length ...................................... 4096"
for ((step = 1; step <= 30000; step++)); do
    ms=$((STEP_MS + RANDOM % (STEP_MS / 40)))
    [ $((step % ${STALL_EVERY:-100000})) -eq 0 ] && ms=$((ms * 2))
    printf " [%(%F %T)T] iteration %8d/   30000 | consumed samples: %12d | elapsed time per iteration (ms): %d.0 | \
throughput per GPU (TFLOP/s/GPU): %d.0 | learning rate: 1.0E-04 | global batch size: %5d | lm loss: %d.%03dE+00 | \
loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations:   0 | number of nan iterations:   0 |\n" \
        -1 $step $((BATCH * step)) $ms $((TFLOPS * STEP_MS / ms)) $BATCH $((3 - step / 400)) $((999 - step % 400))
    if [ $step -eq "${DIES_AT:-0}" ]; then
        echo "[rank2]: Traceback (most recent call last):" >&2
        echo "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 2 has a total" \
            "capacity of 79.11 GiB of which 1.07 GiB is free." >&2
        exit 1
    fi
    sleep "${ms:0:-3}.${ms: -3}"
done
"""
HEAD = """#!/bin/bash
#SBATCH --job-name={name} --nodes={nodes} --gpus-per-node=4 --ntasks-per-node=1 --time=12:00:00 --output={top}/%x-%j.out
export STEP_MS={step_ms} TFLOPS={tflops} BATCH={batch} STALL_EVERY={stall} DIES_AT={dies_at}
"""
TRAIN = """srun --ntasks-per-node=1 torchrun \
--nnodes {nodes} --nproc-per-node 4 pretrain_gpt.py --bf16 --vocab-size 128256 \
--num-layers {layers} --hidden-size {hidden} --ffn-hidden-size {ffn} --num-attention-heads {heads} --swiglu \
--group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 \
--micro-batch-size 1 --global-batch-size {batch} --tensor-model-parallel-size {tp} --pipeline-model-parallel-size {pp} \
--sequence-parallel --use-distributed-optimizer --use-flash-attn --train-iters 30000
"""
SMALL = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "tp": 2, "pp": 1}
LARGE = {"layers": 40, "hidden": 5120, "ffn": 13824, "heads": 40, "tp": 4, "pp": 1}
DIES = {"name": "llama2-70b-try", "nodes": 1, "step_ms": 1900, "tflops": 260, "batch": 16, "stall": 100000, **LARGE,
        "layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64}  # fmt: skip
"""Runs out of memory after some steps; opsk reports on it."""
DIES_AT, DIES_WITHIN_S = 4, 60.0
JOBS = (
    {"name": "llama3-8b", "nodes": 4, "step_ms": 4310, "tflops": 391, "batch": 128, "stall": 100000, **SMALL},
    {"name": "llama2-13b", "nodes": 6, "step_ms": 8120, "tflops": 242, "batch": 144, "stall": 9, **LARGE},
    {"name": "sft-8b", "nodes": 2, "step_ms": 3950, "tflops": 426, "batch": 64, "stall": 100000, **SMALL},
    {"name": "ablation-lr", "nodes": 2, "step_ms": 4180, "tflops": 403, "batch": 64, "stall": 100000, **SMALL},
    {"name": "llama3-8b-long", "nodes": 8, "step_ms": 4210, "tflops": 401, "batch": 256, "stall": 100000, **SMALL},
)
"""What is measured is written here; what is predicted of it is opsk's own. The last one waits."""
BREAK = (("gpu", "n5", "2"), ("nic", "n8", "1"), ("gpu", "n12", "0", "--xid", "94"))


@contextmanager
def lab_at_work() -> Iterator[Path]:
    """Bring the lab up and to work; yields its site configuration, with the environment set for opsk in it."""
    top = folder_of_jobs()
    top.chmod(0o755)
    (top / "bin").mkdir()
    (top / "bin" / "torchrun").write_text(PROGRAM, encoding="utf-8")
    (top / "bin" / "torchrun").chmod(0o755)
    parts = ("advisor", "exporter")
    record, _ = up(top / "lab", shape=SHAPE, parts=parts, progress=print, exporters=SHAPE.nodes)
    before = dict(os.environ)
    try:
        os.environ |= {"PATH": f"{top / 'bin'}{os.pathsep}{build_search_path()}", **build_slurm_environment(record)}
        os.environ["XDG_STATE_HOME"] = str(top / "state")
        site = record.folder.site
        with site.open("a", encoding="utf-8") as file:
            file.write(f'\n[store]\nurl = "sqlite:///{top}/opsk.db"\n')
        (advisor,) = (each.process.pid for each in record.daemons if each.name == "advisor" and each.process)
        os.kill(advisor, 1)
        time.sleep(6.0)
        submitted_s = time.monotonic()
        died = submit(top, DIES, dies_at=DIES_AT)
        for job in JOBS:
            # One that waits for nodes would have the free ones planned for it: there would be no spare to remap to.
            submit(top, job, *(["--begin=now+1hour"] if job is JOBS[-1] else []))
            time.sleep(1.0)
        time.sleep(FILLS_S / 2)
        for what in BREAK:
            run(*OPSK, "lab", "break", *what, "--dir", str(top / "lab"))
        time.sleep(max(0.0, submitted_s + DIES_WITHIN_S - time.monotonic()))
        run(*OPSK, "postmortem", died, "--automatic", fails=True)
        yield site
    finally:
        subprocess.run(["scancel", "--user", str(os.getuid())], check=False)
        os.environ.clear()
        os.environ.update(before)
        take_down(top / "lab", record)
        shutil.rmtree(top, ignore_errors=True)


def folder_of_jobs() -> Path:
    """Make the folder that jobs run in: pictures show it, and are to be the same each time where that can be."""
    folder = Path(tempfile.gettempdir()) / "training"
    try:
        folder.mkdir()
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix="training-"))
    return folder


def submit(top: Path, job: Mapping[str, object], *words: str, dies_at: int = 0) -> str:
    """Submit a job; return its number."""
    script = top / f"{job['name']}.sbatch"
    script.write_text((HEAD + TRAIN).format(**job, top=top, dies_at=dies_at), encoding="utf-8")
    return run("sbatch", "--parsable", *words, str(script), cwd=top).strip().partition(";")[0]


def run(*words: str, cwd: Path | None = None, fails: bool = False) -> str:
    """Run a command, and show what it says; return what it says on stdout."""
    print("$", " ".join(words[-6:]), flush=True)
    done = subprocess.run(words, check=not fails, cwd=cwd, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    return done.stdout
