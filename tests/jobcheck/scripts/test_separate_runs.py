"""A script that starts several trainings: which are read, and which one decides."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import lines
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.separate_runs import MAX_RUNS

HEAD = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n"
TRAIN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --max-position-embeddings 4096 --global-batch-size 128 --bf16 --use-distributed-optimizer"
)
PRETRAIN, TUNE = (
    f"{TRAIN} --micro-batch-size 1 --tensor-model-parallel-size 2",
    f"{TRAIN} --micro-batch-size 16 --tensor-model-parallel-size 1",
)
LOOP = f"for mbs in 1 2 16; do\n  {TRAIN} --tensor-model-parallel-size 1 --micro-batch-size $mbs\ndone\n"


def read(body: str) -> Workload:
    return read_script(f"{HEAD}{body}\n", file="job.sh")


def list_micro_batches(workload: Workload) -> list[int | None]:
    return [run.plan.micro_batch for run in (workload, *workload.other_runs)]


@pytest.mark.parametrize(
    ("body", "expected", "count"),
    [
        (f"{PRETRAIN}\n{TUNE}", [1, 16], 2),
        (LOOP, [1, 2, 16], 3),
        (f"{PRETRAIN}\n{PRETRAIN} --seed 2", [1], 1),
        (f"for rank in 0 1; do {PRETRAIN} --node_rank $rank & done", [1], 1),
        (f"if [ $1 ]; then\n  {PRETRAIN}\nelse\n  {TUNE}\nfi", [None], 1),
        (f"which torchrun\n{PRETRAIN}", [1], 1),
        (f"python prepare_train_data.py --micro-batch-size 4\n{PRETRAIN}", [1], 1),
        (PRETRAIN, [1], 1),
    ],
)
def test_trainings_with_other_settings_are_read(body: str, expected: list[int | None], count: int) -> None:
    workload = read(body)
    assert list_micro_batches(workload) == expected
    assert workload.run_count == count


def test_of_many_trainings_those_with_the_smallest_and_the_largest_numbers_are_read() -> None:
    inner = f"{TRAIN} --tensor-model-parallel-size 1 --micro-batch-size $mbs --seed $seed"
    workload = read(f"for seed in 1 2 3 4; do for mbs in 1 2 4 8; do {inner}; done; done")
    micro_batches = list_micro_batches(workload)
    assert {1, 8} <= set(micro_batches)
    assert len(micro_batches) <= MAX_RUNS
    assert workload.run_count == 16


def test_the_training_that_needs_the_largest_share_of_memory_decides() -> None:
    adviser = Adviser(cluster=cluster("superpod-h100"), search=False)
    alone = {body: adviser.advise(read(body)).verdict for body in (PRETRAIN, TUNE)}
    assert alone == {PRETRAIN: Verdict.FITS, TUNE: Verdict.OOM}
    for body, line in ((f"{PRETRAIN}\n{TUNE}", 4), (f"{TUNE}\n{PRETRAIN}", 3)):
        advice = adviser.advise(read(body))
        assert advice.verdict is Verdict.OOM
        words = f"largest of the 2 trainings of this script: line {line}, TP 1, micro batch 16"
        assert any(words in row for row in lines(advice))
        assert document(advice)["runs"].line == line
    assert "runs" not in document(adviser.advise(read(PRETRAIN)))


def test_a_training_that_is_not_known_is_counted() -> None:
    adviser = Adviser(cluster=cluster("superpod-h100"), search=False)
    unknown = PRETRAIN.replace("--num-layers 32", "--num-layers $LAYERS")
    advice = adviser.advise(read(f"{PRETRAIN}\n{unknown}"))
    assert advice.verdict is Verdict.FITS
    assert any("1 not predicted" in row for row in lines(advice))
    assert adviser.advise(read(f"{unknown}\n{PRETRAIN}")).verdict is Verdict.UNKNOWN
    assert adviser.advise(read(f"{unknown}\n{TUNE}")).verdict is Verdict.OOM


def test_the_line_of_a_training_is_that_of_the_script_and_of_no_other() -> None:
    train = "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --bf16 true"
    head = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"
    assert read_script(f"{head}{train}\n", file="job.sh").command_line == 3
    inner = {"inner.sh": f"{train} --max_length 512\n"}
    assert read_script(f"{head}bash inner.sh\n", file="job.sh", files=inner).command_line == 0
