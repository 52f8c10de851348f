"""A user's files are read with that user's rights; run as root, where rights would otherwise count for nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.postmortem.evidence.as_user import Person, find_person, read_as
from opsk.postmortem.evidence.job_output import find_output_files

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY = Person(uid=65534, gid=65534)


def test_the_caller_reads_its_own_files_itself() -> None:
    assert read_as(find_person(os.getuid()), lambda: b"x" * 300_000) == b"x" * 300_000


@root_only
def test_root_reads_as_the_user_and_stays_root(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    assert read_as(NOBODY, lambda: str(os.geteuid()).encode()) == b"65534"
    with pytest.raises(InputError, match="could not be read"):
        read_as(NOBODY, secret.read_bytes)
    assert os.geteuid() == 0


@root_only
def test_one_that_takes_too_long_or_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeps() -> bytes:
        time.sleep(60)
        return b""

    with pytest.raises(InputError, match="too long"):
        read_as(NOBODY, sleeps, deadline_s=0.3)
    monkeypatch.setattr("opsk.postmortem.evidence.as_user.MAX_BYTES", 1000)
    with pytest.raises(InputError, match="more than 1000 bytes"):
        read_as(NOBODY, lambda: b"x" * 200_000)


@root_only
def test_root_reads_for_no_unknown_user() -> None:
    with pytest.raises(InputError, match="does not know the user"):
        read_as(find_person("no-such-user-here"), lambda: b"")


def test_output_is_regular_files_with_the_number_of_the_job(tmp_path: Path) -> None:
    told = tmp_path / "slurm-77.out"
    for name in ("slurm-77.out", "train-77-3.log", "train-177-3.log", "77.pt", "n-77.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link-77.log").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe-77.log")
    found = find_output_files([told], "77", os.getuid())
    assert [path.name for path in found] == ["slurm-77.out", "n-77.txt", "train-77-3.log"]


@root_only
def test_root_takes_no_file_that_is_not_the_users_own(tmp_path: Path) -> None:
    told = tmp_path / "slurm-77.out"
    told.write_text("root's own")
    assert find_output_files([told], "77", 65534) == ()


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("rank0-3.log", True),
        ("job3.err", True),
        ("slurm-3_1.out", True),
        ("3.out", True),
        ("llama3-8b-1.out", False),
        ("run-13.out", False),
        ("layers3x.log", False),
    ],
)
def test_a_number_inside_a_word_is_no_job(tmp_path: Path, name: str, is_own: bool) -> None:
    told = tmp_path / "train.out"
    for path in (told, tmp_path / name):
        path.write_text("x\n")
    assert find_output_files([told], "3", os.getuid()) == ((told, tmp_path / name) if is_own else (told,))
