"""Job arrays whose tasks train with other settings."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.array_tasks import MAX_TASKS, list_tasks
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.separate_runs import MAX_RUNS

TRAIN = "torchrun --nproc_per_node=1 run_clm.py --model_name_or_path $MODEL --per_device_train_batch_size $BATCH\n"


def read(body: str, array: str = "0-2") -> Workload:
    return read_script(f"#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --array={array}\n{body}", file="job.sh")


@pytest.mark.parametrize(
    ("spec", "tasks"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("1-5:2%2", [1, 3, 5]),
        ("2,7,9", [2, 7, 9]),
        ("0-1,8", [0, 1, 8]),
        ("5", [5]),
        ("0-1000", []),
        ("0-999999:0", []),
        ("a-b", []),
        ("", []),
        ("%4", []),
    ],
)
def test_the_tasks_of_an_array(spec: str, tasks: list[int]) -> None:
    assert list_tasks(spec) == tasks


def test_a_list_of_many_tasks_takes_no_time() -> None:
    assert list_tasks(",".join("0-999999" for _ in range(100_000))) == []
    assert len(list_tasks(",".join(map(str, range(MAX_TASKS))))) == MAX_TASKS


def test_each_model_of_an_array_is_a_training() -> None:
    body = "MODELS=(gpt2 gpt2-large gpt2-xl)\nMODEL=${MODELS[$SLURM_ARRAY_TASK_ID]}\nBATCH=4\n" + TRAIN
    workload = read(body)
    assert [run.model.name for run in (workload, *workload.other_runs)] == ["gpt2", "gpt2-large", "gpt2-xl"]
    assert workload.run_count == 3


def test_a_case_on_the_task_is_followed() -> None:
    body = "MODEL=gpt2\ncase $SLURM_ARRAY_TASK_ID in 0) BATCH=4 ;; 1) BATCH=8 ;; *) BATCH=16 ;; esac\n" + TRAIN
    workload = read(body)
    assert [run.plan.micro_batch for run in (workload, *workload.other_runs)] == [4, 8, 16]


def test_tasks_that_train_the_same_are_one_training() -> None:
    body = "MODEL=gpt2\nBATCH=4\n" + TRAIN.replace("\n", " --seed $SLURM_ARRAY_TASK_ID\n")
    workload = read(body)
    assert (workload.model.name, workload.other_runs, workload.run_count) == ("gpt2", (), 1)


def test_a_larger_array_is_read_as_any_of_its_tasks() -> None:
    body = "MODEL=gpt2\nBATCH=$((SLURM_ARRAY_TASK_ID + 1))\n" + TRAIN
    assert read(body, array=f"0-{MAX_RUNS}").plan.micro_batch is None
    assert read(body, array="0-999").plan.micro_batch is None
    workload = read(body, array="1,3")
    assert [run.plan.micro_batch for run in (workload, *workload.other_runs)] == [2, 4]


def test_an_array_of_a_script_with_much_work_is_read_as_any_of_its_tasks() -> None:
    work = "A=$A.\n" * 3000
    body = "MODEL=gpt2\nBATCH=$((SLURM_ARRAY_TASK_ID / 12 + 1))\n" + TRAIN
    assert len(read(body, array="0-23").other_runs) == 1
    assert read(work + body, array="0-23").plan.micro_batch is None
