"""What launch scripts of LLaMA-Factory say: every rule on a small script of its own; two nodes are 16 ranks."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
RECIPE = (
    "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\n"
    "stage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: llama3\ncutoff_len: 4096\n"
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n"
)
TRAIN = "NNODES=2 srun llamafactory-cli train full.yaml"


def read(body: str, *, head: str = HEAD, recipe: str = RECIPE, **files: str) -> Workload:
    """Read a script whose recipe, and other files by name without suffix, can be read."""
    texts = {"full.yaml": recipe} | {f"{name}.json": text for name, text in files.items()}
    return read_script(head + body + "\n", file="job.sh", files=texts)


def test_a_recipe_states_batch_length_precision_and_model() -> None:
    workload = read(TRAIN)
    plan = workload.plan
    assert (workload.framework, workload.model.seq) == ("llama-factory", 4096)
    # 1 x 2 steps x 16 ranks
    assert (plan.micro_batch, plan.global_batch, plan.precision) == (1, 32, Precision.BF16)
    assert (plan.tp, plan.pp, plan.dp) == (1, 1, 16)
    assert workload.model.name == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert "trainable" not in dict(workload.options)


def test_values_are_cited_in_the_recipe() -> None:
    places = {entry.field: (entry.file, entry.line, entry.text) for entry in read(TRAIN).evidence}
    assert places["model.seq"] == ("full.yaml", 6, "cutoff_len: 4096")


@pytest.mark.parametrize(
    "command",
    [
        "llamafactory-cli train full.yaml",
        "lmf train full.yaml",
        "FORCE_TORCHRUN=1 srun llamafactory-cli train full.yaml",
        "srun torchrun --nproc_per_node 8 --nnodes 2 src/train.py full.yaml stage=sft template=x",
        "srun python LLaMA-Factory/src/train.py full.yaml",
        "srun python src/llamafactory/cli.py train full.yaml",
        "srun python -m llamafactory.cli train full.yaml",
        "srun accelerate launch --multi_gpu /opt/LLaMA-Factory/src/train.py full.yaml",
    ],
)
def test_it_is_started_in_many_ways(command: str) -> None:
    workload = read(command)
    assert (workload.framework, workload.model.seq, workload.plan.micro_batch) == ("llama-factory", 4096, 1)


@pytest.mark.parametrize("command", ["chat full.yaml", "export full.yaml", "webui", "version", ""])
def test_other_commands_train_nothing(command: str) -> None:
    assert read(f"llamafactory-cli {command}").plan.micro_batch is None


@pytest.mark.parametrize("value", ["cutoff_len=2048", "--cutoff_len 2048", "--cutoff_len=2048"])
def test_the_command_line_beats_the_recipe(value: str) -> None:
    assert read(f"{TRAIN} {value}").model.seq == 2048


def test_flags_alone_are_read() -> None:
    flags = (
        "--stage pt --do_train --model_name_or_path gpt2 --finetuning_type full --template default \\\n"
        "  --per_device_train_batch_size 4 --cutoff_len 1024 --fp16"
    )
    workload = read(f"srun torchrun --nproc_per_node 8 src/train_bash.py {flags}")
    assert (workload.framework, workload.model.name, workload.model.seq) == ("llama-factory", "gpt2", 1024)
    assert (workload.plan.micro_batch, workload.plan.precision, workload.plan.dp) == (4, Precision.FP16, 16)


def test_a_recipe_in_a_here_document_is_read_with_its_variables() -> None:
    body = f"LEN=8192\ncat > own.yaml <<EOT\n{RECIPE.replace('4096', '$LEN')}EOT\nllamafactory-cli train own.yaml"
    assert read(body).model.seq == 8192


def test_a_recipe_that_is_not_known_is_the_reason_for_all() -> None:
    workload = read_script(HEAD + "llamafactory-cli train conf/a.yaml bf16=true\n", file="job.sh")
    assert workload.missing_files == ("conf/a.yaml",)
    assert (workload.plan.tp, workload.plan.dp, workload.plan.precision) == (None, None, Precision.BF16)
    for field in ("model.layers", "plan.micro_batch", "model.seq", "plan.tp"):
        assert "conf/a.yaml" in why(workload, field)
    argument = read_script(HEAD + 'llamafactory-cli train "$1"\n', file="job.sh")
    assert "$1" in why(argument, "plan.micro_batch")


@pytest.mark.parametrize(
    ("before", "replicas"),
    [("NNODES=2", 16), ("FORCE_TORCHRUN=1", None), ("NNODES=2 NPROC_PER_NODE=4", None), ("export NNODES=2\n", 16)],
)
def test_without_the_variables_of_its_launcher_it_takes_one_node(before: str, replicas: int | None) -> None:
    """``launcher.py`` of LLaMA-Factory: ``os.getenv("NNODES", "1")``."""
    workload = read(f"{before} llamafactory-cli train full.yaml")
    assert workload.plan.dp == replicas
    assert any("N" in problem.what for problem in workload.problems) == (replicas is None)


def test_checkpointing_is_on_unless_it_is_disabled() -> None:
    workload = read(TRAIN)
    assert workload.plan.recompute is None
    plan = complete(workload).plan
    assert plan is not None
    assert plan.recompute is Recompute.FULL
    assert read(f"{TRAIN} disable_gradient_checkpointing=true").plan.recompute is Recompute.NONE


def test_deepspeed_is_read_where_it_can_be() -> None:
    recipe = RECIPE + "deepspeed: ds3.json\n"
    seen = read(TRAIN, recipe=recipe, ds3='{"zero_optimization": {"stage": 3}}')
    assert (seen.plan.sharding, seen.plan.dp) == (Sharding.ZERO3, 16)
    blind = read(TRAIN, recipe=recipe)
    assert (blind.plan.sharding, blind.plan.tp) == (None, None)
    assert blind.missing_files == ("ds3.json",)


@pytest.mark.parametrize("kind", ["freeze", "oft", "hydralora", "$KIND"])
def test_what_trains_a_part_is_marked(kind: str) -> None:
    workload = read(f"{TRAIN} finetuning_type={kind}")
    assert dict(workload.options)["trainable"].startswith("unknown")


def test_adapters_are_the_default() -> None:
    workload = read(TRAIN, recipe=RECIPE.replace("finetuning_type: full\n", ""))
    assert dict(workload.options)["adapters"] == "lora"


@pytest.mark.parametrize("unread", ["use_dora=true", "use_unsloth=true", "additional_target=embed_tokens,lm_head"])
def test_adapters_beside_what_is_not_counted_are_unknown(unread: str) -> None:
    workload = read(f"{TRAIN} finetuning_type=lora {unread}")
    assert dict(workload.options)["trainable"].startswith("unknown: only adapters are trained")


def test_the_variables_of_its_launcher_count_ranks_where_slurm_was_not_asked() -> None:
    body = "export NNODES=4 NPROC_PER_NODE=8\nFORCE_TORCHRUN=1 llamafactory-cli train full.yaml"
    workload = read(body, head="#!/bin/bash\n#SBATCH --exclusive\n")
    assert (workload.plan.nodes, workload.plan.gpus, workload.plan.dp) == (4, 32, 32)


def test_a_setting_that_splits_the_model_leaves_the_layout_open() -> None:
    assert read(TRAIN, recipe=RECIPE + "tensor_model_parallel_size: 2\n").plan.tp is None
    assert read(f"{TRAIN} sequence_parallel_size=4").plan.dp is None


@pytest.mark.parametrize(
    "recipe", ["", "[", "- a", "cutoff_len: [1, 2]", "cutoff_len: -4", "cutoff_len: &a [*a]", "\0", "a: " * 9000]
)
def test_a_damaged_recipe_states_nothing(recipe: str) -> None:
    workload = read(TRAIN, recipe=recipe)
    assert (workload.framework, workload.model.seq, workload.plan.micro_batch) == ("llama-factory", None, None)
