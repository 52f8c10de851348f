"""What keeps the virtual environment from being made is one line that says what to do, and exit status 3."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LOCK = f"six==1.17.0 --hash=sha256:{'0' * 64}\n"
CLOSED_PORT = "http://127.0.0.1:1/simple"
"""Nobody listens on port 1 (tcpmux), and only root could."""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A folder with the script and a lock that names one package."""
    (tmp_path / "deploy").mkdir()
    shutil.copy(root / "deploy" / "install-python-packages", tmp_path / "deploy")
    (tmp_path / "requirements.lock").write_text(LOCK, encoding="ascii")
    return tmp_path


def run(checkout: Path, python: Path | str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script as ``make setup`` does, without any settings of pip that this machine has."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [checkout / "deploy" / "install-python-packages"],
        env=environment | {"PYTHON": str(python), "PIP_CONFIG_FILE": os.devnull, **variables},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def stub(checkout: Path, body: str) -> Path:
    """Make a Python that does only this."""
    file = checkout / "python"
    file.write_text(f"#!/bin/bash\n{body}\n", encoding="ascii")
    file.chmod(0o755)
    return file


def test_a_python_that_is_not_there_or_too_old(checkout: Path) -> None:
    for python in ("/nonexistent/python", stub(checkout, "exit 1")):
        done = run(checkout, python)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == f"setup: {python} is no Python 3.11 or newer: install one, or name it: make PYTHON=...\n"


def test_a_python_without_venv(checkout: Path) -> None:
    python = stub(checkout, 'case "$*" in *ensurepip*) exit 1;; esac')
    done = run(checkout, python)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"setup: {python} has no venv: as root, apt-get install python3-venv, and try again\n"


def test_a_package_index_that_does_not_answer(checkout: Path) -> None:
    done = run(checkout, sys.executable, PIP_INDEX_URL=CLOSED_PORT)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup: pip cannot reach a package index (Connection refused): connect to a network")
    assert "six" in (checkout / ".venv" / "install.log").read_text(encoding="utf-8")


def test_what_pip_says_is_shown_where_it_is_no_network(checkout: Path, tmp_path: Path) -> None:
    empty = tmp_path / "index"
    empty.mkdir()
    done = run(checkout, sys.executable, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(empty))
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup: pip: Could not find a version that satisfies the requirement six==1.17.0")
    assert line.endswith("see .venv/install.log")
