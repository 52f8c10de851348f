"""Does ``pip install opsk[...]`` bring what each part needs and no more, and does it go again?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opsk import __version__
from tests.packaging.conftest import Release, run


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with nothing in it: pip works on it from outside."""
    done = run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    assert done.returncode == 0, done.stderr
    return tmp_path / "venv"


def pip(environment: Path, *words: str | Path) -> str:
    done = run(sys.executable, "-m", "pip", "--isolated", "--python", environment / "bin" / "python", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(release: Release, environment: Path, extras: str) -> None:
    # From the release and its wheels alone: no network.
    pip(
        environment,
        *("install", "--quiet", "--no-index", "--no-compile"),
        *("--find-links", release.folder, "--find-links", release.wheels, f"opsk{extras}=={__version__}"),
    )


def test_a_node_with_the_exporter_has_no_screens_and_no_database(release: Release, environment: Path) -> None:
    install(release, environment, "[exporter]")
    assert run(environment / "bin" / "opsk", "exporter", "--help").returncode == 0
    listed = pip(environment, "list").lower()
    assert "prometheus" in listed
    for other in ("textual", "sqlalchemy", "hyperscan", "uvloop", "pytest", "mypy"):
        assert other not in listed


def test_the_plain_wheel_answers_at_sbatch_and_leaves_nothing_but_empty_folders(
    release: Release, environment: Path, root: Path
) -> None:
    install(release, environment, "")
    script = root / "examples" / "llama3-8b-megatron.sbatch"
    assert run(environment / "bin" / "opsk", "check", "--cluster", "titan", script).returncode == 0
    assert (environment / "share" / "opsk" / "modulefiles" / "opsk" / __version__).is_file()
    pip(environment, "uninstall", "-qy", "opsk")
    left = [path for path in environment.rglob("*opsk*") if not path.is_dir() or any(path.rglob("*.*"))]
    assert left == []
