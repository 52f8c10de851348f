"""Who is it that runs commands of Slurm, and what may he do?"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from opsk.remapping import commands as running
from opsk.remapping.commands import find_caller_name, find_caller_rights
from opsk.slurm.commands.remap_commands import Who


def test_a_caller_without_a_name_has_his_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_uid: int) -> pwd.struct_passwd:
        raise KeyError("uid not found")

    monkeypatch.setattr(running.pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert find_caller_name() == "54321"
    assert find_caller_rights(None, lambda argv: (0, ""), lambda: "") == (Who.USER,)


def test_variables_make_nobody_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "someone-else")
    assert find_caller_name() == pwd.getpwuid(os.geteuid()).pw_name


EVERYTHING = (Who.USER, Who.OPERATOR, Who.ADMINISTRATOR)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for commands of Slurm, and a caller who is nobody instead of root."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(running.os, "geteuid", lambda: 65534)
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
        ("Administrator", EVERYTHING),
    ],
)
def test_the_level_of_slurms_accounting_counts(level: str, expected: tuple[Who, ...], commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = slurm(64030)")
    say(commands, "sacctmgr", level)
    assert find_caller_rights(None) == expected


def test_what_is_said_beside_the_level_does_not_hide_it(commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = slurm(64030)")
    say(commands, "sacctmgr", "")
    (commands / "sacctmgr").write_text("#!/bin/sh\necho 'sacctmgr: a plugin is old' >&2\necho Operator\n")
    assert find_caller_rights(None) == (Who.USER, Who.OPERATOR)


def test_slurms_own_user_may_do_everything_whatever_his_level(commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = nobody(65534)")
    say(commands, "sacctmgr", "")
    assert find_caller_rights(None) == EVERYTHING


def test_a_user_of_that_name_and_another_number_is_not_slurms(commands: Path) -> None:
    say(commands, "scontrol", "SlurmUser               = nobody(64030)")
    say(commands, "sacctmgr", "")
    assert find_caller_rights(None) == (Who.USER,)


def test_who_cannot_ask_is_a_user(commands: Path) -> None:
    for name in ("scontrol", "sacctmgr"):
        (commands / name).write_text("#!/bin/sh\nexit 1\n")
        (commands / name).chmod(0o755)
    assert find_caller_rights(None) == (Who.USER,)
