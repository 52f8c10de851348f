"""Which settings of a command a program reads."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"


@pytest.mark.parametrize(("function", "batch"), [("train", 4), ("main", None)])
def test_flags_count_where_the_function_that_a_program_takes_from_a_module_parses_them(
    function: str, batch: int | None
) -> None:
    program = "from mine.work import train\n\nif __name__ == '__main__':\n    train(kind='fast')\n"
    work = (
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n\ndef other():\n    return 1\n\n\n"
        f"def {function}():\n    a = HfArgumentParser((TrainingArguments,)).parse()\n    Trainer(args=a).train()\n\n\n"
        f"def {'main' if function == 'train' else 'train'}(kind):\n    return 2\n"
    )
    command = "python start.py --per_device_train_batch_size 4 --bf16 True --num_train_epochs 1"
    workload = read_script(f"{HEAD}{command}\n", file="job.sh", files={"start.py": program, "mine/work.py": work})
    assert workload.plan.micro_batch == batch
