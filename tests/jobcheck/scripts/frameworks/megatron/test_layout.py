"""Flags that lay out stages, as Megatron Core 0.20 takes them, and the errors with which it would stop."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import why

HEAD = "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node=8\n"
SHAPE = "--hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64"
COUNTED = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"


def megatron(layers: int, pp: int, flags: str) -> Workload:
    """Read a command of Megatron-LM."""
    words = f"--num-layers {layers} {SHAPE} --pipeline-model-parallel-size {pp} {flags}"
    return read_script(f"{HEAD}srun python pretrain_gpt.py {words}\n", file="job.sh")


def overrides(command: str, words: str) -> Workload:
    """Read a command that takes overrides."""
    return read_script(f"{HEAD}srun {command} {words}\n", file="job.sh")


def plan_of(workload: Workload) -> Plan:
    """Return the plan that is predicted."""
    plan = complete(workload).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("layers", "pp", "flags", "stages"),
    [
        # (126 + 2) / 16 = 8 layers a stage, less the embedding or the loss
        (126, 16, f"--num-virtual-stages-per-pipeline-rank 8 {COUNTED}", (8, 7, 7)),
        (126, 16, f"--num-layers-per-virtual-pipeline-stage 2 {COUNTED}", (4, 7, 7)),
        (31, 4, "--account-for-loss-in-pipeline-split", (1, 0, 7)),
        (32, 4, "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6", (1, 6, 6)),
        (61, 8, "--mtp-num-layers 1 --pipeline-model-parallel-layout 'Et|(tt|)*30mL'", (4, 7, 6)),
        (61, 8, '--mtp-num-layers 1 --pipeline-model-parallel-layout="Et*2|(tt|)*22t|(tt|)*7mL"', (4, 0, 5)),
        (43, 4, "--pipeline-model-parallel-layout Et*11\\|t*11\\|t*11\\|t*10L", (1, 0, 10)),
        (32, 4, "--pipeline-model-parallel-layout 'E(t*4|)*7t*4L'", (2, 0, 0)),
    ],
)
def test_flags_of_a_layout_give_chunks_and_layers_of_the_ends(
    layers: int, pp: int, flags: str, stages: tuple[int, int, int]
):
    workload = megatron(layers, pp, flags)
    plan = plan_of(workload)
    assert (plan.vpp, plan.first_stage_layers, plan.last_stage_layers) == stages
    assert not complete(workload).problems
    assert not workload.problems


@pytest.mark.parametrize(
    ("layers", "pp", "flags", "what"),
    [
        (60, 8, "--pipeline-model-parallel-layout 'Et|(tt|)*30L'", "has 61 layers (t), the model 60"),
        (61, 8, "--pipeline-model-parallel-layout 'Et|(tt|)*30mL'", "has 1 layers of multi-token prediction (m)"),
        (61, 6, "--pipeline-model-parallel-layout 'Et|(tt|)*30L'", "32 chunks, which is not a multiple of PP 6"),
        (61, 8, "--pipeline-model-parallel-layout 'Et|(tt|)*30'", "must start with E"),
        (61, 8, f"{COUNTED} --pipeline-model-parallel-layout 'Et|(tt|)*30L'", "cannot be combined with flags"),
        (126, 16, "--decoder-first-pipeline-num-layers 8", "leaves 118 of 126 layers, which do not divide over 15"),
        (32, 4, f"{COUNTED} --decoder-first-pipeline-num-layers 8", "cannot be combined with embedding or loss"),
        (32, 4, COUNTED, "32 layers, embedding and head do not divide evenly over PP 4"),
        (
            31,
            4,
            "--num-virtual-stages-per-pipeline-rank 2 --decoder-last-pipeline-num-layers 7",
            "7 layers of the last stage cannot be cut into VPP 2 chunks",
        ),
    ],
)
def test_a_layout_that_megatron_does_not_start_with_is_a_problem(layers: int, pp: int, flags: str, what: str):
    workload = megatron(layers, pp, flags)
    problems = [problem.what for problem in (*workload.problems, *complete(workload).problems)]
    assert any(what in problem for problem in problems), problems
    assert all(problem.hint for problem in (*workload.problems, *complete(workload).problems))


def test_a_layout_that_is_not_known_leaves_the_chunks_unknown():
    workload = megatron(61, 8, "--pipeline-model-parallel-layout $LAYOUT")
    assert workload.plan.vpp is None
    assert why(workload, "plan.vpp")


BRIDGE = "python scripts/training/run_recipe.py --recipe x_pretrain_config"
SIZES = "model.num_layers=126 model.pipeline_model_parallel_size=16 model.tensor_model_parallel_size=8"


@pytest.mark.parametrize(
    ("command", "words", "options"),
    [
        (BRIDGE, f"{SIZES} model.num_layers_in_first_pipeline_stage=7", {"pipeline.first_layers": "7"}),
        (BRIDGE, f"{SIZES} model.account_for_loss_in_pipeline_split=True", {"pipeline.counts_loss": "true"}),
        (BRIDGE, f"{SIZES} model.pipeline_model_parallel_layout='E|(t|)*126L'", {"pipeline.first_layers": "7"}),
        (
            "nemo llm pretrain --factory llama31_405b",
            "trainer.strategy.pipeline_model_parallel_size=16 trainer.strategy.num_layers_in_last_pipeline_stage=6",
            {"pipeline.last_layers": "6"},
        ),
        (
            "nemo llm pretrain --factory llama31_405b",
            "trainer.strategy.account_for_embedding_in_pipeline_split=true",
            {"pipeline.counts_embedding": "true"},
        ),
    ],
)
def test_keys_of_bridge_and_nemo_say_the_same(command: str, words: str, options: dict[str, str]):
    workload = overrides(command, words)
    assert options.items() <= dict(workload.options).items()
