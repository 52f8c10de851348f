"""What Slurm's own variables hold in a job; sbatch(1), "OUTPUT ENVIRONMENT VARIABLES", is the source."""

from __future__ import annotations

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest

TRAIN = "srun python pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256"


def read(*lines: str, request: SlurmRequest | None = None) -> Workload:
    """Read a script of these lines."""
    return read_script("\n".join(("#!/bin/bash", *lines, "")), file="job.sh", request=request)


def test_the_gpus_of_a_node_are_known_by_the_name_of_their_option() -> None:
    workload = read("#SBATCH -N 2 --gpus-per-node=4", f"{TRAIN} --tensor-model-parallel-size $SLURM_GPUS_PER_NODE")
    assert workload.plan.tp == 4


def test_gpus_asked_for_as_gres_set_no_such_variable() -> None:
    workload = read("#SBATCH -N 2 --gres=gpu:4", f"{TRAIN} --tensor-model-parallel-size ${{SLURM_GPUS_PER_NODE:-2}}")
    assert workload.plan.tp == 2


def test_the_type_of_gpu_stays_in_the_variable() -> None:
    workload = read(
        "#SBATCH --gpus-per-node=a100:4", f"{TRAIN} --tensor-model-parallel-size ${{SLURM_GPUS_PER_NODE#*:}}"
    )
    assert workload.plan.tp == 4


def test_what_was_really_asked_for_beats_the_script() -> None:
    request = SlurmRequest(nodes=1, gpus_per_node=8)
    script = ("#SBATCH --gpus-per-node=4", f"{TRAIN} --tensor-model-parallel-size $SLURM_GPUS_PER_NODE")
    assert read(*script, request=request).plan.tp == 8


def test_all_gpus_and_gpus_of_a_task_are_variables_too() -> None:
    workload = read(
        "#SBATCH -N 2 --gpus=16 --gpus-per-task=1",
        f"{TRAIN} --pipeline-model-parallel-size $SLURM_GPUS --tensor-model-parallel-size $SLURM_GPUS_PER_TASK",
    )
    assert (workload.plan.pp, workload.plan.tp) == (16, 1)


def test_which_task_of_an_array_it_is_nobody_knows_before() -> None:
    lines = ("#SBATCH --array=1-400", f"{TRAIN} --micro-batch-size ${{SLURM_ARRAY_TASK_ID:-1}}")
    assert read(*lines).plan.micro_batch is None
    few = read("#SBATCH --array=2-4", *lines[1:])  # each of them is read
    assert [run.plan.micro_batch for run in (few, *few.other_runs)] == [2, 3, 4]
    assert read(*lines[1:]).plan.micro_batch == 1


def test_a_heterogeneous_job_tells_no_sizes() -> None:
    lines = ("#SBATCH --gpus-per-node=4", "#SBATCH hetjob", "#SBATCH --gpus-per-node=8")
    assert read(*lines, f"{TRAIN} --tensor-model-parallel-size $SLURM_GPUS_PER_NODE").plan.tp is None


def test_a_line_that_is_not_in_force_sets_no_variable() -> None:
    script = ("#SBATCH --gpus-per-node=4", f"{TRAIN} --tensor-model-parallel-size ${{SLURM_GPUS_PER_NODE:-1}}")
    assert read(*script, request=SlurmRequest(is_merged=True, gpus=8)).plan.tp == 1


def test_a_variable_that_export_gives_a_value_has_it() -> None:
    line = "#SBATCH --export=ALL,TP=4,MODE=fast"
    assert read(line, f"{TRAIN} --tensor-model-parallel-size ${{TP:-2}}").plan.tp == 4
    merged = SlurmRequest(nodes=1, gpus_per_node=8, is_merged=True, environment={"TP": "8"})
    assert read(line, f"{TRAIN} --tensor-model-parallel-size ${{TP:-2}}", request=merged).plan.tp == 8
