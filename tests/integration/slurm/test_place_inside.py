"""Inside real jobs: do ranks land where the map says, whichever way a user asks, and is a job without a map as ever?

opsk is told that the nodes are cabled so that Slurm's order is the worst: two units whose nodes take turns, one cable
up a leaf.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.advisor_process import eventually
from tests.fakes.settling import settle
from tests.fakes.small_plans import small_plan
from tests.integration.conftest import INSTALLED_ONLY, RunningLab

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(600)]

NODES = ("n0", "n1", "n2", "n3", "n4", "n5")
BY_UNIT = ["n0", "n2", "n4", "n1", "n3", "n5"]
PLAN = small_plan(gpus_per_node=2, tp=2, dp=6, global_batch=6)
TASK = "echo rank=${RANK-$SLURM_PROCID} local=$SLURM_LOCALID node=$SLURMD_NODENAME"
LAUNCHER = """#!/bin/sh
# Stands for torchrun with a static rendezvous: numbers the ranks of its node after --node-rank.
for word; do
    case $word in
    --node-rank=*) node=${word#*=} ;;
    --nproc-per-node=*) each=${word#*=} ;;
    esac
done
local=0
while [ "$local" -lt "$each" ]; do
    echo "rank=$((node * each + local)) local=$local node=$SLURMD_NODENAME"
    local=$((local + 1))
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A lab whose jobs find opsk, its wrapper and a site configuration."""

    lab: RunningLab
    work: Path
    deploy: Path

    def job(self, script: str, *options: str, **environ: str) -> tuple[str, str]:
        """Run a batch job to its end; return what it said on stdout and on stderr."""
        out, err = self.work / "out", self.work / "err"
        out.unlink(missing_ok=True)
        (self.work / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
        done = subprocess.run(
            ["sbatch", f"--output={out}", f"--error={err}", "-N6", "--ntasks-per-node=2",
             "--gpus-per-node=2", *options, str(self.work / "job.sh")],
            env={**self.lab.environment, **environ}, cwd=self.work, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        submitted = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert submitted is not None, done.stderr
        self._await_end(submitted[1])
        return out.read_text(), err.read_text()

    def _await_end(self, job: str) -> None:
        """Wait until a job is over; ``sbatch --wait`` looks every ten seconds only."""
        command = ("squeue", "--noheader", "--jobs", job)
        eventually(lambda: self.lab.run(*command).stdout.strip(), lambda shown: not shown, 120.0)


@pytest.fixture(scope="module")
def inside(lab_programs: None, units_lab: RunningLab, tmp_path_factory: pytest.TempPathFactory, root: Path) -> Inside:
    work = tmp_path_factory.mktemp("inside")
    (work / "bin").mkdir()
    (work / "bin" / "torchrun").write_text(LAUNCHER)
    (work / "bin" / "torchrun").chmod(0o755)
    (work / "plan.toml").write_text(PLAN)
    fabric = rail_optimized_fabric(
        nodes=6, hcas=2, leaves=4, spines=1, cables_per_pair=1, names=[*NODES[::2], *NODES[1::2]]
    )
    (work / "dump").write_text(render_ibnetdiscover(fabric))
    (work / "opsk.toml").write_text(f'fabric = ["{work}/dump"]\n')
    (work / "bare.toml").write_text("")
    deploy = root / "deploy"
    places = (work / "bin", deploy / "bin", units_lab.environment["PATH"])
    environment = {
        **units_lab.environment, "PATH": os.pathsep.join(map(str, places)), "HOME": str(work),
        "OPSK_CONFIG": str(work / "opsk.toml"),
    }  # fmt: skip
    return Inside(lab=replace(units_lab, environment=environment), work=work, deploy=deploy)


def ranks(said: str) -> list[tuple[int, str]]:
    """Return rank and node of each task, by rank."""
    return sorted((int(rank), node) for rank, node in re.findall(r"rank=(\d+) local=\d+ node=(\S+)", said))


def seats(order: list[str]) -> list[tuple[int, str]]:
    return [(2 * at + local, node) for at, node in enumerate(order) for local in (0, 1)]


def test_a_script_evaluates_the_map_for_srun(inside: Inside) -> None:
    said, complaint = inside.job(
        'eval "$(opsk place plan.toml --job $SLURM_JOB_ID --launch srun)"\n'
        f"srun $OPSK_SRUN_OPTIONS bash -c '{TASK}; echo master=$MASTER_ADDR hca=$NCCL_IB_HCA'"
    )
    assert ranks(said) == seats(BY_UNIT), complaint
    assert said.count("master=n0 hca==mlx5_0,mlx5_1") == 12


@INSTALLED_ONLY
def test_a_script_evaluates_the_map_for_torchrun(inside: Inside) -> None:
    said, complaint = inside.job(
        'eval "$(opsk place plan.toml --launch torchrun)"\n'
        "srun $OPSK_SRUN_OPTIONS bash -c 'torchrun --rdzv-backend=static --nnodes=$OPSK_NODES "
        "--nproc-per-node=$OPSK_RANKS_PER_NODE --node-rank=$SLURM_PROCID --master-addr=$MASTER_ADDR "
        "--master-port=$MASTER_PORT train.py'"
    )
    assert ranks(said) == seats(BY_UNIT), complaint


def test_the_wrapper_stands_for_srun(inside: Inside) -> None:
    said, complaint = inside.job(f"opsk-srun -K --label bash -c '{TASK}'", OPSK_PLAN="plan.toml")
    assert ranks(said) == seats(BY_UNIT), complaint
    said, complaint = inside.job(f"opsk-srun -N 6 --ntasks-per-node=1 bash -c '{TASK}'", OPSK_PLAN="plan.toml")
    assert ranks(said) == list(enumerate(BY_UNIT)), complaint


def test_a_smaller_step_of_the_wrapper_is_sruns(inside: Inside) -> None:
    said, complaint = inside.job(f"opsk-srun -N2 -n2 bash -c '{TASK}'", OPSK_PLAN="plan.toml")
    assert ranks(said) == [(0, "n0"), (1, "n1")]
    assert "Slurm's own order of ranks is used: the step takes 2 nodes" in complaint


def test_the_task_prolog_tells_ranks_without_a_change_to_the_script(inside: Inside) -> None:
    said, _ = inside.job(
        f"srun bash -c '{TASK}; echo world=$WORLD_SIZE master=$MASTER_ADDR node_rank=$NODE_RANK'",
        OPSK_PLACE="1",
        OPSK_PLAN="plan.toml",
        OPSK_PLACE_TIMEOUT_S="60",
    )
    assert ranks(said) == seats(BY_UNIT)
    assert said.count("world=12 master=n0") == 12
    assert sorted(set(re.findall(r"node_rank=(\d)", said))) == list("012345")


@INSTALLED_ONLY
def test_the_task_prolog_is_silent_unless_asked_for(inside: Inside) -> None:
    said, complaint = inside.job("srun -N1 -n1 env; env", OPSK_PLAN="plan.toml")
    assert not re.search(r"^(RANK|OPSK_MAP|OPSK_RANK|MASTER_ADDR)=", said, re.MULTILINE)
    assert complaint == ""


@INSTALLED_ONLY
def test_all_three_together_agree(inside: Inside) -> None:
    said, complaint = inside.job(
        f"opsk-srun bash -c '{TASK}; echo same=$((RANK == SLURM_PROCID))'", OPSK_PLACE="1", OPSK_PLAN="plan.toml"
    )
    assert ranks(said) == seats(BY_UNIT), complaint
    assert said.count("same=1") == 12


def test_where_nothing_is_known_of_the_fabric_jobs_run_as_ever(inside: Inside) -> None:
    bare = {"OPSK_CONFIG": str(inside.work / "bare.toml"), "OPSK_PLACE": "1", "OPSK_PLAN": "plan.toml"}
    said, complaint = inside.job(
        f"set -e\neval \"$(opsk place plan.toml --launch srun)\"\nsrun $OPSK_SRUN_OPTIONS bash -c '{TASK}'", **bare
    )
    assert ranks(said) == seats(list(NODES)), complaint
    assert "no fabric to place on" in complaint
    said, complaint = inside.job(f"opsk-srun bash -c '{TASK}'", **bare)
    assert ranks(said) == seats(list(NODES)), complaint


@INSTALLED_ONLY
def test_the_plan_comes_from_the_jobs_own_script(inside: Inside) -> None:
    """Nobody left a record, since this lab has no hooks; the script trains with Megatron-LM, tp 2."""
    said, complaint = inside.job(
        f"opsk-srun bash -c '{TASK}' torchrun pretrain_gpt.py --num-layers 4 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 "
        "--global-batch-size 12 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --bf16"
    )
    assert ranks(said) == seats(BY_UNIT), complaint


@INSTALLED_ONLY
def test_each_task_of_an_array_is_placed_on_its_own_nodes(inside: Inside) -> None:
    said, complaint = inside.job(
        f"opsk-srun bash -c '{TASK}'", "--array=1-2%1", "--open-mode=append", OPSK_PLAN="plan.toml"
    )
    assert ranks(said) == sorted(seats(BY_UNIT) * 2), complaint


def test_a_requeued_job_is_placed_on_the_nodes_that_it_gets_then(inside: Inside) -> None:
    """It starts on n0 to n3, and again without n0: n1 to n4, of which n1 and n3 are one unit."""
    plan = inside.work / "four.toml"
    plan.write_text(PLAN.replace("dp = 6", "dp = 4").replace("global_batch = 6", "global_batch = 4"))
    (first, second), complaint = _requeued(inside, plan)
    assert ranks(first) == seats(["n0", "n2", "n1", "n3"]), complaint
    assert ranks(second) == seats(["n1", "n3", "n2", "n4"]), complaint


def _requeued(inside: Inside, plan: Path) -> tuple[tuple[str, str], str]:
    """Run a job, requeue it, forbid it n0, and let it run again."""
    out, script = inside.work / "again", inside.work / "again.sh"
    script.write_text(
        f"""#!/bin/bash
opsk-srun bash -c '{TASK}' >{out}.${{SLURM_RESTART_COUNT:-0}}
touch {out}.done.${{SLURM_RESTART_COUNT:-0}}
[ -n "${{SLURM_RESTART_COUNT-}}" ] || sleep 60
"""
    )
    environ = {**inside.lab.environment, "OPSK_PLAN": str(plan)}
    command = ["sbatch", "--parsable", "-N4", "-x", "n[4-5]", "--ntasks-per-node=2", "--gpus-per-node=2", "--requeue",
               "-o", "/dev/null", "-e", str(inside.work / "again.err"), str(script)]  # fmt: skip
    job = subprocess.run(command, env=environ, cwd=inside.work, capture_output=True, text=True, check=True).stdout
    job = job.strip()
    try:
        _await(Path(f"{out}.done.0"))
        assert inside.lab.run("scontrol", "requeue", job).returncode == 0
        end = time.monotonic() + 120
        while inside.lab.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() != "PENDING":
            assert time.monotonic() < end, "it did not become pending"
            time.sleep(0.2)
        inside.lab.run("scontrol", "update", f"jobid={job}", "excnodelist=n0,n5")
        settle(inside.lab)
        while not Path(f"{out}.done.1").exists() and time.monotonic() < end:  # slurmctld may put it off once more
            inside.lab.run("scontrol", "update", f"jobid={job}", "starttime=now")
            time.sleep(2)
        _await(Path(f"{out}.done.1"))
    finally:
        inside.lab.run("scancel", job)
    texts = Path(f"{out}.0").read_text(), Path(f"{out}.1").read_text()
    return texts, (inside.work / "again.err").read_text()


def _await(path: Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.1)


@INSTALLED_ONLY
def test_hostile_words_reach_the_task_as_they_are(inside: Inside) -> None:
    (inside.work / "words").write_text("#!/bin/sh\n[ $SLURM_PROCID != 0 ] || printf '<%s>' \"$@\"\n")
    (inside.work / "words").chmod(0o755)
    said, _ = inside.job(
        """opsk-srun ./words 'a b' $'new\\nline' "'" '"' '\\' '*' '$(id)' '`id`' '' -w --""", OPSK_PLAN="plan.toml"
    )
    assert said == "<a b><new\nline><'><\"><\\><*><$(id)><`id`><><-w><-->"


def test_exit_status_and_signals_are_sruns(inside: Inside) -> None:
    """Whatever srun makes of them: the wrapper in front of it changes nothing."""
    script = (
        "{0} bash -c 'exit 37'; echo status=$?\n"
        "{0} bash -c 'trap \"exit 5\" TERM; : >ready.$SLURM_JOB_ID.$SLURM_PROCID; sleep 60 & wait' & pid=$!\n"
        "while [ $(ls ready.$SLURM_JOB_ID.* 2>/dev/null | wc -l) -lt 12 ]; do sleep 0.1; done\n"
        "cat /proc/$pid/comm; kill -TERM $pid; wait $pid; echo ended=$?"
    )
    plain, _ = inside.job(script.format("srun"))
    wrapped, _ = inside.job(script.format("opsk-srun"), OPSK_PLAN="plan.toml")
    assert wrapped == plain
    assert wrapped.splitlines()[:2] == ["status=37", "srun"]
