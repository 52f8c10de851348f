"""Does ``opsk advisor`` install what Slurm needs, and leave a site's own scripts alone?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsk.errors import InputError
from opsk_jobcheck.service.advisor_command import advisor
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS


def install(directory: Path, config: Path) -> str:
    words = ["--config", str(config), "--install-hooks", str(directory)]
    done = CliRunner().invoke(advisor, words, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "opsk.toml"
    path.write_text('[advisor]\nsocket = "/run/here/a.sock"\n')
    return path


def test_hooks_are_installed_and_what_is_left_is_said(tmp_path: Path, config: Path) -> None:
    (tmp_path / "slurm").mkdir()
    assert "JobSubmitPlugins=lua" in install(tmp_path / "slurm", config)
    assert {path.name for path in (tmp_path / "slurm").iterdir()} == {*HOOKS, ADVICE, SETTINGS}
    assert "socket = /run/here/a.sock" in (tmp_path / "slurm" / SETTINGS).read_text()
    install(tmp_path / "slurm", config)


@pytest.mark.parametrize("name", HOOKS)
def test_a_script_of_the_site_is_not_overwritten(tmp_path: Path, config: Path, name: str) -> None:
    (tmp_path / name).write_text("-- ours\n")
    with pytest.raises(InputError, match="this site's own"):
        install(tmp_path, config)
    assert (tmp_path / name).read_text() == "-- ours\n"
    assert not (tmp_path / SETTINGS).exists()


def test_a_directory_that_is_missing_is_named(tmp_path: Path, config: Path) -> None:
    with pytest.raises(InputError, match="none"):
        install(tmp_path / "none", config)


def test_the_advisor_itself_loads_no_analysis() -> None:
    """It only passes questions on: numpy alone would double its memory and its time to start."""
    program = "import sys, opsk_jobcheck.service.service; print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
