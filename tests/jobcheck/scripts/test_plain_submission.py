"""Which scripts may be submitted without arguments."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.plain_submission import is_complete

LOOP = 'while [[ $# -gt 0 ]]; do\n  case $1 in\n    --model) MODEL="$2"; shift 2 ;;\n    *) break ;;\n  esac\ndone\n'


@pytest.mark.parametrize(
    "script",
    [
        "MODEL=${1:-small}",
        "MODEL=small\n" + LOOP + "train $MODEL",
        'python train.py --epochs 3 "$@"',
        'if [ -n "$1" ]; then shift; fi\ntrain "$@"',
        'if [ -z "$MODEL" ]; then MODEL=small; fi',
        "# $1 is the model\nMODEL=${1-small}",
        "NODE=$(scontrol show hosts | awk '{print $1}')\nMODEL=${1:-small}",
    ],
)
def test_a_script_with_values_of_its_own_is_complete(script: str):
    assert is_complete(script)


@pytest.mark.parametrize("script", ["MODEL=$1", "MODEL=${1}", "train --model ${1##*/} $@", "train --epochs 3", "$2 $@"])
def test_one_that_needs_its_arguments_is_not(script: str):
    assert not is_complete(script)


def test_a_hostile_script_takes_no_time():
    assert not is_complete("while $#\n" * 20000 + "$1")
