import os
import shutil
import subprocess
from pathlib import Path

import pytest

# Debian without python3-venv has no ensurepip; the environment that is made logs what pip is asked for.
PYTHON = """#!/bin/bash
case $1 in
-c) case $2 in *ensurepip*) test -e ensurepip ;; esac ;;
-m) echo "$*" >> made
    mkdir -p "$3/bin"
    printf '#!/bin/bash\\n[ "$1" = -c ] || echo "$*" >> installed\\n' > "$3/bin/python"
    chmod 755 "$3/bin/python" ;;
esac
"""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "Makefile", tmp_path)
    (tmp_path / "deploy").mkdir()
    shutil.copy(root / "deploy" / "install-python-packages", tmp_path / "deploy")
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
    assert "has no venv: as root, apt-get install python3-venv, and try again" in failed.stderr
    assert not (checkout / ".venv").exists()
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


def chosen(root: Path, tmp_path: Path, system_python: str, **environ: str) -> str:
    """What `make` takes for Python where the system's own is the given program."""
    system = tmp_path / "system-python"
    system.write_text(f"#!/bin/sh\n{system_python}\n")
    system.chmod(0o755)
    text = (root / "Makefile").read_text().replace("/usr/bin/python3", str(system))
    (tmp_path / "Makefile").write_text(f"{text}\nshow:\n\t@echo $(PYTHON)\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "PYTHON"}
    words = ["make", "-s", "show"]
    done = subprocess.run(
        words, cwd=tmp_path, env=outer | environ, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_the_python_is_the_systems_own_where_it_will_do(root: Path, tmp_path: Path):
    assert chosen(root, tmp_path, "exit 0") == str(tmp_path / "system-python")


def test_a_system_python_that_is_old_or_has_no_venv_is_passed_over(root: Path, tmp_path: Path):
    assert chosen(root, tmp_path, "exit 1") == "python3"


def test_a_python_that_is_named_is_taken(root: Path, tmp_path: Path):
    assert chosen(root, tmp_path, "exit 0", PYTHON="python3.12") == "python3.12"
