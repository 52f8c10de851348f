"""Recipes of NeMo 2 and Megatron-Bridge that a Python program configures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.frameworks.settings.nemo_recipes import RECIPES
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.public_models.lookup import public_model
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.flags import build_flags
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\n"
NEMO = "from nemo.collections import llm\nimport nemo_run as run\nimport argparse\n"
MAKE = "recipe = llm.llama3_8b.pretrain_recipe(dir='/ckpt', num_nodes=2)\n"
RUN = "run.run(recipe, executor=run.LocalExecutor(ntasks_per_node=8, launcher='torchrun'))\n"


def read(source: str, words: str = "") -> Workload:
    command = f"srun --container-image nvcr.io/nvidia/nemo:25.02 python job.py {words}\n"
    return read_script(HEAD + command, file="job.sh", files={"job.py": source})


def test_what_the_program_sets_comes_before_what_the_recipe_sets() -> None:
    workload = read(
        f"{NEMO}{MAKE}recipe.trainer.strategy.tensor_model_parallel_size = 2\n"
        "recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None\n"
        f"recipe.data.global_batch_size = 128\n{RUN}"
    )
    plan = workload.plan
    assert (workload.framework, workload.is_training, workload.model.name) == ("nemo", True, "llama3_8b")
    assert (plan.tp, plan.pp, plan.cp, plan.micro_batch, plan.global_batch) == (2, 1, 2, 1, 128)
    assert (workload.model.seq, plan.sharding, plan.recompute) == (8192, Sharding.ZERO1, Recompute.NONE)
    evidence = {entry.field: (entry.file, entry.line) for entry in workload.evidence}
    assert evidence["plan.tp"] == ("job.py", 5)
    assert evidence["plan.cp"] == ("job.py", 4)


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("recipe.trainer.strategy.tensor_model_parallel_size = pick()\n", "tp"),
        ("if size > 7:\n    recipe.trainer.strategy.tensor_model_parallel_size = 2\n", "tp"),
        ("recipe.data.micro_batch_size = 1\nrecipe.data.micro_batch_size = 2\n", "micro_batch"),
        ("recipe.trainer.plugins = bf16_with_fp8_mixed()\n", "precision"),
        ("recipe.optim.config.use_distributed_optimizer = False\n", "sharding"),
        ("recipe.model.config.recompute_modules = ['core_attn']\n", "recompute"),
        ("recipe.data = run.Config(Data, paths=p)\n", "micro_batch"),
        ("recipe.trainer.strategy = run.Config(nl.FSDPStrategy)\n", "tp"),
        ("recipe.trainer = trainer()\n", "precision"),
        ("recipe.optim = adam()\n", "sharding"),
    ],
)
def test_what_the_program_may_change_is_not_known(lines: str, field: str) -> None:
    assert getattr(read(f"{NEMO}{MAKE}{lines}{RUN}").plan, field) is None


def test_what_replaces_a_part_of_the_recipe_is_read_and_the_rest_of_that_part_is_not_known() -> None:
    data = "recipe.data = run.Config(\n    Data, paths=paths, seq_length=4096, global_batch_size=64)\n"
    workload = read(f"{NEMO}{MAKE}{data}{RUN}")
    assert (workload.model.seq, workload.plan.global_batch, workload.plan.micro_batch) == (4096, 64, None)
    assert workload.plan.cp == 2
    assert read(f"{NEMO}{MAKE}recipe.model = my_model()\n{RUN}").model.name is None


def test_a_program_that_submits_another_job_does_not_train() -> None:
    source = f"{NEMO}{MAKE}{RUN.replace('LocalExecutor', 'SlurmExecutor')}"
    assert not read(source).is_training


def test_a_flag_of_the_program_decides_where_it_is_given() -> None:
    source = (
        f"{NEMO}p = argparse.ArgumentParser()\np.add_argument('--tp', type=int, default=4)\nargs = p.parse_args()\n"
        f"{MAKE}recipe.trainer.strategy.tensor_model_parallel_size = args.tp\n{RUN}"
    )
    assert read(source).plan.tp == 4
    assert read(source, "--tp 8").plan.tp == 8


def test_fine_tuning_trains_adapters_unless_told_otherwise() -> None:
    source = f"{NEMO}{MAKE.replace('pretrain_recipe', 'finetune_recipe')}{RUN}"
    assert "train adapters" in dict(read(source).options)["trainable"]


def test_a_model_of_ones_own_has_no_public_name() -> None:
    workload = read(f"{NEMO}{MAKE}recipe.model.config.num_layers = 4\n{RUN}")
    assert (workload.model.name, workload.model.layers) == (None, 4)


def test_changes_are_written_into_the_program() -> None:
    workload = read(f"{NEMO}{MAKE}recipe.data.micro_batch_size = 8\n{RUN}")
    asked = Plan(tp=1, dp=16, micro_batch=8, global_batch=128)
    wanted = replace(asked, tp=2, dp=8, micro_batch=1, sequence_parallel=True)
    assert build_flags(workload, asked, wanted) == (
        "recipe.trainer.strategy.tensor_model_parallel_size=2, recipe.data.micro_batch_size = 1, "
        "recipe.trainer.strategy.sequence_parallel=True in job.py",
    )


def test_a_configuration_of_megatron_bridge_is_read() -> None:
    workload = read(
        "from megatron.bridge.recipes.llama import llama3_8b_pretrain_config\n"
        "from megatron.bridge.training.pretrain import pretrain\nconfig = llama3_8b_pretrain_config()\n"
        "config.model.tensor_model_parallel_size = 4\nconfig.model.sequence_parallel = True\n"
        "config.train.micro_batch_size = 2\nconfig.train.global_batch_size = 64\npretrain(config, forward_step)\n"
    )
    plan = workload.plan
    assert workload.framework == "megatron-bridge"
    assert (plan.tp, plan.sequence_parallel, plan.micro_batch, plan.global_batch) == (4, True, 2, 64)
    assert plan.pp is None  # the recipe decides it, and recipes change from release to release


def test_every_recipe_is_of_a_public_model() -> None:
    assert [name for name, recipe in RECIPES.items() if public_model(recipe.model) is None] == []
