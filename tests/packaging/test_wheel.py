"""Does ``pip install opsk[...]`` bring what each part needs and no more, and does it go again?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opsk import __version__
from tests.packaging.conftest import Release, run


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with nothing but pip."""
    done = run(sys.executable, "-m", "venv", tmp_path / "venv")
    if done.returncode:
        pytest.skip(f"no virtual environment can be made (Debian package python3-venv): {done.stdout.strip()[:100]}")
    return tmp_path / "venv"


def install(release: Release, environment: Path, extras: str) -> None:
    # From the release and its wheels alone: no network.
    done = run(
        *(
            environment / "bin" / "python",
            "-m",
            "pip",
            "--isolated",
            "install",
            "--quiet",
            "--no-index",
            "--no-compile",
        ),
        *("--find-links", release.folder, "--find-links", release.wheels, f"opsk{extras}=={__version__}"),
    )
    assert done.returncode == 0, done.stderr


def test_a_node_with_the_exporter_has_no_screens_and_no_database(release: Release, environment: Path) -> None:
    install(release, environment, "[exporter]")
    assert run(environment / "bin" / "opsk", "exporter", "--help").returncode == 0
    listed = run(environment / "bin" / "python", "-m", "pip", "--isolated", "list").stdout.lower()
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
    assert run(environment / "bin" / "python", "-m", "pip", "--isolated", "uninstall", "-qy", "opsk").returncode == 0
    left = [path for path in environment.rglob("*opsk*") if not path.is_dir() or any(path.rglob("*.*"))]
    assert left == []
