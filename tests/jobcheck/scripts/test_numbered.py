"""Tests that a script's numbers are found, and that one is free only where another changes a word at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.free_numbers import MASK, MAX_CHARS, MAX_NUMBERS, Numbered

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
