"""Jobs that cut texts at a length that nearly none of them has: they are not said to run out by it."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk.workload.unstated.open_sizes import SEQ
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.terminal import lines
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-a100"))
SCRIPT = (
    "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\n"
    "trl sft --model_name_or_path Qwen/Qwen2.5-3B --per_device_train_batch_size {batch} --bf16 --gradient_checkpointing"
    " --torch_dtype bfloat16 --max_length {length} {more}\n"
)


def advise(batch: int, length: int, more: str = "") -> Advice:
    return ADVISER.advise(read_script(SCRIPT.format(batch=batch, length=length, more=more), file="job.sh", files={}))


def test_a_job_that_fits_with_texts_as_long_as_nearly_all_are_is_not_said_to_run_out() -> None:
    advice = advise(1, 524_288)
    assert advice.verdict is Verdict.UNKNOWN
    assert advice.room is not None
    assert (advice.room.field, advice.room.micro_batch) == (SEQ, 1)
    assert any("cut at 524,288 tokens" in why for why in advice.why_unknown)
    assert any(f"fits up to seq {advice.room.value}" in row for row in lines(advice))


@pytest.mark.parametrize(
    ("batch", "length", "more"),
    [
        (1, 524_288, "--packing true"),  # each sample is as long
        (1, 524_288, "--packing $1"),
        (64, 524_288, ""),  # short texts do not fit either
        (64, 8192, ""),  # no longer than many are
    ],
)
def test_other_jobs_run_out(batch: int, length: int, more: str) -> None:
    assert advise(batch, length, more).verdict is Verdict.OOM
