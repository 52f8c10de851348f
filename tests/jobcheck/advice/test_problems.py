"""What does a job need that cannot start: every repair is predicted, and one that does no good is not offered."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.terminal import Detail, lines
from opsk_jobcheck.advice.search import WasteKind
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script, with_flags

SUPERPOD = Adviser(cluster=cluster("superpod-h100"))
TP8 = "--tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer"
RUNS_OUT = f"{TP8} --pipeline-model-parallel-size 2 --micro-batch-size 4 --global-batch-size 250"
FITS_SMALLER = f"{TP8} --pipeline-model-parallel-size 4 --micro-batch-size 8 --global-batch-size 100"


def repair_of(flags: str, *, nodes: int = 8, adviser: Adviser = SUPERPOD) -> str:
    """Return what is advised about the batch of a 70B job."""
    advice = adviser.advise(read_script(megatron_script(flags, nodes=nodes), file="job.sh"))
    assert advice.verdict is Verdict.UNKNOWN
    (found,) = [entry for entry in advice.waste if entry.kind is WasteKind.BATCH]
    return found.advice


def test_a_batch_that_divides_and_fits_is_the_repair() -> None:
    told = repair_of(f"{TP8} --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 129", nodes=16)
    assert told.startswith("--global-batch-size 130: ")
    assert ", fits; " in told


def test_a_batch_that_would_run_out_of_memory_comes_with_what_makes_it_fit() -> None:
    told = repair_of(RUNS_OUT)
    assert told.startswith("--global-batch-size 256 and --")
    assert "will run out" not in told
    mended = with_flags(megatron_script(RUNS_OUT), (told.partition(":")[0].replace(" and ", " "),))
    assert SUPERPOD.advise(read_script(mended, file="job.sh")).verdict is Verdict.FITS


def test_a_smaller_micro_batch_that_divides_is_tried_before_other_plans() -> None:
    """100 over 2 replicas is 50: 8 does not divide it, 5, 2 and 1 do; only 1 leaves room."""
    told = repair_of(FITS_SMALLER)
    assert told.startswith("--micro-batch-size 1: ")
    assert ", fits; " in told


def test_where_nothing_fits_no_batch_is_offered() -> None:
    flags = "--micro-batch-size 4 --global-batch-size 250 --seq-length 524288"
    told = repair_of(flags, nodes=1, adviser=Adviser(cluster=cluster("titan")))
    assert told.startswith("global batch 256 would run out of memory too (")
    assert "no plan on these GPUs is predicted to fit" in told


@pytest.mark.parametrize("detail", [Detail.DEFAULT, Detail.LONG])
def test_the_rule_s_own_batch_is_not_named_beside_one_that_was_predicted(detail: Detail) -> None:
    advice = SUPERPOD.advise(read_script(megatron_script(FITS_SMALLER), file="job.sh"))
    assert "make the global batch 112" in advice.problems[0].hint
    text = "\n".join(lines(advice, detail))
    assert "--micro-batch-size 1: " in text
    assert "112" not in text


COMPOSER = (
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun composer --nproc 8 scripts/train/train.py yamls/x.yaml "
    "max_seq_len=2048 model.name=mpt_causal_lm model.d_model=2048 model.n_heads=16 model.n_layers=24 "
    "model.expansion_ratio=4 model.vocab_size=50368 precision=amp_bf16 fsdp_config.sharding_strategy=FULL_SHARD "
)


def composer(batch: int, micro: int) -> Advice:
    """Return the advice on a job of Composer on 16 GPUs."""
    script = f"{COMPOSER} global_train_batch_size={batch} device_train_microbatch_size={micro}\n"
    return SUPERPOD.advise(read_script(script, file="job.sh", files={"yamls/x.yaml": "x: 1\n"}))


@pytest.mark.parametrize(
    ("batch", "micro", "counted"),
    [
        (160, 4, 192),  # 10 a GPU: 4, 4, 2 are two and a half, the larger of two equally near
        (176, 4, 192),  # 11 a GPU: 4, 4, 3
        (144, 4, 128),  # 9 a GPU: 4, 4, 1
        (48, 2, 64),  # 3 a GPU: 2, 1
    ],
)
def test_a_last_micro_batch_may_be_smaller_where_the_framework_has_it_so(batch: int, micro: int, counted: int) -> None:
    """Composer's ``split_batch`` cuts a GPU's batch with ``Tensor.split``, whose last piece is what is left."""
    advice = composer(batch, micro)
    assert advice.verdict is Verdict.FITS
    assert not advice.problems
    assert advice.workload.plan.global_batch == batch
    assert advice.completion.plan is not None
    assert (advice.completion.plan.micro_batch, advice.completion.plan.global_batch) == (micro, counted)
    (told,) = [entry for entry in advice.assumed if entry.field == "plan.global_batch"]
    assert told.value == counted
    assert str(batch) in told.why


def test_a_smaller_last_micro_batch_needs_the_memory_of_a_whole_one() -> None:
    needed = [composer(batch, 4).prediction.memory.total_bytes.expected for batch in (176, 192)]
    assert needed[0] == needed[1]


def test_a_batch_that_the_gpus_do_not_divide_is_refused_by_composer_too() -> None:
    """``update_batch_size_info`` of LLM Foundry raises ValueError."""
    assert composer(100, 4).verdict is Verdict.UNKNOWN
    (found,) = composer(100, 4).waste
    assert found.kind is WasteKind.BATCH


def test_without_a_prediction_the_batch_is_named_alone() -> None:
    assert repair_of(RUNS_OUT, adviser=Adviser()) == "--global-batch-size 256"
