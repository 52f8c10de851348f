"""Which values advice asks for: one or two that would give a verdict, and never more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import complete
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.missing_values import find_missing_values, state_values
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import Detail, lines
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script

ADVISER = Adviser(cluster=cluster("superpod-h100"))
TP8 = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1"
SHAPE = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64"
CIFAR = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py --lr 0.1 --batch-size 256 --epochs 200\n"
TRAINER = (
    "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\ntorchrun --nproc_per_node 8 run_clm.py "
    "--model_name_or_path {model} --block_size {length} --per_device_train_batch_size {batch} --bf16\n"
)


def advice_on(script: str, adviser: Adviser = ADVISER) -> tuple[str, ...]:
    return lines(adviser.advise(read_script(script, file="job.sh")))


@pytest.mark.parametrize(
    ("script", "statement"),
    [
        (megatron_script(f"{TP8} --micro-batch-size 1 --global-batch-size $1"), "#OPSK global_batch=64"),
        (megatron_script(f"{TP8} --micro-batch-size $1 --global-batch-size 64"), "#OPSK micro_batch=1"),
        (megatron_script(f"{TP8} --micro-batch-size $1 --global-batch-size $2"), "#OPSK micro_batch=1 global_batch=64"),
        (TRAINER.format(model="meta-llama/Llama-2-7b-hf", length="$1", batch=4), "#OPSK seq=4096"),
    ],
)
def test_one_or_two_missing_values_are_asked_for_with_an_example(script: str, statement: str) -> None:
    """Llama 2 was trained with 4,096 tokens; 8 nodes of 8 GPUs at TP 8 are 8 replicas, 8 micro-batches each."""
    told = advice_on(script)
    assert told[-1].startswith("more") or told[-1].endswith(statement)
    assert any(line.endswith(statement) for line in told)


@pytest.mark.parametrize(
    "script",
    [
        CIFAR,
        megatron_script(f"{TP8} --micro-batch-size 1").replace(SHAPE, "$SHAPE"),
        megatron_script("--micro-batch-size $1 --global-batch-size $2 --tensor-model-parallel-size $3"),
        megatron_script(f"{TP8} --micro-batch-size $1 --global-batch-size 64 --freeze-LM"),
    ],
    ids=["nothing known", "shape missing", "three missing", "no verdict in any case"],
)
def test_nothing_is_printed_where_no_line_of_the_user_would_give_a_verdict_that_matters(script: str) -> None:
    advice = ADVISER.advise(read_script(script, file="job.sh"))
    assert advice.verdict is Verdict.UNKNOWN
    assert lines(advice) == lines(advice, Detail.SHORT) == ()
    assert "cannot tell" in "\n".join(lines(advice, Detail.LONG))
    assert document(advice)["why_unknown"]


def test_a_program_that_no_reader_knows_is_not_asked_for_its_shape() -> None:
    """Its model may have no heads: one of state spaces has a width and layers too."""
    workload = read_script(
        "#!/bin/bash\n#SBATCH --gpus=1\n"
        "python train.py --d-model 4096 --n-layers 48 --seq-len 4096 --batch-size 8 --bf16\n",
        file="job.sh",
        files={"train.py": "import torch\nloss.backward()\n"},
    )
    completion = complete(workload)
    assert "model.heads" in completion.missing
    assert find_missing_values(workload, completion) == ()
    assert find_missing_values(replace(workload, framework="deepspeed"), completion) == ()
    assert find_missing_values(replace(workload, framework="megatron-lm"), completion) != ()


def test_a_small_model_that_fits_at_any_length_is_asked_for_nothing() -> None:
    script = TRAINER.format(model="HuggingFaceTB/SmolLM2-135M", length="$1", batch=1)
    advice = ADVISER.advise(read_script(script, file="job.sh"))
    assert advice.verdict is Verdict.FITS
    assert not any("#OPSK" in line or "cannot tell" in line for line in lines(advice, Detail.LONG))


def test_no_form_of_advice_asks_for_a_list_of_values() -> None:
    assert "#OPSK" not in "\n".join(lines(ADVISER.advise(read_script(CIFAR, file="job.sh")), Detail.LONG))


def test_the_example_gives_the_verdict_that_the_line_in_the_script_gives() -> None:
    script = megatron_script(f"{TP8} --micro-batch-size $1 --global-batch-size 64")
    workload = ADVISER.advise(read_script(script, file="job.sh")).workload
    values = find_missing_values(workload, ADVISER.advise(workload).completion)
    stated = ADVISER.advise(read_script(f"{script}#OPSK {values[0].statement}\n", file="job.sh"))
    assumed = ADVISER.advise(state_values(workload, values))
    assert stated.verdict is assumed.verdict is not Verdict.UNKNOWN


def test_a_batch_that_may_be_that_of_all_gpus_is_the_example() -> None:
    script = "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=2\ntorchrun --nproc_per_node 2 train.py "
    script += "--model_name meta-llama/Llama-2-7b-hf --seq_len 4096 --batch-size 6 --bf16\n"
    assert any(line.endswith("#OPSK micro_batch=6") for line in advice_on(script))


def test_a_problem_is_printed_without_the_request() -> None:
    told = advice_on(CIFAR.replace("python", "module load cuda\n#SBATCH --nodes=2\npython"))
    assert len(told) == 2
    assert told[1].startswith("problem  line 4: #SBATCH --nodes=2 is below the first command")


def test_a_requested_gpu_is_named_without_a_verdict() -> None:
    """The job asks for A100s on a cluster of H100s."""
    script = megatron_script(f"{TP8} --micro-batch-size 1 --global-batch-size $1")
    assert "64 × A100" in advice_on(script.replace("--gpus-per-node=8", "--gres=gpu:a100:8"))[0]
