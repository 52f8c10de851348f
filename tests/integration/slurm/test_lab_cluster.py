"""What a lab that is up offers: a real cluster on a real fabric. All tests share one lab."""

import json
import re
import time
from pathlib import Path

import pytest

from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover
from tests.fakes.advisor_process import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.fabric]


def script(directory: Path, body: str, *options: str) -> str:
    file = directory / "job.sh"
    file.write_text("#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + body + "\n")
    return str(file)


def test_every_node_becomes_idle_and_has_eight_gpus(lab):
    # The lab is shared: a job of another test may still be completing on a node.
    def nodes() -> list[str]:
        return [line.strip() for line in lab.run("sinfo", "-h", "-N", "-o", "%N %t %G").stdout.splitlines() if line]

    idle = [f"n{index} idle gpu:h100:8" for index in range(4)]
    assert eventually(nodes, lambda seen: seen == idle) == idle


def test_status_shows_every_daemon_and_its_log(lab):
    answered = lab.opsk("lab", "status", "--json")
    status = json.loads(answered.stdout)
    assert answered.returncode == 0
    assert status["state"] == "up"
    names = {daemon["name"] for daemon in status["daemons"]}
    assert {"munged", "mariadbd", "slurmdbd", "slurmctld", "ibsim", "opensm", "slurmd-n0", "slurmd-n3"} <= names
    assert all(daemon["running"] and Path(daemon["log"]).is_file() for daemon in status["daemons"])


def test_the_fabric_found_is_the_fabric_designed(lab):
    # 4 nodes x 8 HCAs; 8 leaves with 4 downlinks each have one cable to each of 4 spines: 32 cables between switches.
    fabric = read_ibnetdiscover((lab.path / "fabric.ibnetdiscover").read_text(), source="lab")
    assert {switch.description for switch in fabric.switches.values()} == {
        *(f"leaf{index}" for index in range(8)),
        *(f"spine{index}" for index in range(4)),
    }
    assert len(fabric.hcas) == 32
    assert len(fabric.cables) == 32 + 32
    assert {hca.node for hca in fabric.hcas.values()} == {"n0", "n1", "n2", "n3"}


def test_the_subnet_can_be_asked_while_the_lab_runs(lab, tmp_path: Path):
    said = lab.run("ibsim-run", "ibnetdiscover", cwd=tmp_path)
    live = read_ibnetdiscover(said.stdout, source="live")
    recorded = read_ibnetdiscover((lab.path / "fabric.ibnetdiscover").read_text(), source="lab")
    assert set(live.hcas) == set(recorded.hcas)
    assert {cable.a_guid for cable in live.cables} == {cable.a_guid for cable in recorded.cables}


def test_slurm_knows_the_tree_that_opsk_wrote(lab):
    said = lab.run("scontrol", "show", "topology").stdout
    assert re.search(r"SwitchName=\S+ Level=0 .*Nodes=n\[0-3\]", said), said


def test_a_job_gets_its_gpus_and_accounting_knows_it(lab, tmp_path: Path):
    body = "srun bash -c 'echo \"$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_TOPOLOGY_ADDR\"'"
    ran = lab.opsk("lab", "run", script(tmp_path, body, "-N 2", "--gpus-per-node=8"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = sorted(ran.stdout.splitlines())
    assert [line.split()[:2] for line in lines] == [["n0", "0,1,2,3,4,5,6,7"], ["n1", "0,1,2,3,4,5,6,7"]]
    assert all(line.split()[2].endswith(f".{line.split()[0]}") for line in lines)
    job = re.search(r"job (\d+) submitted", ran.stderr)
    assert job is not None
    assert "gres/gpu:h100=16" in _accounted(lab, job[1])


def _accounted(lab, job: str) -> str:
    """Return what sacct says of a job, as soon as slurmctld has told slurmdbd."""
    deadline = time.monotonic() + 30
    while True:
        said = lab.run("sacct", "-n", "-P", "-X", "-j", job, "-o", "State,AllocTRES").stdout
        if said.startswith("COMPLETED|") or time.monotonic() > deadline:
            return said
        time.sleep(0.2)


def test_arguments_reach_the_script_and_its_failure_is_bad_news(lab, tmp_path: Path):
    ran = lab.opsk(
        "lab", "run", "-J", "given", script(tmp_path, 'echo "$SLURM_JOB_NAME $1"; exit 7'), "-x", cwd=tmp_path
    )
    assert ran.returncode == 1
    assert ran.stdout == "given -x\n"
    assert "failed, exit 7:0" in ran.stderr


def test_every_task_of_an_array_is_followed(lab, tmp_path: Path):
    ran = lab.opsk("lab", "run", "--array=1-3", script(tmp_path, "echo task $SLURM_ARRAY_TASK_ID"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["task 1", "task 2", "task 3"]
    assert len(re.findall(r"job (\d+_[123]) completed", ran.stderr)) == 3


def test_a_job_that_can_never_start_is_refused(lab, tmp_path: Path):
    ran = lab.opsk("lab", "run", "-N", "5", script(tmp_path, "true"), cwd=tmp_path)
    assert ran.returncode == 3
    assert "sbatch: error" in ran.stderr
    assert "opsk: sbatch refused the job" in ran.stderr


def test_env_makes_a_shell_use_the_lab(lab):
    code = f'eval "$(python -m opsk lab env --dir {lab.path})" && scontrol show config'
    clean = {name: value for name, value in lab.environment.items() if not name.startswith(("SLURM_", "OPSK_"))}
    said = type(lab)(path=lab.path, environment=clean).run("bash", "-c", code.replace("python", _python()))
    assert f"SLURM_CONF              = {lab.path}/etc/slurm.conf" in said.stdout


def _python() -> str:
    import sys

    return sys.executable


def test_up_on_a_lab_that_is_up_says_so_and_changes_nothing(lab):
    before = lab.opsk("lab", "status", "--json").stdout
    again = lab.opsk("lab", "up", "--dir", str(lab.path))
    assert again.returncode == 0
    assert "is up already" in again.stdout
    assert lab.opsk("lab", "status", "--json").stdout == before


def test_up_with_another_size_is_refused(lab):
    other = lab.opsk("lab", "up", "--dir", str(lab.path), "--nodes", "2")
    assert other.returncode == 3
    assert "4 nodes" in other.stderr
    assert "opsk lab down" in other.stderr
