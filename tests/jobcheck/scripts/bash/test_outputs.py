"""Outputs of commands that a script takes: how many GPUs there are, and flags that a test prints."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Scalar, literal


def known(script: str, gpus: str = "4") -> str | None:
    """Return what X certainly holds at the end of a script whose job has GPUs on each node."""
    given = {"SLURM_GPUS_ON_NODE": literal(gpus, 0)} if gpus else {}
    variable = run(script, given=given).variables.get("X")
    return variable.text.known if isinstance(variable, Scalar) else None


@pytest.mark.parametrize(
    "command",
    [
        "nvidia-smi -L | wc -l",
        "nvidia-smi --list-gpus | wc -l",
        "nvidia-smi --query-gpu=name --format=csv,noheader | wc -l",
        "nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l",
        "nvidia-smi -L | grep -c GPU",
        "nvidia-smi -L | wc -l | tr -d ' '",
        "python -c 'import torch; print(torch.cuda.device_count())'",
    ],
)
def test_gpus_are_counted_as_the_request_tells(command: str) -> None:
    assert known(f"X=$({command})") == "4"
    assert known(f"X=$(( $({command}) * 2 ))") == "8"
    assert known(f"X=$({command})", gpus="") is None


@pytest.mark.parametrize("command", ["nvidia-smi | wc -l", "nvidia-smi -L", "ls | wc -l", "nvidia-smi -q -x | wc -l"])
def test_another_count_is_not_known(command: str) -> None:
    assert known(f"X=$({command})") is None


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('N=2; X=$([ -n "${N}" ] && echo "--count ${N}")', "--count 2"),
        ('N=""; X=$([ -n "$N" ] && echo "--count $N")', ""),
        ('N=""; X=$([[ -z $N ]] && echo --none)', "--none"),
        ("X=$([ -n \"$N\" ] && echo '--count')", ""),  # never set
        ('N=$(date); X=$([ -n "$N" ] && echo a)', None),
        ('N=2; X=$([ -n "$N" ] && cat "$N")', None),
    ],
)
def test_a_test_may_print_a_flag(script: str, value: str | None) -> None:
    assert known(script) == value
