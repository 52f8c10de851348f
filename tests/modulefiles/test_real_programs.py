"""Do the real Lmod and the real Environment Modules load opsk, show it, and leave the shell as it was?

Debian's packages of the two conflict: Lmod is the one that is installed, Environment Modules lies in a folder of its
own (``get-environment-modules``). Both work in a real bash, with the function ``module`` that their own set-up defines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from opsk import __version__

HERE = Path(__file__).resolve().parent
LMOD_SETUP = Path(os.environ.get("OPSK_TEST_LMOD_SETUP", "/usr/share/lmod/lmod/init/bash"))
MODULES_ROOT = os.environ.get("OPSK_MODULES_ROOT")
CACHE = os.environ.get("XDG_CACHE_HOME", f"{os.environ.get('HOME', '/nonexistent')}/.cache")
# As modulecmd.tcl's own init/bash does it.
ENVIRONMENT_MODULES_SETUP = 'module() { eval "$("$TCLSH" "$MODULECMD" bash "$@")"; }'


@pytest.fixture
def installed(root: Path, tmp_path: Path) -> Path:
    """A prefix with a space in its name whose opsk says that it was called."""
    prefix = tmp_path / "shared apps" / "opsk"
    shutil.copytree(root / "modulefiles", prefix / "share" / "opsk" / "modulefiles")
    shutil.copytree(root / "deploy" / "bin", prefix / "share" / "opsk" / "deploy" / "bin")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "opsk").write_text('#!/bin/sh\necho "installed opsk $*"\n', encoding="ascii")
    (prefix / "bin" / "opsk").chmod(0o755)
    (prefix / "bin" / "python3").symlink_to("/bin/false")
    return prefix


@pytest.fixture(params=["lmod", "environment-modules"])
def setup(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """What a shell does to have ``module``, and the environment for that."""
    if request.param == "lmod":
        if not LMOD_SETUP.exists():
            pytest.skip("Lmod (Debian package lmod) is not installed")
        return f". {LMOD_SETUP}", {"LMOD_IGNORE_CACHE": "yes", "LMOD_PAGER": "none"}
    tclsh = shutil.which("tclsh")
    if tclsh is None:
        pytest.skip("no Tcl interpreter (Debian package tcl)")
    environment = {"XDG_CACHE_HOME": CACHE, **({"OPSK_MODULES_ROOT": MODULES_ROOT} if MODULES_ROOT else {})}
    got = subprocess.run(
        [HERE / "get-environment-modules"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if got.returncode:
        pytest.skip(f"Environment Modules cannot be had: {got.stderr.strip()}")
    return ENVIRONMENT_MODULES_SETUP, {"TCLSH": tclsh, "MODULECMD": got.stdout.strip(), "MODULES_PAGER": ""}


def bash(setup: tuple[str, dict[str, str]], installed: Path, text: str) -> subprocess.CompletedProcess[str]:
    prepare, more = setup
    script = f'{prepare}\nmodule use "{installed}/share/opsk/modulefiles"\n{text}'
    return subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", script],
        # No folder twice: Lmod would take the second out.
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(installed.parent),
            "MANPATH": "/usr/share/man",
            **more,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_loading_brings_the_commands_and_no_other_python(setup: tuple[str, dict[str, str]], installed: Path) -> None:
    text = "before=$(command -v python3)\nmodule load opsk && opsk check x && command -v opsk-srun\n"
    done = bash(setup, installed, f'{text}[ "$(command -v python3)" = "$before" ] && echo same python')
    expected = ["installed opsk check x", f"{installed}/share/opsk/deploy/bin/opsk-srun", "same python"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_unloading_leaves_the_environment_as_it_was(setup: tuple[str, dict[str, str]], installed: Path) -> None:
    # What the programs note for themselves is theirs.
    theirs = "grep -Ev '^(_?_?LM|_Mod|MODULE|LOADED|_LMFILES_|__MODULES|_=|LMOD)'"
    text = f"env | {theirs} | sort\necho ==\nmodule load opsk\nmodule unload opsk\nenv | {theirs} | sort\n"
    done = bash(setup, installed, text)
    before, _, after = done.stdout.partition("==\n")
    assert before == after, done.stderr
    assert "PATH=" in before


def test_the_version_can_be_named_and_is_listed_and_loaded_once(
    setup: tuple[str, dict[str, str]], installed: Path
) -> None:
    text = f"module load opsk/{__version__}\nmodule load opsk\nmodule list 2>&1\necho $PATH"
    said = bash(setup, installed, text).stdout
    assert f"opsk/{__version__}" in said
    assert said.splitlines()[-1].count("deploy/bin") == 1


def test_it_says_what_it_is(setup: tuple[str, dict[str, str]], installed: Path) -> None:
    said = bash(setup, installed, "module whatis opsk 2>&1; module help opsk 2>&1; module avail 2>&1").stdout
    assert "Will this training job fit" in said or "will this training job fit" in said
    assert "opsk check SCRIPT" in said
    assert __version__ in said


def test_half_an_installation_is_refused_by_name_and_changes_nothing(
    setup: tuple[str, dict[str, str]], installed: Path
) -> None:
    (installed / "share" / "opsk" / "deploy" / "bin" / "opsk").unlink()
    said = bash(setup, installed, "module load opsk 2>&1\necho PATH=$PATH").stdout
    assert "deploy/bin/opsk is missing" in " ".join(said.split()).replace("/ ", "/")
    assert "deploy/bin" not in said.splitlines()[-1]
