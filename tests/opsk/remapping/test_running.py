"""Who is it that runs commands of Slurm, and what may he do?"""

from __future__ import annotations

import os
import pwd

import pytest

from opsk.remapping import running
from opsk.remapping.running import caller_name, caller_rights
from opsk.slurm.remap_commands import Who


def test_a_caller_without_a_name_has_his_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_uid: int) -> pwd.struct_passwd:
        raise KeyError("uid not found")

    monkeypatch.setattr(running.pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert caller_name() == "54321"
    assert caller_rights(None, lambda argv: (0, "")) == (Who.USER,)


def test_variables_make_nobody_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "someone-else")
    assert caller_name() == pwd.getpwuid(os.geteuid()).pw_name
