"""Is a recipe that was asked about before answered the same, and only that one? Kept against worked out anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.catalog import cluster
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.recipe_cache import RecipeCache
from opsk_jobcheck.advice.rendering.terminal import SHORT, lines
from opsk_jobcheck.advice.search import SearchResult
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest

SCRIPT = (
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nSEED=1\n"
    "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --seed $SEED --num-layers 24 "
    "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 128 --vocab-size 50257 --use-distributed-optimizer\n"
)


@pytest.fixture
def adviser() -> Adviser:
    return Adviser(cluster=cluster("superpod-h100"), cache=RecipeCache())


def searched(adviser: Adviser) -> int:
    assert adviser.cache is not None
    return adviser.cache.count(SearchResult)


def advise(adviser: Adviser, text: str, *, file: str = "job.sh", nodes: int = 2) -> Advice:
    return adviser.advise(read_script(text, file=file, request=SlurmRequest(nodes=nodes)))


def anew(adviser: Adviser, text: str) -> Advice:
    return advise(replace(adviser, cache=None), text)


def test_another_seed_name_and_comment_is_the_same_recipe(adviser: Adviser) -> None:
    first = advise(adviser, SCRIPT)
    other = SCRIPT.replace("SEED=1", "# the second try\nSEED=2").replace("#SB", "#SBATCH --job-name=again\n#SB", 1)
    second = advise(adviser, other, file="job-2.sh")
    assert searched(adviser) == 1
    assert second.suggestions == first.suggestions
    assert lines(second) == lines(anew(adviser, other))


def test_in_a_hurry_a_new_recipe_is_not_searched_and_the_advice_says_so(adviser: Adviser) -> None:
    """Verdict, memory and speed are what they are without a hurry."""
    short, full = advise(replace(adviser, is_hurried=True), SCRIPT), anew(adviser, SCRIPT)
    assert short.is_short
    assert not full.is_short
    assert searched(adviser) == 0
    assert [line for line in lines(short) if line.startswith("short ")] == [f"short    {SHORT}"]
    assert not any(line.startswith("short ") for line in lines(full))
    assert lines(short)[:2] == lines(full)[:2]
    assert (short.verdict, short.suggestions, short.best) == (full.verdict, (), None)


def test_in_a_hurry_a_known_recipe_is_answered_in_full(adviser: Adviser) -> None:
    first = advise(adviser, SCRIPT)
    assert first.suggestions
    hurried = advise(replace(adviser, is_hurried=True), SCRIPT.replace("SEED=1", "SEED=2"))
    assert not hurried.is_short
    assert lines(hurried) == lines(first)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--num-layers 24", "--num-layers 48"),
        ("--micro-batch-size 1", "--micro-batch-size 2"),
        ("--use-distributed-optimizer", ""),
        ("--vocab-size 50257", ""),
    ],
)
def test_what_changes_the_plan_is_worked_out_anew(adviser: Adviser, before: str, after: str) -> None:
    advise(adviser, SCRIPT)
    other = SCRIPT.replace(before, after)
    assert lines(advise(adviser, other)) == lines(anew(adviser, other))
    assert searched(adviser) == 2


def test_another_spelling_of_the_same_plan_is_advised_in_its_own_words(adviser: Adviser) -> None:
    advise(adviser, SCRIPT)
    other = SCRIPT.replace("--micro-batch-size 1", "--micro_batch_size 1")
    assert lines(advise(adviser, other)) == lines(anew(adviser, other))
