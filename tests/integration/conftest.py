"""A whole cluster for the tests: one lab a session, started when the first test asks and ended with the session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from opsk.lab.programs import missing, search_path

NODES = 4
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLab:
    """A lab that is up: its folder, and the environment with which Slurm's and opsk's commands use it."""

    path: Path
    environment: Mapping[str, str]

    def run(self, *words: str, cwd: Path | None = None, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run any command (``sbatch``, ``sinfo``, ...) against this lab; the test looks at its status."""
        return subprocess.run(
            words, env=dict(self.environment), cwd=cwd, input=stdin, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def opsk(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run opsk against this lab."""
        return self.run(sys.executable, "-m", "opsk", *words, cwd=cwd)


@pytest.fixture(scope="session")
def lab_programs() -> None:
    """Skip, by name, when a program that the lab runs is not installed."""
    absent = missing()
    if absent:
        pytest.skip("not installed: " + ", ".join(f"{name} (package {package})" for name, package in absent.items()))


@pytest.fixture(scope="session")
def plain_environment() -> dict[str, str]:
    """This process's environment without any setting of Slurm or opsk."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPSK_", "SLURM_", "SBATCH_"))}
    return kept | {"PATH": search_path()}


@pytest.fixture(scope="session")
def lab(lab_programs: None, plain_environment: dict[str, str]) -> Iterator[RunningLab]:
    """A lab of four nodes without advisor and hooks; shared by all tests that change nothing of it."""
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    path = top / "lab"
    command = [sys.executable, "-m", "opsk", "lab"]
    try:
        started = subprocess.run(
            [*command, "up", "--dir", str(path), "--nodes", str(NODES), "--no-advice", "--json"],
            env=plain_environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        status = json.loads(started.stdout)
        yield RunningLab(path=path, environment=plain_environment | status["environment"])
    finally:
        subprocess.run([*command, "down", "--dir", str(path)], env=plain_environment, timeout=TIMEOUT_S, check=True)
        shutil.rmtree(top)
