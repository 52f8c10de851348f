"""Are the example jobs in containers read rightly, taken by a real sbatch, and do they start what they seem to?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = ("apptainer.sbatch", "enroot-pyxis.sbatch", "enroot.sbatch")
SRUN = '#!/bin/sh\necho "srun $*" >>"$LOG"\nwhile :; do case $1 in --*) shift ;; *) break ;; esac; done\nexec "$@"\n'
RUNS_THE_REST = """#!/bin/sh
# stands for enroot and apptainer: runs what is to run in the container, which begins at torchrun
echo "${0##*/} $1" >>"$LOG"
while [ $# -gt 0 ] && [ "$1" != torchrun ]; do shift; done
[ $# -eq 0 ] || exec "$@"
"""
TORCHRUN = '#!/bin/sh\necho "torchrun" >>"$LOG"\nprintf "%s\\n" "$@" >"$LOG.words"\n'


def test_there_is_no_other_example(root: Path) -> None:
    assert sorted(path.name for path in (root / "examples" / "containers").iterdir()) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_opsk_check_reads_through_the_container(root: Path, name: str) -> None:
    """The numbers are those that the script states."""
    script = root / "examples" / "containers" / name
    command = [sys.executable, "-m", "opsk", "check", str(script), "--cluster", "superpod-h100", "--json"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    model, plan = document["workload"]["model"], document["workload"]["plan"]
    assert (document["verdict"], document["problems"]) == ("fits", [])
    assert document["workload"]["framework"] == "megatron-lm"
    assert {key: model[key] for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq")} == {
        "layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "seq": 8192,
    }  # fmt: skip
    keys = ("nodes", "gpus", "tp", "pp", "dp", "micro_batch", "global_batch", "sequence_parallel")
    assert [plan[key] for key in keys] == [2, 16, 2, 1, 8, 1, 256, True]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_script_starts_training_in_its_container(root: Path, tmp_path: Path, name: str) -> None:
    """With programs that stand for srun, scontrol, Enroot, Apptainer and torchrun, which Debian does not have."""
    programs = {"srun": SRUN, "enroot": RUNS_THE_REST, "apptainer": RUNS_THE_REST, "torchrun": TORCHRUN}
    programs["scontrol"] = "#!/bin/sh\nprintf 'n0\\nn1\\n'\n"
    for word, text in programs.items():
        (tmp_path / word).write_text(text)
        (tmp_path / word).chmod(0o755)
    log = tmp_path / "log"
    job = {"SLURM_JOB_NODELIST": "n[0-1]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "USER": "ada", "LOG": str(log)}
    words = ["bash", str(root / "examples" / "containers" / name)]
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **job}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    started = (tmp_path / "log.words").read_text().splitlines()
    assert started[:4] == ["--nnodes", "2", "--nproc-per-node", "8"]
    assert "n0:29500" in started
    assert started[started.index("/opt/megatron-lm/pretrain_gpt.py") + 1] == "--num-layers"
    steps = [line.split()[0:2] for line in log.read_text().splitlines()]
    if name == "enroot.sbatch":
        assert ["enroot", "create"] in steps
        assert steps[-1] == ["enroot", "remove"], "nothing of the container is left"
    elif name == "enroot-pyxis.sbatch":
        assert "--container-image=/shared/images/pytorch.sqsh" in log.read_text()
    else:
        assert ["apptainer", "exec"] in steps
