"""Changes in the words of the user's own program: what its parser refuses is never suggested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.flags import build_flags
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
ASKED = Plan(dp=8, micro_batch=4, global_batch=64, sharding=Sharding.ZERO2)
SMALLER = {"micro_batch": 1, "recompute": Recompute.FULL}
IMPORTS = "import argparse\nfrom transformers import Trainer, TrainingArguments, HfArgumentParser\n"
PARSER = "p = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=4)\n"
ARGUMENTS = "a = TrainingArguments('out', per_device_train_batch_size=args.bs, gradient_accumulation_steps=2)\n"
LOOP = "model = DistributedDataParallel(m)\nloss.backward()\n"


def read(source: str, words: str = "") -> Workload:
    """Return what is read of a program."""
    command = f"torchrun --nproc_per_node=8 train.py {words}\n"
    return read_script(HEAD + command, file="job.sh", files={"train.py": source})


CASES = {
    # argparse ends a program that is given --per_device_train_batch_size here
    "flag and keywords": (
        f"{IMPORTS}{PARSER}args = p.parse_args()\n{ARGUMENTS}Trainer(model, a).train()\n",
        "",
        SMALLER,
        ("--bs 1", "gradient_accumulation_steps=8, gradient_checkpointing=True in train.py"),
    ),
    "no parser": (
        f"{IMPORTS}a = TrainingArguments('out', per_device_train_batch_size=4)\nTrainer(model, a).train()\n",
        "",
        {"micro_batch": 1, "sharding": Sharding.ZERO3},
        ("per_device_train_batch_size=1, gradient_accumulation_steps=8, fsdp='full_shard auto_wrap' in train.py",),
    ),
    "the Trainer's own parser": (
        f"{IMPORTS}a = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]\nTrainer(m, a).train()\n",
        "--per_device_train_batch_size 4",
        SMALLER,
        ("--per_device_train_batch_size 1", "--gradient_accumulation_steps 8", "--gradient_checkpointing true"),
    ),
    "switch": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--micro-batch-size', type=int, default=4)\n"
        "p.add_argument('--accum_steps', type=int, default=2)\n"
        f"p.add_argument('--grad-checkpointing', action='store_true')\nargs = p.parse_args()\n{LOOP}",
        "",
        SMALLER,
        ("--micro-batch-size 1", "--accum_steps 8", "--grad-checkpointing"),
    ),
    "no flag for one of them": (
        f"import argparse\n{PARSER}args = p.parse_args()\n{LOOP}",
        "",
        SMALLER,
        (),
    ),
    "number where a switch is expected": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--grad_checkpointing', type=int, default=0)\n"
        f"args = p.parse_args()\n{LOOP}",
        "",
        {"recompute": Recompute.FULL},
        (),
    ),
    "value on the command line": (
        f"{IMPORTS}{PARSER}args = p.parse_args()\n{ARGUMENTS}Trainer(model, a).train()\n",
        "--bs 4",
        {"micro_batch": 1, "micro_batches": 8},
        ("--bs 1", "gradient_accumulation_steps=8 in train.py"),
    ),
    "a strategy in words of the program": (
        f"import argparse\n{PARSER}p.add_argument('--fsdp', default='')\nargs = p.parse_args()\n{LOOP}",
        "",
        {"sharding": Sharding.ZERO3},
        (),
    ),
    "set again": (
        f"import argparse\n{PARSER}args = p.parse_args()\nargs.bs = 3\n{LOOP}",
        "",
        {"micro_batch": 1},
        (),
    ),
}


@pytest.mark.parametrize(("source", "words", "change", "expected"), CASES.values(), ids=CASES)
def test_a_change_is_written_as_the_program_takes_it(
    source: str, words: str, change: dict[str, object], expected: tuple[str, ...]
) -> None:
    change = {name: value for name, value in change.items() if name != "micro_batches"}
    assert build_flags(read(source, words), ASKED, replace(ASKED, **change)) == expected  # type: ignore[arg-type]


def test_a_program_that_accepts_more_than_its_text_lists_has_its_frameworks_names() -> None:
    for parser in ("args, rest = p.parse_known_args()", "import deepspeed\np = deepspeed.add_config_arguments(p)"):
        assert read(f"{IMPORTS}{PARSER}{parser}\n{ARGUMENTS}Trainer(model, a).train()\n").own_names is None
