"""Can a user exchange a file between the look at it and its opening, so that root opens another?"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import InputError
from opsk.postmortem.evidence.flight_recorder import read_dump
from opsk.slurm.commands import job_script
from opsk.slurm.commands.job_script import check_script


def test_a_dump_that_is_anothers_when_it_is_open_is_not_read(tmp_path: Path) -> None:
    """A link to a folder of another user, put in the place of one's own after the dumps in it were looked at."""
    dump = tmp_path / "nccl_trace_rank_3"
    dump.write_text(json.dumps({"rank": 3, "entries": []}), encoding="ascii")
    assert read_dump(dump, owner=os.getuid()).problem == ""
    assert "not the file of the job's user" in read_dump(dump, owner=os.getuid() + 1).problem


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "nccl_trace_rank_3"
    if kind == "link":
        place.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert read_dump(place, owner=os.getuid()).problem


class Child:
    """Stands for the process that becomes the user: what it was given, and what the user lets it say."""

    def __init__(self, says: bytes) -> None:
        self.says, self.given, self.folder, self.owner = says, dict[str, Any](), Path(), -1

    def __call__(self, words: tuple[str, ...], **given: Any) -> subprocess.CompletedProcess[bytes]:
        self.given, self.folder = given, Path(words[-1]).parent
        self.owner, self.mode = self.folder.stat().st_uid, self.folder.stat().st_mode & 0o777
        given["stdout"].write(self.says)
        return subprocess.CompletedProcess(words, 0)


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    return pwd.getpwuid(65534)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Child:
    made = Child(getattr(request, "param", b"{}"))
    monkeypatch.setattr(job_script.subprocess, "run", made)
    return made


def test_the_folder_of_a_script_that_is_given_away_stays_roots(child: Child, nobody: pwd.struct_passwd) -> None:
    """In a folder of his own the user could put a link to /etc/shadow where root is about to give a file away."""
    check_script(b"#!/bin/sh\n", 1, owner=nobody)
    assert (child.owner, child.mode) == (0, 0o711)


def test_a_process_that_became_a_user_has_nothing_of_roots_environment(
    child: Child, nobody: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner reads it in /proc."""
    monkeypatch.setenv("PGPASSWORD", "correct-horse")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse")
    check_script(b"#!/bin/sh\n", 1, owner=nobody)
    assert "correct-horse" not in child.given["env"].values()
    assert "PATH" in child.given["env"]


@pytest.mark.parametrize("child", [b"[" * 200_000, b" " * (9 << 20), b"[]", b""], indirect=True, ids=len)
def test_what_a_process_that_became_a_user_says_is_hostile(child: Child, nobody: pwd.struct_passwd) -> None:
    with pytest.raises((InputError, ValueError)):
        check_script(b"#!/bin/sh\n", 1, owner=nobody)
