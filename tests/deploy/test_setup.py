import os
import shutil
import subprocess
from pathlib import Path

import pytest

# Debian without python3-venv: `python3 -m venv` makes .venv/bin/python, says what to install, and ends with 1.
PYTHON = """#!/bin/bash
echo "$*" >> made
mkdir -p "$3/bin"
ln -sf /bin/true "$3/bin/python"
test -e ensurepip || { echo "apt install python3-venv"; exit 1; }
printf '#!/bin/bash\\necho "$*" >> installed\\n' > "$3/bin/pip"
chmod 755 "$3/bin/pip"
"""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(checkout: Path) -> subprocess.CompletedProcess[str]:
    outer = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    words = ["make", "-s", ".venv/.ready", f"PYTHON={checkout / 'python'}"]
    return subprocess.run(words, cwd=checkout, env=outer, capture_output=True, text=True, timeout=60, check=False)


def test_an_environment_without_pip_is_made_again_once_pip_can_be_had(checkout: Path):
    failed = make(checkout)
    assert failed.returncode != 0
    assert "apt install python3-venv" in failed.stdout
    (checkout / "ensurepip").touch()
    assert make(checkout).returncode == 0
    installed = (checkout / "installed").read_text().splitlines()
    assert installed[0].endswith("-r requirements.lock")
    assert installed[1].endswith("-e .")


def test_a_finished_environment_is_kept(checkout: Path):
    (checkout / "ensurepip").touch()
    assert make(checkout).returncode == 0
    (checkout / ".venv" / ".ready").unlink()
    assert make(checkout).returncode == 0
    assert (checkout / "made").read_text().splitlines() == ["-m venv .venv"]
