"""Does an advisor leave a folder behind: one that ends, one that is killed, one that lives beside another?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opsk.process_folder import ProcessFolder

HOLDS = """
import sys
from opsk.process_folder import ProcessFolder
own = ProcessFolder("live")
(own.path / "state").write_text("x")
print(own.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    return tmp_path


def another() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    process.communicate()


def test_it_is_removed_with_what_is_in_it(runtime: Path) -> None:
    own = ProcessFolder("live")
    assert (own.path.parent, own.path.stat().st_mode & 0o777) == (runtime, 0o700)
    (own.path / "state").write_text("x")
    own.remove()
    assert list(runtime.iterdir()) == []


def test_the_next_one_removes_what_one_that_was_killed_has_left(runtime: Path) -> None:
    process, left = another()
    end(process, signal.SIGKILL)
    assert (left / "state").exists()
    own = ProcessFolder("live")
    assert list(runtime.iterdir()) == [own.path]


def test_that_of_one_that_lives_stays(runtime: Path) -> None:
    process, theirs = another()
    try:
        own = ProcessFolder("live")
        assert sorted(runtime.iterdir()) == sorted([own.path, theirs])
    finally:
        end(process, signal.SIGTERM)


def test_what_is_called_alike_and_is_none_of_them_stays(runtime: Path) -> None:
    """A folder without owner is being made, or is something else; a link may point to anything."""
    (runtime / "live-making").mkdir()
    (runtime / "live-file").write_text("x")
    (runtime / "elsewhere").mkdir()
    (runtime / "elsewhere" / ".owner").touch()
    (runtime / "live-link").symlink_to(runtime / "elsewhere")
    process, killed = another()
    end(process, signal.SIGKILL)
    ProcessFolder("other")
    assert killed.exists()
    ProcessFolder("live")
    assert {entry.name for entry in runtime.iterdir()} >= {"live-making", "live-file", "live-link", "elsewhere"}
    assert (runtime / "elsewhere" / ".owner").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_stays(runtime: Path) -> None:
    process, theirs = another()
    end(process, signal.SIGKILL)
    os.chown(theirs, 65534, 65534)
    ProcessFolder("live")
    assert theirs.exists()
