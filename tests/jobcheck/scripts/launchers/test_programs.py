"""What a script does that does not train, told by the names of its programs."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.launchers.programs import CONNECTIVITY
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
FLAGS = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --tensor-model-parallel-size 2"


def read(body: str) -> Workload:
    """Read a script with this body."""
    return read_script(HEAD + body + "\n", file="job.sh")


@pytest.mark.parametrize(
    "body",
    [
        "srun python /opt/Megatron-LM/tools/preprocess_data.py --input x.jsonl",
        "python Megatron-DeepSpeed/tools/merge_preprocessed_data.py --datasets a b",
        f"torchrun tasks/eval_harness/evaluate.py {FLAGS}",
        f"torchrun tools/hf_weight_converter.py {FLAGS}",
        "srun torchrun /opt/all_reduce_bench.py",
        "srun torchrun bench/test_internode.py --num-tokens=128",
        "docker build -t deepspeed .",
        "srun python -m nemo.collections.llm.inference",
        "python scripts/tokenize.py --tokenizer llama-factory/x",
        "python main.py evaluate --checkpoint out/last --batch-size 16",
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=8 trainer.val_only=true",
        f"accelerate launch -m scripts.precompute_answers --model_name_or_path gpt2 {FLAGS}",
        "accelerate launch /opt/bigcode-evaluation-harness/main.py --tasks humaneval",
        "accelerate launch -m lm_eval --model hf",
        "srun python -m m4.evaluation.launch --shots 4",
        "torchrun --nproc_per_node=8 -m coverage run -m pytest -v tests/recipes/test_llama_recipes_pretrain_1b.py",
        "torchrun --nproc_per_node 1 -m pytest tests/test_fsdp.py",
        "python -m torch.distributed.run examples/conversion/hf_megatron_roundtrip_multi_gpu.py --hf-model-id a --tp 2",
        f"torchrun toolkits/qwen/hf2mcore_qwen2_dense.py {FLAGS}",
        f"torchrun toolkits/model_checkpoints_convertor/llama/main.py {FLAGS}",
        f"torchrun tools/conversion/run.py {FLAGS}",
    ],
)
def test_other_work_is_no_training(body: str) -> None:
    assert not read(body).is_training


@pytest.mark.parametrize(
    "body",
    [
        f"srun python pretrain_gpt.py {FLAGS}",
        "torchrun train_eval.py",
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=8 trainer.val_only=false",
        "srun torchrun run_sft.py",
        "srun torchrun main.py",
        "composer benchmark.py",
        "torchrun /data/eval/runs/train.py",
        "accelerate launch -m axolotl.cli.train x.yaml",
        f"python tools/preprocess_data.py --input x; torchrun pretrain_gpt.py {FLAGS}",
        "python convert_checkpoint.py --to hf; torchrun train.py",
    ],
)
def test_training_is(body: str) -> None:
    assert read(body).is_training


def test_of_two_commands_with_the_same_flags_the_one_that_trains_is_read() -> None:
    workload = read(f"python convert.py {FLAGS} --seq-length 1\npython finetune.py {FLAGS} --seq-length 2")
    assert (workload.is_training, workload.model.seq) == (True, 2)


def test_workers_of_data_preparation_are_no_gpus() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=8\npython -m torch.distributed.launch --nproc_per_node 75 preprocess_data.py\n"
    )
    assert read_script(script, file="job.sh").plan.gpus_per_node is None


@pytest.mark.parametrize(
    ("launcher", "name"),
    [
        ("srun python -u", "srun"),
        ("srun torchrun --nproc_per_node 8", "srun + torchrun"),
        ("srun python -u -m accelerate.commands.launch --num_processes 16", "srun + accelerate launch"),
    ],
)
def test_a_connectivity_test_has_ranks_and_no_model(launcher: str, name: str) -> None:
    workload = read(f"{launcher} torch-distributed-gpu-test.py")
    assert (workload.framework, workload.launcher, workload.is_training) == (CONNECTIVITY, name, False)
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp) == (1, 1, 16)
    assert workload.model.layers is None


def test_ranks_on_a_part_of_the_nodes_are_those_that_train() -> None:
    """The ninth node serves a model, say."""
    body = "#SBATCH --nodes=9\nsrun --nodes=8 accelerate launch --num_machines 8 --num_processes 64 train.py"
    workload = read_script(f"#!/bin/bash\n{body}\n", file="job.sh")
    assert (workload.plan.nodes, workload.plan.gpus_per_node, workload.plan.gpus) == (8, 8, 64)


def test_megatron_whose_deepspeed_flags_are_hidden_is_megatron_deepspeed() -> None:
    body = f"source ./ALCF/helpers.sh\nsrun python pretrain_gpt.py {FLAGS} $ds_args"
    assert read(body).framework == "megatron-deepspeed"
    assert read(f"srun python pretrain_gpt.py {FLAGS} $ds_args").framework == "megatron-lm"


def test_a_test_of_recipes_names_no_framework() -> None:
    assert read("torchrun -m coverage run -m pytest -v tests/test_llama_recipes_pretrain_1b.py").framework is None
