"""What accelerate's launcher and its configuration files say: ranks, sharding, precision, splits."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
TRAINER = "srun torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --num_train_epochs 1"
LAUNCH = "srun accelerate launch"
SFT = "sft.py --model_name_or_path meta-llama/Llama-3.1-8B"
ZERO3 = '{\n "zero_optimization": {\n  "stage": 3\n },\n "bf16": {"enabled": "auto"}\n}\n'
FSDP = "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"


def read(body: str, *, head: str = HEAD, files: dict[str, str] | None = None) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(head + body, file="job.sh", files=files)


def trained(flags: str = "", *, files: dict[str, str] | None = None) -> Workload:
    """Read a script whose one command is an own program that takes the Trainer's flags."""
    return read(f"{TRAINER} {flags}\n", files=files)


def launched(flags: str = "", config: str = "", program: str = SFT) -> Workload:
    """Read a script that starts a program with accelerate, by a file that it writes itself where one is given."""
    written = f"cat > acc.yaml <<EOT\n{config}EOT\n" if config else ""
    named = " --config_file acc.yaml" if config else ""
    return read(f"{written}{LAUNCH}{named} {flags} {program}\n")


def test_accelerate_counts_all_ranks() -> None:
    workload = read(
        f"{LAUNCH} --multi_gpu --num_machines 4 --num_processes 32 {SFT} --per_device_train_batch_size 1\n",
        head="#!/bin/bash\n#SBATCH --nodes=4\n",
    )
    assert (workload.plan.gpus, workload.plan.gpus_per_node, workload.plan.dp) == (32, 8, 32)


def test_fewer_ranks_than_gpus_are_told() -> None:
    workload = launched("--multi_gpu --num_processes 8")
    assert workload.plan.dp == 8
    assert any("DP 8" in problem.what for problem in workload.problems)


def test_an_accelerate_file_states_sharding_precision_and_ranks() -> None:
    workload = launched(config=FSDP + "  fsdp_activation_checkpointing: true\nnum_processes: 16\n")
    plan = workload.plan
    assert (plan.sharding, plan.precision, plan.recompute) == (Sharding.ZERO3, Precision.BF16, Recompute.FULL)
    assert (plan.tp, plan.pp, plan.dp) == (1, 1, 16)


@pytest.mark.parametrize(
    ("lines", "sharding"),
    [
        ("  fsdp_sharding_strategy: SHARD_GRAD_OP\n", Sharding.ZERO2),
        ("  fsdp_sharding_strategy: 1\n", Sharding.ZERO3),
        ("  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", Sharding.ZERO2),
        ("  version: 2\n  reshard_after_forward: true\n", Sharding.ZERO3),
        ("  sharding_strategy: NO_SHARD\n", Sharding.NONE),
    ],
)
def test_fsdp_is_spelled_in_many_ways(lines: str, sharding: Sharding) -> None:
    assert launched(config="distributed_type: FSDP\nfsdp_config:\n" + lines).plan.sharding is sharding


def test_hybrid_sharding_is_inside_of_a_node() -> None:
    config = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    program = SFT + " --max_length 512 --per_device_train_batch_size 1"
    by_launcher, by_flag = launched(config=config, program=program), trained('--fsdp "hybrid_shard" --block_size 512')
    for workload in (by_launcher, by_flag):
        plan = complete(workload).plan
        assert plan is not None
        assert (plan.sharding, plan.shard_gpus) == (Sharding.ZERO3, 8)


def test_flags_of_the_launcher_beat_its_file() -> None:
    workload = launched("--mixed_precision fp16 --fsdp_sharding_strategy SHARD_GRAD_OP", FSDP)
    assert (workload.plan.precision, workload.plan.sharding) == (Precision.FP16, Sharding.ZERO2)


def test_a_parallelism_config_splits_tensors_and_sequences() -> None:
    config = (
        FSDP + "parallelism_config:\n  parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 4\n"
        "  parallelism_config_dp_shard_size: 2\n"
    )
    plan = launched(config=config).plan
    assert (plan.tp, plan.cp, plan.pp, plan.dp) == (2, 4, 1, 2)


def test_accelerate_names_a_deepspeed_file_or_a_stage() -> None:
    config = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  offload_optimizer_device: cpu\n"
    workload = launched(config=config)
    assert workload.plan.sharding is Sharding.ZERO2
    assert dict(workload.options)["optimizer.offload"] == "cpu"
    named = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: z.json\n"
    body = f"cat > a.yaml <<E\n{named}E\ncat > z.json <<E\n{ZERO3}E\n{LAUNCH} --config_file a.yaml {SFT}\n"
    assert read(body).plan.sharding is Sharding.ZERO3


def test_an_accelerate_file_that_was_not_read_leaves_the_layout_open() -> None:
    workload = read(f"{LAUNCH} --config_file conf/fsdp.yaml --num_processes 16 {SFT} --per_device_train_batch_size 2\n")
    assert workload.missing_files == ("conf/fsdp.yaml", "sft.py")
    assert (workload.plan.tp, workload.plan.dp, workload.plan.micro_batch) == (None, None, 2)
    assert "conf/fsdp.yaml" in why(workload, "plan.sharding")


def test_flags_of_the_launcher_are_not_those_of_the_program() -> None:
    # accelerate's own --gradient_accumulation_steps does not reach the Trainer
    workload = launched("--multi_gpu --gradient_accumulation_steps 4", program=SFT + " --per_device_train_batch_size 1")
    assert workload.plan.global_batch is None


@pytest.mark.parametrize("text", ["{", "- a\n- b\n", "&a [*a]", "a: !!python/object:os.system x", "\0", "x" * 300_000])
def test_a_hostile_accelerate_file_states_nothing(text: str) -> None:
    workload = read(f"{LAUNCH} --config_file a.yaml {SFT}\n", files={"a.yaml": text})
    assert (workload.plan.sharding, workload.plan.precision) == (None, None)
