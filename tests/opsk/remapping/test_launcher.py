"""How a step is started on a map; what it does in each task is run by a real shell."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from opsk.errors import InputError
from opsk.remapping.decision import Decision, RankSlot
from opsk.remapping.launcher import (
    StepStart,
    build_first_map,
    build_rank_slots,
    build_step_start,
    count_tasks_per_node,
    find_refusal,
    validate_srun_options,
)
from opsk.slurm.records import JobRecord

JOB = JobRecord(
    id=7, label="7", user="ann", name="train", state="RUNNING", nodes=("n0", "n1", "n10", "n2"), gpus_per_node=2,
    gpu_indices={"n1": (4, 5)},
)  # fmt: skip
MOVED = Decision(id="7-x", job="7", hosts=("n2", "n2", "n1", "n1"), gpu_order=(("n1", "3,1"),))


def started(decision: Decision = MOVED, *, per_node: bool = False) -> StepStart:
    environ = {"SLURM_NNODES": "4", "SLURM_NTASKS": "8", "PATH": "/usr/bin:/bin", "HOME": "/h"}
    return build_step_start(
        decision, ("env",), environ, name="opsk-launch-2", per_node=per_node, options=("--cpu-bind=none",),
        host_file="/tmp/hosts",
    )  # fmt: skip


def in_task(start: StepStart, **slurm: str) -> dict[str, str]:
    """Run what srun would run in one task."""
    words = start.words[start.words.index("bash") :]
    told = subprocess.run(words, env={**start.environment, **slurm}, capture_output=True, text=True, check=True)
    return dict(line.partition("=")[::2] for line in told.stdout.splitlines())


def test_a_job_begins_on_its_first_nodes_in_slurms_order() -> None:
    assert build_first_map(JOB, nodes=2, ranks_per_node=2).hosts == ("n0", "n0", "n1", "n1")
    assert build_first_map(JOB, nodes=None, ranks_per_node=1).hosts == ("n0", "n1", "n2", "n10")
    with pytest.raises(InputError, match="has 4 nodes, fewer than --nodes 5"):
        build_first_map(JOB, nodes=5, ranks_per_node=1)


def test_seats_are_the_gpus_that_the_job_holds_unless_the_map_orders_them() -> None:
    assert build_rank_slots(build_first_map(JOB, nodes=2, ranks_per_node=2), JOB)[2:] == (
        RankSlot(rank=2, node="n1", gpu=4), RankSlot(rank=3, node="n1", gpu=5),
    )  # fmt: skip
    assert [slot.gpu for slot in build_rank_slots(MOVED, JOB)] == [0, 1, 3, 1]


def test_srun_gets_one_host_a_rank_and_no_old_count() -> None:
    start = started()
    assert start.hosts == "n2\nn2\nn1\nn1\n"
    assert start.words[:7] == (
        "srun", "--no-kill", "--kill-on-bad-exit=1", "--job-name=opsk-launch-2", "--ntasks=4",
        "--distribution=arbitrary", "--cpu-bind=none",
    )  # fmt: skip
    assert not {"SLURM_NNODES", "SLURM_NTASKS"} & set(start.environment)
    assert start.environment["MASTER_ADDR"] == "n2"
    assert start.environment["MASTER_PORT"] == "15007"


def test_a_rank_knows_itself() -> None:
    told = in_task(started(), SLURM_PROCID="2", SLURM_LOCALID="0", SLURM_NTASKS="4", SLURMD_NODENAME="n1")
    assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == ("2", "0", "4")
    assert told["CUDA_VISIBLE_DEVICES"] == "3,1"


def test_a_node_whose_name_begins_like_another_has_its_own_gpus() -> None:
    decision = replace(MOVED, hosts=("n1", "n10"), gpu_order=(("n10", "7"),))
    told = in_task(started(decision), SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NTASKS="2", SLURMD_NODENAME="n1")
    assert "CUDA_VISIBLE_DEVICES" not in told


def test_torchrun_gets_one_task_a_node_and_its_node_rank() -> None:
    start = started(per_node=True)
    assert start.hosts == "n2\nn1\n"
    assert "--ntasks=2" in start.words
    told = in_task(start, SLURM_PROCID="1", SLURM_LOCALID="0", SLURM_NTASKS="2", SLURMD_NODENAME="n1")
    assert told["PET_NODE_RANK"] == told["NODE_RANK"] == "1"
    assert (told["PET_NNODES"], told["PET_NPROC_PER_NODE"], told["PET_MASTER_ADDR"]) == ("2", "2", "n2")
    assert "RANK" not in told


def test_a_map_that_cannot_be_started_is_told() -> None:
    assert find_refusal(MOVED, JOB, per_node=True) == ""
    assert "does not hold n9" in find_refusal(replace(MOVED, hosts=("n9", "n1")), JOB, per_node=False)
    assert "for job 8" in find_refusal(replace(MOVED, job="8"), JOB, per_node=False)
    mixed = replace(MOVED, hosts=("n1", "n2", "n1", "n2"))
    assert find_refusal(mixed, JOB, per_node=False) == ""
    assert "node by node" in find_refusal(mixed, JOB, per_node=True)


def test_where_tasks_run_is_the_maps_business() -> None:
    assert validate_srun_options(("--cpu-bind=none", "-l")) == ("--cpu-bind=none", "-l")
    for word in ("--nodes=3", "-w", "--distribution=block", "bash"):
        with pytest.raises(InputError):
            validate_srun_options((word,))


def test_a_node_gets_a_rank_a_gpu() -> None:
    assert count_tasks_per_node({}, JOB) == 2
    assert count_tasks_per_node({"SLURM_GPUS_ON_NODE": "4"}, replace(JOB, gpus_per_node=None)) == 4
    with pytest.raises(InputError, match="is unknown"):
        count_tasks_per_node({}, replace(JOB, gpus_per_node=None))


def test_a_map_for_a_job_of_another_cluster_is_refused() -> None:
    west = replace(MOVED, cluster="west")
    assert find_refusal(west, JOB, per_node=True, cluster="west") == ""
    assert find_refusal(west, JOB, per_node=True, cluster="") == "", "where nobody tells the cluster, the folder does"
    assert find_refusal(west, JOB, per_node=True, cluster="east") == f"it is for job {JOB.label} of cluster west"
