"""Does the script that makes roots leave good ones alone, say what it does, and end well where it cannot?

Nothing is installed here: `mmdebstrap` is one of ours that fails.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.releases.roots import MAKE

DAY_S = 86400


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache whose root of unstable was made by the present recipe."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stub(programs / "mmdebstrap", "echo 'E: no such mirror'; mkdir -p \"${@: -2:1}\"; exit 1")
    root = root_of(tmp_path, "unstable")
    root.mkdir(parents=True)
    (root / ".opsk-root").write_text("slurm 26.05.5\n")
    return tmp_path


def stub(file: Path, body: str) -> None:
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)


def make(home: Path, *suites: str, roots: str | None = None) -> str:
    environment = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "OPSK_SLURM_ROOTS": roots or str(home / "roots"),
    }
    done = subprocess.run([MAKE, *suites], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def root_of(home: Path, suite: str) -> Path:
    return Path(make(home, "--path", suite).strip())


def made_days_ago(home: Path, days: int) -> None:
    then = time.time() - days * DAY_S
    os.utime(root_of(home, "unstable") / ".opsk-root", (then, then))


def test_a_young_root_is_left_alone_without_a_word(home: Path) -> None:
    made_days_ago(home, 29)
    assert make(home, "unstable") == ""


def test_none_makes_none(home: Path) -> None:
    assert make(home, "trixie", roots="none") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes roots")
def test_an_old_root_stays_when_it_cannot_be_made_again(home: Path) -> None:
    made_days_ago(home, 31)
    said = make(home, "unstable")
    assert "makes unstable again: older than 30 days" in said
    assert "could not make unstable: E: no such mirror" in said
    assert (root_of(home, "unstable") / ".opsk-root").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes roots")
def test_what_another_recipe_made_is_neither_taken_nor_removed(home: Path) -> None:
    other = root_of(home, "trixie").with_name("trixie-1")
    other.mkdir()
    (other / ".opsk-root").write_text("slurm 24.11.5\n")
    assert "making trixie" in make(home, "trixie")
    assert other.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes roots")
def test_a_failure_leaves_no_half_made_root_and_names_its_log(home: Path) -> None:
    said = make(home, "trixie")
    assert f"see {home}/roots/trixie.log" in said
    assert not list((home / "roots").glob("*trixie*/"))
    assert "slurm-roots" not in Path("/proc/mounts").read_text()


def test_who_is_not_root_is_told_so(home: Path) -> None:
    stub(home / "bin" / "id", "echo 1000")
    assert make(home, "trixie") == "slurm roots: not made, and only root may: trixie\n"
