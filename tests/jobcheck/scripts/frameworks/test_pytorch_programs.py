"""What is stated of plain PyTorch programs: that ranks share only data, where the command tells."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
RUN = "srun torchrun --nnodes 2 --nproc_per_node 4"


def read(body: str) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(f"{HEAD}{body}\n", file="job.sh")


@pytest.mark.parametrize(
    "command",
    [
        f"{RUN} ddp.py 50 10",
        f"{RUN} ./src/train_ddp.py --batch-size 32",
        f"{RUN} multinode_torchrun.py 50 10",
        f"{RUN} resnet-ddp-v2.py",
        "srun python main.py --dist-url env:// --multiprocessing-distributed --world-size 2",
        f"{RUN} train.py --strategy ddp",
        f"{RUN} train.py --trainer.strategy=ddp",
    ],
)
def test_replicas_are_all_there_is(command: str) -> None:
    workload = read(command)
    plan = workload.plan
    assert (workload.framework, plan.tp, plan.pp, plan.dp) == ("pytorch-ddp", 1, 1, 8)
    assert (plan.sharding, plan.micro_batch) == (Sharding.NONE, None)


@pytest.mark.parametrize("command", [f"{RUN} T5_training.py --batch-size 4", f"{RUN} train.py --strategy fsdp"])
def test_shards_of_replicas_are_all_there_is(command: str) -> None:
    workload = read(command)
    assert (workload.framework, workload.plan.tp, workload.plan.dp) == ("pytorch-fsdp", 1, 8)


@pytest.mark.parametrize(
    "command",
    [
        f"{RUN} train.py --batch_size 3",
        f"{RUN} train.py --strategy deepspeed_stage_2",
        f"{RUN} train.py --strategy $STRATEGY",
        f"{RUN} train_ddp.py --strategy auto",
        f"{RUN} oddpiece.py",
        f"{RUN} addp.py",
        f"{RUN} main.py --multiprocessing-distributed False",
        "echo ddp.py",
    ],
)
def test_where_that_is_not_said_nothing_is_stated(command: str) -> None:
    plan = read(command).plan
    assert (plan.tp, plan.pp, plan.dp) == (None, None, None)


def test_why_the_rest_cannot_be_told_is_said() -> None:
    reasons = {entry.field: entry.why for entry in read(f"{RUN} ddp.py").unknown}
    assert "Python" in reasons["model.layers"]


def test_a_framework_that_says_more_is_read_instead() -> None:
    shape = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 32"
    assert read(f"{RUN} pretrain_ddp.py {shape}").framework == "megatron-lm"
