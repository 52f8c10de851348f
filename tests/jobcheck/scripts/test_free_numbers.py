"""Tests that a number is free only where every other number gives the same result."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.free_numbers import (
    MASK,
    MAX_CHARS,
    MAX_FAILURES,
    MAX_NUMBERS,
    MAX_TEMPLATES,
    Free,
    FreeNumbers,
    Numbered,
)
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest

REQUEST = SlurmRequest(nodes=2, gpus_per_node=8)
FLAGS = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 128 --vocab-size 50257 --use-distributed-optimizer --bf16"
)
HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
SWEEP = HEAD + f"SEED={{seed}}\nsrun torchrun --nnodes 2 pretrain_gpt.py --seed $SEED --train-iters {{iters}} {FLAGS}\n"
OTHERS = ("0", "1", "2", "4", "8", "16", "17", "4096", "99999999", "0.5", "1e-4")


class Learner:
    """Reads scripts as a worker does, and counts what is read once more."""

    def __init__(self) -> None:
        self.free_numbers = FreeNumbers()
        self.again = 0

    def free_in(self, text: str, request: SlurmRequest = REQUEST) -> Free:
        script = Numbered.parse(text)
        assert script is not None

        def read(places: tuple[tuple[int, int], ...]) -> Workload:
            self.again += 1
            return read_script(text, file="", request=request, number_spans=places)

        return self.free_numbers.find(script, repr(request), read_script(text, file="", request=request), read)

    def words(self, text: str) -> list[str]:
        script = Numbered.parse(text)
        assert script is not None
        return [script.numbers[index] for index in self.free_in(text)]


def test_the_second_script_of_a_sweep_shows_what_is_free() -> None:
    learner = Learner()
    assert learner.words(SWEEP.format(seed=11, iters=500)) == []
    assert learner.words(SWEEP.format(seed=12, iters=500)) == ["12"]
    assert learner.words(SWEEP.format(seed=13, iters=600)) == ["13", "600"]
    assert learner.words(SWEEP.format(seed=14, iters=700)) == ["14", "700"]
    assert learner.words(SWEEP.format(seed=15, iters=700)) == ["15", "700"]
    assert learner.again == 2


def test_what_was_shown_once_is_not_read_again() -> None:
    learner = Learner()
    for seed in range(20):
        learner.free_in(SWEEP.format(seed=seed, iters=500))
    assert learner.again == 1


def test_what_is_free_in_one_recipe_is_read_once_more_in_another() -> None:
    learner = Learner()
    for seed in (1, 2, 3, 4):
        for layers in (24, 48):
            text = SWEEP.format(seed=seed, iters=500).replace("--num-layers 24", f"--num-layers {layers}")
            assert learner.words(text) == ([str(seed)] if seed > 1 else [])
    assert learner.again == 2


def test_a_recipe_that_is_read_for_the_first_time_is_read_once() -> None:
    """Whatever is free in others of its form: a sweep of sizes would pay for each, and gain nothing."""
    learner = Learner()
    for seed in (1, 2, 3):
        learner.free_in(SWEEP.format(seed=seed, iters=500))
    assert learner.again == 1
    for layers in range(25, 40):
        text = SWEEP.format(seed=9, iters=500).replace("--num-layers 24", f"--num-layers {layers}")
        assert learner.words(text) == []
    assert learner.again == 1


def test_a_number_that_a_test_looks_at_is_not_free() -> None:
    """Two scripts that are read alike prove nothing: from seed 100 on this one has another size."""
    text = SWEEP.replace("srun torchrun", 'TP=1\nif [ "$SEED" -gt 100 ]; then TP=2; fi\nsrun torchrun').replace(
        "--bf16", "--bf16 --tensor-model-parallel-size $TP"
    )
    learner = Learner()
    for seed in (1, 2, 3):
        assert learner.words(text.format(seed=seed, iters=500)) == []
    assert learner.again == 1


def test_numbers_that_are_not_free_again_and_again_are_given_up() -> None:
    text = SWEEP.replace("--train-iters", "--tensor-model-parallel-size $((1 + (SEED > 1000))) --train-iters")
    learner = Learner()
    for layers in range(20, 40):
        for seed in (1, 2):
            recipe = text.format(seed=seed, iters=500).replace("--num-layers 24", f"--num-layers {layers}")
            assert learner.words(recipe) == []
    assert learner.again == MAX_FAILURES


def test_a_number_of_another_request_is_learned_anew() -> None:
    learner = Learner()
    for seed in (1, 2):
        learner.free_in(SWEEP.format(seed=seed, iters=500))
    other = SlurmRequest(nodes=4, gpus_per_node=8)
    assert learner.free_in(SWEEP.format(seed=3, iters=500), other) == ()


def test_the_number_of_forms_is_bounded() -> None:
    learner = Learner()
    for index in range(MAX_TEMPLATES + 5):
        text = f"#!/bin/bash\necho {'x' * index} 1\n"
        learner.free_in(text)
    assert len(learner.free_numbers._templates) == MAX_TEMPLATES


@pytest.mark.parametrize("launcher", ["torchrun --nnodes=$(hosts)", "srun torchrun $MORE"])
def test_a_number_of_ranks_that_agrees_with_slurm_is_not_free(launcher: str) -> None:
    text = f"#!/bin/bash\nG=2\n{launcher} --nproc_per_node=$G train.py --model_name_or_path a/b\n"
    script = Numbered.parse(text)
    assert script is not None
    free = (script.numbers.index("2"),)
    request = SlurmRequest(nodes=2, gpus_per_node=2)
    plain = read_script(text, file="job.sh", request=request)
    assert read_script(text.replace("G=2", "G=3"), file="job.sh", request=request).problems != plain.problems
    assert read_script(text, file="job.sh", request=request, number_spans=script.spans(free)) != plain


def changed(script: Numbered, free: Free, choice: random.Random) -> str:
    """Return a script with other numbers in these places."""
    pieces = list(script.pieces)
    for index in free:
        pieces[2 * index + 1] = choice.choice(OTHERS)
    return "".join(pieces)


def check_free_numbers(text: str, choice: random.Random, *, tried: int) -> int:
    """Change numbers that are read as free, and compare what is read; return how many there were."""
    script = Numbered.parse(text)
    if script is None:
        return 0
    plain = read_script(text, file="job.sh", request=REQUEST)
    places = [index for index in range(len(script.numbers)) if script.may_be_any(index)]
    found = 0
    for index in choice.sample(places, min(tried, len(places))):
        others = choice.sample(places, min(2, len(places)))
        free = tuple(sorted({index, *others}))
        if read_script(text, file="job.sh", request=REQUEST, number_spans=script.spans(free)) != plain:
            free = (index,)
            if read_script(text, file="job.sh", request=REQUEST, number_spans=script.spans(free)) != plain:
                continue
        found += len(free)
        for _ in range(2):
            other = changed(script, free, choice)
            assert read_script(other, file="job.sh", request=REQUEST) == plain, (free, other)
    return found


@pytest.mark.parametrize("path", sorted(Path("examples").glob("*-megatron.sbatch")), ids=lambda path: path.name)
def test_examples_are_read_the_same_with_other_free_numbers(path: Path) -> None:
    assert check_free_numbers(path.read_text(), random.Random(path.name), tried=40)


@pytest.mark.shared
def test_real_scripts_are_read_the_same_with_other_free_numbers(shared: Path) -> None:
    scripts = sorted((shared / "data/real/sbatch").iterdir())
    found = [
        check_free_numbers(path.read_text(errors="replace"), random.Random(path.name), tried=8) for path in scripts
    ]
    assert sum(found) >= 5 * len(scripts) > 0


TEXT = st.text(alphabet="ab 0123456789.eE+-=/\n$#'\"", max_size=60)


def numbered(text: str) -> Numbered:
    found = Numbered.parse(text)
    assert found is not None
    return found


def free(text: str, number: str) -> bool:
    """Tell whether the first such number of a script may be any."""
    script = numbered(text)
    return script.may_be_any(script.numbers.index(number))


def test_scripts_of_one_form_differ_in_numbers_alone() -> None:
    one, other = numbered("SEED=1\ntrain --lr 1.5e-4 --seed $SEED\n"), numbered("SEED=23\ntrain --lr 2 --seed $SEED\n")
    assert one.numbers == ("1", "1.5e-4")
    assert one.template == other.template
    assert one.find_differing(other.numbers) == (0, 1)
    assert one.template != numbered("SEED=1\ntrain --lr 1.5e-4  --seed $SEED\n").template


def test_numbers_are_masked_and_found_again_where_they_stand() -> None:
    script = numbered("a 10 b 200 c\n")
    assert script.mask((1,)) == f"a 10 b {MASK} c\n"
    assert [("".join(script.pieces))[start:end] for start, end in script.spans((0, 1))] == ["10", "200"]


@given(TEXT)
def test_pieces_are_the_script_and_spans_are_its_numbers(text: str) -> None:
    script = Numbered.parse(text)
    if script is None:
        assert not any(sign.isdigit() for sign in text)
        return
    assert "".join(script.pieces) == text
    every = range(len(script.numbers))
    assert tuple(text[start:end] for start, end in script.spans(every)) == script.numbers
    assert script.mask(every) == script.template


@pytest.mark.parametrize(
    "text", ["no number", "1\r\n", "\ufeff1", "1\0", f"1 {MASK}", "1" + " " * MAX_CHARS, "1 " * (MAX_NUMBERS + 1)]
)
def test_scripts_that_are_read_otherwise_than_they_stand_there_are_left_alone(text: str) -> None:
    assert Numbered.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "SEED=17",
        "export A=1 SEED=17",
        "train --seed 17",
        "train --seed=17 \\",
        'train --seed "17"',
        "train --save /ckpt/17/x",
        "train --save /ckpt/run_17",
        "train --name=run-17b",
        "NAME=run17",
        "A=${B:-17}",
        "# the run of 17 days",
        "  ## 17",
        "echo 'step 17'",
    ],
)
def test_a_number_in_a_word_may_be_any(text: str) -> None:
    assert free(f"#!/bin/bash\n{text}\n", "17")


@pytest.mark.parametrize(
    "text",
    [
        "#SBATCH --nodes=17",
        "#OPSK mbs=17",
        "# OPSK mbs=17",
        " #SBATCH --nodes 17",
        "#PBS -l nodes=17",
        "#17",
        "echo $17",
        "echo ${17}",
        "echo $A17",
        "echo ${A_17}",
        "A17=x",
        "A_17=x",
        "step17",
        "step17() { :; }",
        "exec 17>file",
        "exec 17< file",
        "echo >&17",
        "echo {1..17}",
        "A[17]=x",
        "A=${B[17]}",
        "echo $((17+1))",
        "cat <<17",
        "cat <<EOF17",
        "EOF17",
        "echo $A\\\n17",
        "echo \\17",
        "printf %17d",
        "ping 10.0.17.1",
        "wait %17",
        "sleep 17&",
    ],
)
def test_a_number_in_a_name_a_redirection_or_a_directive_may_not(text: str) -> None:
    assert not free(f"#!/bin/bash\n{text}\n", next(n for n in numbered(text).numbers if "17" in n))
