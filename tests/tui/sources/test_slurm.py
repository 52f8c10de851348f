"""What may the caller do in Slurm, as its commands say?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsk.slurm.remap_commands import Who
from opsk_tui.sources import slurm
from opsk_tui.sources.slurm import rights_of_caller


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for commands, and a caller who is not root but has this process's own name."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(slurm.os, "geteuid", lambda: 65534)
    return tmp_path


def say(path: Path, name: str, text: str) -> None:
    (path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
    (path / name).chmod(0o755)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("None", (Who.USER,)),
        ("", (Who.USER,)),
        ("Operator", (Who.USER, Who.OPERATOR)),
        ("Administrator", (Who.USER, Who.OPERATOR, Who.ADMINISTRATOR)),
    ],
)
def test_the_level_of_slurms_accounting_counts(level: str, expected: tuple[Who, ...], commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = slurm(64030)")
    say(commands, "sacctmgr", level)
    assert rights_of_caller() == expected


def test_slurms_own_user_may_do_everything(commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = nobody(65534)")
    say(commands, "sacctmgr", "")
    assert rights_of_caller() == (Who.USER, Who.OPERATOR, Who.ADMINISTRATOR)


def test_who_cannot_ask_is_a_user(commands: Path) -> None:
    (commands / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (commands / "scontrol").chmod(0o755)
    assert rights_of_caller() == (Who.USER,)
