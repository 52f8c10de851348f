"""Is a program recognised when only what belongs to one run has changed, and not when another program is started?"""

from __future__ import annotations

import time

import pytest

from opsk.history.commands import read_commands
from opsk.history.submission import Submission, read_submission

SCRIPT = """#!/bin/bash
#SBATCH --job-name=fold-17
module load gcc/12
OUT=/scratch/ada/2026-05-01/run17
BATCH=8
mkdir -p $OUT
srun --mpi=pmix -n 4 ./foldit --model big --batch "$BATCH" --input /data/a.fa --seed 42 --out $OUT --amp > $OUT/log 2>&1
"""


def read(text: str = SCRIPT, directory: str = "/home/ada/fold/run_1", **more: object) -> Submission:
    return read_submission(text, script_name="run.sh", directory=directory, gpus=4, **more)  # type: ignore[arg-type]


def test_settings_are_flags_with_the_values_that_the_script_gives_them() -> None:
    assert read().settings == {"GPUs": "4", "--model": "big", "--batch": "8", "--amp": "on"}
    assert read().command == "srun foldit"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fold-17", "fold-18"), ("gcc/12", "gcc/13"), ("2026-05-01/run17", "2026-06-02/run18"),
        ("--seed 42", "--seed 7"),
        ("BATCH=8", "BATCH=16"), ("/data/a.fa", "/data/b.fa"), ("mkdir -p $OUT", "mkdir -p $OUT\necho begins"),
        ("--model big", "--model small"), ("srun", "# again\nsrun"), (" --amp", " \\\n  --amp"),
    ],
)  # fmt: skip
def test_a_change_of_values_leaves_the_script_the_same(before: str, after: str) -> None:
    assert before in SCRIPT
    assert read(SCRIPT.replace(before, after)).script_key == read().script_key


@pytest.mark.parametrize("change", ["--amp --verbose", "--tf32"])
def test_a_new_flag_leaves_the_command_the_same(change: str) -> None:
    changed = read(SCRIPT.replace("--amp", change), directory="/home/ada/fold/run_2")
    assert changed.script_key != read().script_key
    assert changed.command_key == read().command_key


def test_another_program_or_another_project_is_another() -> None:
    other = read(SCRIPT.replace("foldit", "dockit"))
    assert (other.script_key != read().script_key, other.command_key != read().command_key) == (True, True)
    assert read(directory="/home/ada/dock/run_1").command_key != read().command_key


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("python -m tool.infer --lr=1e-4 depth=24 go", {"--lr": "1e-4", "depth": "24", "argument 1": "go"}),
        ("torchrun --nproc-per-node 8 train.py --width 1024", {"--width": "1024"}),
        ("WIDTH=4 ./prog -b 2", {"WIDTH": "4", "-b": "2"}),
        ("export TILE=32\n./prog", {"TILE": "32"}),
        ("./prog --api-key abc --token=abc --wandb-name x --run-id 7 --log-dir logs", {}),
        ("./prog --data ~/x --when 2026-01-02 --text 'a very long text that is no setting of anything at all'", {}),
        ("./prog $1 --n ${2:-5}", {"--n": "5", "argument 1": "fast"}),
    ],
)  # fmt: skip
def test_settings_of_many_forms(words: str, settings: dict[str, str]) -> None:
    result = read_submission(f"#!/bin/sh\n{words}\n", arguments=("fast",))
    assert dict(result.settings) == settings


def test_arguments_are_words_of_the_command() -> None:
    assert read_commands('./prog "$@"', arguments=("--n", "4")) == (("./prog", "--n", "4"),)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('A=(\n  --a 1  # first\n  --b 2\n)\nA+=(--c 3)\n./prog "${A[@]}" -x\n', "./prog --a 1 --b 2 --c 3 -x"),
        ("H=$(scontrol show hostnames $L | head -n 1)\n./prog --host $H --n `nproc`\n", "./prog --host --n"),
        ("CMD='--a 1'\nsrun -n 8 bash -c 'cd x; ./prog $CMD --b 2'\n", "srun -n 8 cd x|./prog --a 1 --b 2"),
        ("case $X in\n  --fast) ./prog --fast ;;\nesac\n", "case $X in|./prog --fast|esac"),
        ("f() {\n  ./prog\n}\n( cd x && ./prog 2>&1 | tee log )\n", "./prog|cd x|./prog|tee log"),
        ("./prog '$(not run)'", "./prog $(not run)"),
    ],
    ids=["lists", "output of commands", "text for a shell", "a case", "functions and groups", "quoted"],
)
def test_what_batch_scripts_are_made_of(script: str, words: str) -> None:
    """Forms that most of the public launch scripts of training jobs use."""
    assert "|".join(" ".join(command) for command in read_commands(script)) == words


def test_input_of_a_command_is_no_command() -> None:
    assert read_commands("cat > x <<'EOF'\n./not-a-program\nEOF\n./prog\n") == (("cat",), ("./prog",))


@pytest.mark.parametrize(
    "hostile",
    ["<<A\n" * 9000, '"' * 60_000, "'\"" * 30_000, "A=$A$A\n" * 9000, "x " * 40_000, "${" * 30_000, "\\" * 60_000],
)  # fmt: skip
def test_a_hostile_script_costs_no_more_than_its_length(hostile: str) -> None:
    began_s = time.process_time()
    read(hostile)
    assert time.process_time() - began_s < 0.5
