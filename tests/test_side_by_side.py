"""Does a run in several processes say of every test what a run in one does?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: tests run in one process")

MEETS_THE_OTHER = """
import time, pathlib
def test_two_files_run_at_once():
    folder = pathlib.Path(__file__).parent
    (folder / f"{__name__}.seen").touch()
    until = time.monotonic() + 60
    while len(list(folder.glob("*.seen"))) < 2:
        assert time.monotonic() < until, "the other file was not begun"
        time.sleep(0.01)
def test_of_one_file_are_run_by_one_process(): pass
"""
EVERY_OUTCOME = """
import warnings, pytest
@pytest.fixture
def broken():
    raise ValueError("no set-up")
@pytest.fixture(scope="session")
def closed_late():
    yield
    raise ValueError("no end")
def test_fails(closed_late):
    print("printed before")
    assert [1, 2] == [1, 3]
def test_has_no_set_up(broken): pass
def test_is_skipped(): pytest.skip("for a reason")
@pytest.mark.xfail
def test_is_known_to_fail(): assert False
def test_warns(): warnings.warn("be warned")
"""


def run(folder: Path, root: Path, **files: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    options = ("-q", "-rs", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "tests.side_by_side", "--processes=all", str(folder)],
        cwd=root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_outcome_is_reported(tmp_path: Path, root: Path) -> None:
    status, said = run(tmp_path, root, one=MEETS_THE_OTHER, other=MEETS_THE_OTHER + EVERY_OUTCOME)
    assert status == pytest.ExitCode.TESTS_FAILED, said
    assert "1 failed, 5 passed, 1 skipped, 1 xfailed, 1 warning, 2 errors" in said
    for line in ("assert [1, 2] == [1, 3]", "printed before", "ValueError: no set-up", "ValueError: no end"):
        assert line in said
    assert "for a reason" in said
    assert "UserWarning: be warned" in said


def test_a_test_that_ends_its_process_is_named(tmp_path: Path, root: Path) -> None:
    killed = "import os\ndef test_passes(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\n"
    status, said = run(tmp_path, root, one="def test_passes(): pass", other=killed)
    assert status == pytest.ExitCode.INTERRUPTED, said
    assert re.search(r"test_other\.py::test_dies ended its process with status -9", said)
    assert "Traceback" not in said
