"""What launch scripts of fms-fsdp say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
RUN = "torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=8 main_training_llama.py"


def trained(flags: str = "", *, run: str = f"srun {RUN}") -> Workload:
    """Read a script whose one command trains with these flags."""
    return read_script(f"{HEAD}{run} {flags}\n", file="job.sh")


@pytest.mark.parametrize(
    ("flags", "part", "field", "value"),
    [
        ("--batch_size=2", "plan", "micro_batch", 2),
        ("--batch_size 2", "plan", "micro_batch", 2),
        ("--batch_size=2", "plan", "global_batch", 64),
        ("", "plan", "micro_batch", None),
        ("", "plan", "tp", 1),
        ("", "plan", "pp", 1),
        ("", "plan", "dp", 32),
        ("--seq_length=8192", "model", "seq", 8192),
        ("--vocab_size=32000", "model", "vocab", 32000),
        ("--sharding_strategy=hsdp", "plan", "sharding", Sharding.ZERO3),
        ("--sharding_strategy=fsdp", "plan", "sharding", Sharding.ZERO3),
        ("--sharding_strategy=ddp", "plan", "sharding", Sharding.NONE),
        ("--fsdp_activation_checkpointing=True", "plan", "recompute", Recompute.FULL),
        ("--fsdp_activation_checkpointing=True --selective_checkpointing=1", "plan", "recompute", Recompute.FULL),
        ("--fsdp_activation_checkpointing=True --selective_checkpointing=1/2", "plan", "recompute", None),
        ("--fsdp_activation_checkpointing=False --selective_checkpointing=1/2", "plan", "recompute", Recompute.NONE),
        ("--model_variant=llama3_8b", "model", "name", "llama-3-8b"),
        ("--model_variant=llama2_70b", "model", "name", "llama-2-70b"),
        ("--model_variant=llama3_70b_4k", "model", "name", "llama-3-70b"),
        ("--model_variant=llama3_194m_4k", "model", "name", None),
        ("--model_variant=llama3_8b", "model", "layers", None),
        ("--batch_size=$1", "plan", "micro_batch", None),
    ],
)
def test_flags_state_fields(flags: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(trained(flags), part), field) == value


def test_hybrid_sharding_copies_over_nodes() -> None:
    assert ("optimizer.instances", "4") in trained("--sharding_strategy=hsdp").options


def test_a_second_script_is_followed_where_it_is_given() -> None:
    body = f'ARGS="--batch_size=2\n--sharding_strategy=hsdp\n"\n{RUN} ${{ARGS}}\n'
    workload = read_script(f"{HEAD}srun ./scripts/train.sh\n", file="job.sh", files={"scripts/train.sh": body})
    assert (workload.framework, workload.plan.micro_batch, workload.plan.dp) == ("fms-fsdp", 2, 32)
    assert workload.launcher == "srun + torchrun"


def test_a_second_script_that_is_not_given_is_wanted() -> None:
    workload = read_script(f"{HEAD}srun ./scripts/train.sh\n", file="job.sh")
    assert (workload.launcher, workload.missing_files) == ("srun of a second script", ("scripts/train.sh",))
    assert workload.plan.tp is None


@pytest.mark.parametrize(
    ("run", "framework"),
    [
        ("torchrun main_training_mamba.py --batch_size=1", "fms-fsdp"),
        ("torchrun /x/fms-fsdp/main_training.py --batch_size=1", "fms-fsdp"),
        ("torchrun main_training.py --low_cpu_fsdp=True --batch_size=1", "fms-fsdp"),
    ],
)
def test_programs_are_recognised(run: str, framework: str) -> None:
    workload = trained(run=run)
    assert (workload.framework, workload.plan.micro_batch) == (framework, 1)


def test_another_main_training_states_nothing() -> None:
    assert trained(run="torchrun main_training.py --batch_size=1").plan.micro_batch is None


@pytest.mark.parametrize("value", ["\x07", "2" * 999, "0", "-2", "2.5", "[2]"])
def test_hostile_numbers_are_no_numbers(value: str) -> None:
    assert trained(f"--batch_size='{value}'").plan.micro_batch is None
