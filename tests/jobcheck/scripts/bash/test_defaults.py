"""Tests that give a variable its default, which a script writes in several ways."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Scalar


def known(script: str) -> str | None:
    """Return what MODEL certainly holds at the end of a script."""
    variable = run(script, given={}).variables.get("MODEL")
    return variable.text.known if isinstance(variable, Scalar) else None


@pytest.mark.parametrize(
    "script",
    [
        'if [ -z "$MODEL" ]; then MODEL=small; fi',
        "if [[ -z $MODEL ]]; then\n  MODEL=small\nfi",
        'if [ -z "${MODEL:-}" ]; then export MODEL=small; fi',
        '[ -z "$MODEL" ] && MODEL=small',
        "[[ -z ${MODEL} ]] && export MODEL=small",
        'source ~/.settings\nif [ -z "$MODEL" ]; then MODEL=small; fi',
    ],
)
def test_a_variable_that_the_script_never_set_takes_its_default(script: str):
    assert known(script) == "small"


@pytest.mark.parametrize(
    "script",
    [
        'MODEL=$1\nif [ -z "$MODEL" ]; then MODEL=small; fi',  # given by an argument
        'if [ -z "$SLURM_JOB_ID" ]; then SLURM_JOB_ID=1; MODEL=small; fi',  # set when the job runs
        'if [ -z "$TOKEN" ]; then MODEL=small; fi',  # another one
        'if [ -z "$MODEL" -a -n "$TOKEN" ]; then MODEL=small; fi',
    ],
)
def test_another_test_says_nothing(script: str):
    assert known(script) is None


def test_a_script_that_ends_where_a_variable_is_missing_goes_on():
    script = 'if [ -z "$TOKEN" ]; then echo "set TOKEN"; exit 1; fi\nMODEL=small'
    assert known(script) == "small"
