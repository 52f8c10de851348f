"""What launch scripts of verl's supervised fine-tuning say (verl/trainer/config/sft_trainer.yaml of verl 0.7)."""

from __future__ import annotations

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
RUN = "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer"
GIVEN = "model.partial_pretrain=Qwen/Qwen2.5-7B"


def read(more: str) -> Workload:
    """Read a script with one command."""
    return read_script(f"{HEAD}{RUN} {GIVEN} {more}\n", file="job.sh")


def test_the_command_and_the_defaults_state_the_plan() -> None:
    workload = read('data.max_length=2048 "$@"')
    assert (workload.framework, workload.model.name, workload.model.seq) == ("verl", "Qwen/Qwen2.5-7B", 2048)
    assert (workload.plan.micro_batch, workload.plan.tp) == (4, 1)
    assert "trainable" not in dict(workload.options)


def test_adapters_stand_on_a_base_in_fp32_unless_told_otherwise() -> None:
    options = dict(read("model.lora_rank=32").options)
    assert (options["adapters.rank"], options["adapters.base_bits"]) == ("32", "32")


def test_what_may_be_among_unknown_words_is_unknown() -> None:
    workload = read("$MORE")
    assert (workload.plan.micro_batch, workload.model.seq) == (None, None)
