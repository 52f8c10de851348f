"""What launch scripts of axolotl say: every rule on a small script of its own; two nodes are 16 ranks."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Optimizer, Precision, Recompute, Sharding, States
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
RECIPE = (
    "base_model: meta-llama/Llama-3.1-70B\nsequence_len: 8192\nmicro_batch_size: 1\n"
    "gradient_accumulation_steps: 4\nbf16: true\ngradient_checkpointing: true\n"
)
TRAIN = "srun axolotl train conf.yaml"


def read(body: str = TRAIN, *, recipe: str = RECIPE, **files: str) -> Workload:
    """Read a script whose recipe, and other files by name without suffix, can be read."""
    texts = {"conf.yaml": recipe} | {f"{name}.json": text for name, text in files.items()}
    return read_script(HEAD + body + "\n", file="job.sh", files=texts)


def test_a_recipe_states_batch_length_precision_and_model() -> None:
    workload = read()
    plan = workload.plan
    assert (workload.framework, workload.model.name, workload.model.seq) == (
        "axolotl",
        "meta-llama/Llama-3.1-70B",
        8192,
    )
    # 1 x 4 steps x 16 ranks
    assert (plan.micro_batch, plan.global_batch, plan.dp) == (1, 64, 16)
    assert (plan.precision, plan.recompute) == (Precision.BF16, Recompute.FULL)
    assert complete(workload).model is not None


@pytest.mark.parametrize(
    "command",
    [
        "srun axolotl train conf.yaml --launcher torchrun -- --nproc_per_node=8 --nnodes=2",
        "srun accelerate launch --multi_gpu -m axolotl.cli.train conf.yaml",
        "srun torchrun --nnodes 2 --nproc_per_node 8 -m axolotl.cli.train conf.yaml",
        "python -m axolotl.cli.main train conf.yaml",
        "accelerate launch --multi_gpu /workspace/axolotl/scripts/finetune.py conf.yaml",
    ],
)
def test_it_is_started_in_many_ways(command: str) -> None:
    workload = read(command)
    assert (workload.framework, workload.model.seq, workload.plan.micro_batch) == ("axolotl", 8192, 1)


@pytest.mark.parametrize("command", ["preprocess", "evaluate", "inference", "merge-lora", "fetch"])
def test_other_commands_train_nothing(command: str) -> None:
    assert read(f"axolotl {command} conf.yaml").plan.micro_batch is None


def test_a_runner_that_axolotl_starts_is_named() -> None:
    assert read(f"{TRAIN} --launcher torchrun -- --nnodes 2").launcher == "srun + axolotl --launcher torchrun"


@pytest.mark.parametrize("flag", ["--micro-batch-size 2", "--micro_batch_size=2"])
def test_flags_beat_the_recipe(flag: str) -> None:
    assert read(f"{TRAIN} {flag}").plan.global_batch == 128


def test_flags_of_the_runner_are_not_axolotls() -> None:
    assert read(f"{TRAIN} --launcher torchrun -- --micro-batch-size 2").plan.micro_batch == 1


def test_a_recipe_that_was_not_read_is_the_reason_for_all() -> None:
    workload = read_script(HEAD + TRAIN + "\n", file="job.sh")
    assert workload.missing_files == ("conf.yaml",)
    for field in ("model.layers", "plan.micro_batch", "model.seq", "plan.tp", "plan.sharding"):
        assert "conf.yaml" in why(workload, field)
    assert (workload.plan.tp, workload.plan.dp) == (None, None)


def test_a_recipe_that_the_script_writes_is_cited_there() -> None:
    workload = read_script(HEAD + f"cat > conf.yaml <<EOT\n{RECIPE}EOT\n{TRAIN}\n", file="job.sh")
    place = evidence(workload, "model.seq")
    # cat is line 4 and base_model line 5
    assert (place.file, place.line, place.text) == ("job.sh", 6, "sequence_len: 8192")


@pytest.mark.parametrize(
    ("lines", "sharding"),
    [
        ("fsdp:\n  - full_shard\n  - auto_wrap\n", Sharding.ZERO3),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n", Sharding.ZERO3),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false\n", Sharding.ZERO2),
        ("fsdp:\n  - shard_grad_op\nfsdp_config:\n  fsdp_offload_params: true\n", Sharding.ZERO2),
    ],
)
def test_fsdp_states_what_is_sharded(lines: str, sharding: Sharding) -> None:
    workload = read(recipe=RECIPE + lines)
    assert (workload.plan.sharding, workload.plan.dp) == (sharding, 16)


def test_fsdp_without_a_word_shards_all_by_assumption() -> None:
    workload = read(recipe=RECIPE + "fsdp_config:\n  state_dict_type: FULL_STATE_DICT\n")
    plan = complete(workload).plan
    assert workload.plan.sharding is None
    assert plan is not None
    assert plan.sharding is Sharding.ZERO3


def test_deepspeed_is_read_where_it_can_be() -> None:
    recipe = RECIPE + "deepspeed: zero3.json\n"
    seen = read(recipe=recipe, zero3='{"zero_optimization": {"stage": 3}}')
    assert (seen.plan.sharding, seen.plan.dp) == (Sharding.ZERO3, 16)
    blind = read(recipe=recipe)
    assert (blind.plan.sharding, blind.plan.tp) == (None, None)
    assert "zero3.json" in why(blind, "plan.sharding")


def test_a_model_and_its_sequences_are_split() -> None:
    plan = read(recipe=RECIPE + "tensor_parallel_size: 2\ncontext_parallel_size: 4\n").plan
    assert (plan.tp, plan.cp, plan.pp, plan.dp, plan.global_batch) == (2, 4, 1, 2, 8)
    assert read(recipe=RECIPE + "sequence_parallel_degree: 4\n").plan.cp == 4


def test_the_batch_of_a_rank_gives_its_steps() -> None:
    recipe = RECIPE.replace("gradient_accumulation_steps: 4", "batch_size: 8")
    assert read(recipe=recipe).plan.global_batch == 128


def test_automatic_precision_is_not_stated() -> None:
    assert read(recipe=RECIPE.replace("bf16: true", "bf16: auto")).plan.precision is None


def test_sixteen_bits_without_autocast_are_the_states_too() -> None:
    workload = read(recipe=RECIPE.replace("bf16: true", "bfloat16: true") + "optimizer: paged_adamw_8bit\n")
    plan = complete(workload).plan
    assert plan is not None
    assert (plan.precision, plan.states, plan.optimizer) == (
        Precision.BF16,
        States.PURE_16BIT,
        Optimizer.PAGED_ADAM_8BIT,
    )


def test_an_empty_adapter_trains_all_and_a_named_one_is_read() -> None:
    options = dict(read(recipe=RECIPE + "adapter:\nlora_r:\n").options)
    assert not {"trainable", "adapters"} & options.keys()
    options = dict(read(recipe=RECIPE + "adapter: qlora\nlora_r: 32\nload_in_4bit: true\n").options)
    assert (options["adapters"], options["adapters.rank"], options["adapters.base_bits"]) == ("lora", "32", "4")


def test_what_is_left_out_is_assumed_as_axolotl_has_it() -> None:
    workload = read(recipe="base_model: gpt2\n")
    assumed = {entry.field: entry.value for entry in complete(workload).assumed}
    assert (workload.plan.micro_batch, workload.model.seq) == (None, None)
    assert (assumed["plan.micro_batch"], assumed["model.seq"]) == (1, 512)


@pytest.mark.parametrize(
    "recipe", ["", "[", "- a", "micro_batch_size: x", "base_model: [1]", "a: &a [*a]", "\0", "fsdp: {a: b}", "{" * 5000]
)
def test_a_damaged_recipe_states_nothing(recipe: str) -> None:
    workload = read(recipe=recipe)
    assert (workload.framework, workload.model.seq, workload.plan.micro_batch) == ("axolotl", None, None)
