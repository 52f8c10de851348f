"""What launch scripts of torchtune and the YAML files that they name say."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.public_models.lookup import public_model
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
RUN = "srun tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config conf/x.yaml"
FILE = """tokenizer:
  max_seq_len: 4096
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
batch_size: 2
gradient_accumulation_steps: 4
enable_activation_checkpointing: True
dtype: bf16
batch_size_val: ${batch_size}
"""


def trained(more: str = "", *, file: str | None = FILE, run: str = RUN) -> Workload:
    """Read a script whose one command trains with a file and these settings."""
    return read_script(f"{HEAD}{run} {more}\n", file="job.sh", files={"conf/x.yaml": file} if file is not None else {})


def test_the_file_states_the_plan() -> None:
    plan = trained().plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (1, 1, 16, 2, 128)
    assert (plan.sharding, plan.recompute, plan.precision) == (Sharding.ZERO3, Recompute.FULL, Precision.BF16)


def test_the_file_names_the_model() -> None:
    workload = trained()
    assert (workload.framework, workload.model.name, workload.model.seq) == ("torchtune", "llama-3-8b", 4096)


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("batch_size=4", "micro_batch", 4),
        ("batch_size=4", "global_batch", 256),
        ("gradient_accumulation_steps=1", "global_batch", 32),
        ("tensor_parallel_dim=8", "tp", 8),
        ("tensor_parallel_dim=8", "dp", 2),
        ("dtype=fp32", "precision", Precision.FP32),
        ("enable_activation_checkpointing=False", "recompute", Recompute.NONE),
        ("batch_size=$1", "micro_batch", None),
        ("fsdp_reshard_after_forward=False", "sharding", Sharding.ZERO2),
        ("fsdp_reshard_after_forward=True", "sharding", Sharding.ZERO3),
        ("fsdp_reshard_after_forward=$1", "sharding", None),
    ],
)
def test_settings_beat_the_file(more: str, field: str, value: object) -> None:
    assert getattr(trained(more).plan, field) == value


def test_a_configuration_that_torchtune_does_not_ship_cannot_be_told() -> None:
    workload = trained(run="srun tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_mine")
    assert (workload.model.name, workload.plan.micro_batch) == ("llama-3-8b", None)
    assert "inside torchtune" in why(workload, "plan.micro_batch")
    assert workload.missing_files == ()


SHIPPED = "srun tune run --nnodes 2 --nproc_per_node 8 "


@pytest.mark.parametrize(
    ("words", "name", "micro", "whole", "recompute", "adapters"),
    [
        ("full_finetune_distributed --config llama3_1/8B_full", "llama-3-8b", 2, 32, Recompute.FULL, None),
        ("full_finetune_distributed --config gemma/7B_full", "gemma-7b", 1, 16, Recompute.FULL, None),
        ("lora_finetune_distributed --config llama3/70B_lora", "llama-3-70b", 2, 32, Recompute.FULL, "16 all"),
        ("lora_finetune_distributed --config llama2/7B_qlora", "llama-2-7b", 2, None, Recompute.FULL, "8 all 4"),
        ("lora_finetune_distributed --config qwen2/7B_lora batch_size=1", "qwen2-7b", 1, None, Recompute.NONE, "8 all"),
    ],
)
def test_a_shipped_configuration_states_its_settings(
    words: str, name: str, micro: int, whole: int | None, recompute: Recompute, adapters: str | None
) -> None:
    """The numbers are those of ``recipes/configs`` of torchtune 0.6.1."""
    workload = trained(run=SHIPPED + words)
    plan, options = workload.plan, dict(workload.options)
    assert (workload.model.name, plan.micro_batch, plan.global_batch) == (name, micro, whole)
    assert (plan.recompute, plan.precision, plan.sharding) == (recompute, Precision.BF16, Sharding.ZERO3)
    adapted = [options[f"adapters.{key}"] for key in ("rank", "targets", "base_bits") if f"adapters.{key}" in options]
    assert (" ".join(adapted) or None) == adapters


def test_what_differs_between_releases_is_not_stated() -> None:
    workload = trained(run="tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device")
    assert workload.plan.micro_batch == 2
    assert "differs between releases" in why(workload, "plan.global_batch")
    several = trained(run=f"{SHIPPED}full_finetune_distributed --config llama3_3/70B_full_multinode")
    assert (several.plan.tp, several.plan.dp) == (None, None)


def test_every_shipped_configuration_names_a_public_model() -> None:
    table = files("opsk.frameworks.settings").joinpath("torchtune_configs.toml").read_text(encoding="utf-8")
    for name in tomllib.loads(table):
        workload = trained(run=f"{SHIPPED}lora_finetune_distributed --config {name}")
        assert public_model(workload.model.name or "") is not None, name
        assert workload.plan.micro_batch, name


@pytest.mark.parametrize(
    ("component", "name"),
    [
        ("torchtune.models.qwen2_5.qwen2_5_7b_instruct", "qwen2.5-7b"),
        ("torchtune.models.qwen2_5.qwen2_5_0_5b", "qwen2.5-0.5b"),
        ("torchtune.models.llama2.llama2_70b", "llama-2-70b"),
        ("torchtune.models.mistral.mistral_7b", "mistral-7b"),
        ("torchtune.models.llama3_2_vision.llama3_2_vision_11b", None),
        ("my.models.llama3_8b", None),
    ],
)
def test_components_name_public_models(component: str, name: str | None) -> None:
    assert trained(file=FILE.replace("torchtune.models.llama3_1.llama3_1_8b", component)).model.name == name


def test_adapters_are_read() -> None:
    options = dict(trained(run=RUN.replace("full_finetune", "lora_finetune") + " model.lora_rank=64").options)
    assert (options["adapters"], options["adapters.rank"]) == ("lora", "64")


def test_a_recipe_for_one_device_shards_nothing() -> None:
    run = RUN.replace("full_finetune_distributed", "full_finetune_single_device")
    assert trained(run=run).plan.sharding is Sharding.NONE


def test_a_recipe_may_run_under_torchrun() -> None:
    run = "srun torchrun --nproc_per_node 8 recipes/full_finetune_distributed.py --config conf/x.yaml"
    assert trained(run=run).plan.global_batch == 128


def test_a_file_that_was_not_read_is_wanted() -> None:
    workload = trained(file=None)
    assert workload.missing_files == ("conf/x.yaml",)
    assert (workload.plan.tp, workload.plan.pp, workload.plan.micro_batch) == (None, None, None)


def test_other_commands_of_tune_are_no_training() -> None:
    assert trained(run="tune download meta-llama/X --config conf/x.yaml").plan.micro_batch is None


@pytest.mark.parametrize("file", ["", "- a\n", "batch_size: [1]\n", "batch_size: ${batch_size}\n", "{{"])
def test_damaged_files_state_no_batch(file: str) -> None:
    assert trained(file=file).plan.micro_batch is None


def test_what_torchtune_ships_trains_with_all_states_in_16_bits() -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n"
    script = f"{head}tune run full_finetune_distributed --config llama3/8B_full"
    workload = read_script(f"{script}\n", file="job.sh")
    assert workload.plan.precision == "bf16"
    assert dict(workload.options)["weights.dtype"] == "bf16"
    other = read_script(f"{script} dtype=fp32\n", file="job.sh")
    assert other.plan.precision == "fp32"
    assert "weights.dtype" not in dict(other.options)
