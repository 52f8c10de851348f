import os
import subprocess
from pathlib import Path

import pytest

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(not Path("/usr/sbin/policy-rc.d").exists() and os.geteuid() != 0, reason="needs root")


@pytest.fixture
def script(root: Path) -> Path:
    return root / "deploy" / "install-system-packages"


def run(
    script: Path, *words: str, path: str | None = None, python: str = "python3"
) -> subprocess.CompletedProcess[str]:
    bash = "/bin/bash"
    environment = {"PATH": path or os.environ["PATH"], "PYTHON": python}
    return subprocess.run(
        [bash, str(script), *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def stub(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{body}\n")
    (folder / name).chmod(0o755)


def as_root(folder: Path, apt_get: str) -> None:
    """Stand for root on a machine whose apt knows every package, and does this."""
    stub(folder, "id", "echo 0")
    stub(folder, "apt-cache", 'shift 2; printf "Package: %s\\n" "$@"')
    stub(folder, "apt-get", apt_get)


def test_what_is_missing_is_listed_by_package(script: Path, tmp_path: Path):
    said = run(script, "--list", path=str(tmp_path), python="/nonexistent")
    assert said.returncode == 0
    # With nothing on PATH but the directories of daemons, programs of people are missing.
    assert {"slurm-client", "lua5.1", "lua-socket", "gcc", "python3-venv"} <= set(said.stdout.split())


def test_nothing_is_said_where_nothing_is_missing(script: Path):
    if run(script, "--list").stdout:
        pytest.skip("system packages are missing here: deploy/install-system-packages --list names them")
    said = run(script)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_without_root_the_missing_ones_are_named_in_one_line(script: Path, tmp_path: Path):
    stub(tmp_path, "id", "echo 1000")
    stub(tmp_path, "apt-get", f"touch {tmp_path}/called")
    said = run(script, path=f"{tmp_path}:{os.environ['PATH']}", python="/nonexistent")
    assert said.returncode == 0
    assert said.stdout.count("\n") == 1
    assert "only root may" in said.stdout
    assert "python3-venv" in said.stdout
    assert not (tmp_path / "called").exists()


@NEEDS_ROOT
def test_as_root_only_what_is_missing_is_installed_and_a_failure_is_named(script: Path, tmp_path: Path):
    calls = tmp_path / "calls"
    as_root(
        tmp_path,
        'case "$*" in indextargets*) echo http://mirror; exit;; esac\n'
        f'echo "$DEBIAN_FRONTEND $*" >> {calls}\n'
        'case "$*" in *" install "*) test -x /usr/sbin/policy-rc.d && echo "E: no network today"; exit 100;; esac',
    )
    had_policy = Path("/usr/sbin/policy-rc.d").exists()
    before = set(run(script, "--list", python="/nonexistent").stdout.split())
    said = run(script, path=f"{tmp_path}:{os.environ['PATH']}", python="/nonexistent")
    assert said.returncode == 0
    update, install = calls.read_text().splitlines()[:2]
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert set(install.split("--no-install-recommends ")[1].split()) == before
    assert said.stdout.splitlines()[-1].endswith("E: no network today")
    assert Path("/usr/sbin/policy-rc.d").exists() == had_policy


@NEEDS_ROOT
def test_a_package_that_cannot_be_had_does_not_take_the_others_along(script: Path, tmp_path: Path):
    installed = tmp_path / "installed"
    as_root(
        tmp_path,
        'case "$*" in *" install "*python3-venv*) echo "E: gone"; exit 100;;\n'
        f'*" install "*) echo "$*" >>{installed};; esac',
    )
    # Nothing of people's programs is on this PATH but what the script itself needs.
    for name in ("mktemp", "rm", "chmod", "grep", "tail", "cat"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    said = run(script, path=str(tmp_path), python="/nonexistent")
    assert said.returncode == 0
    alone = {line.split()[-1] for line in installed.read_text().splitlines()}
    assert {"slurm-client", "lua5.1", "gcc"} <= alone
    assert "python3-venv" in said.stdout


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("apt_get", "reason"),
    [
        (
            "echo \"W: Failed to fetch http://mirror  Temporary failure resolving 'mirror'\"; exit 100",
            "no package source answers (Temporary failure resolving): connect to a network and try again",
        ),
        ("[ $1 = indextargets ] || exit 100", "apt has no package source: see /etc/apt/sources.list"),
    ],
)
def test_a_missing_network_or_source_is_said_with_what_to_do(script: Path, tmp_path: Path, apt_get: str, reason: str):
    as_root(tmp_path, apt_get)
    said = run(script, path=f"{tmp_path}:{os.environ['PATH']}", python="/nonexistent")
    assert said.returncode == 0
    assert said.stdout.splitlines()[-1].endswith(f"python3-venv: {reason}")


def test_a_full_folder_of_temporary_files_is_named(script: Path, tmp_path: Path):
    as_root(tmp_path, "exit 100")
    stub(tmp_path, "mktemp", "echo /proc/no/log")  # made, and then nothing can be written
    said = run(script, path=f"{tmp_path}:{os.environ['PATH']}", python="/nonexistent")
    assert said.returncode == 0
    assert said.stderr == ""
    last = said.stdout.splitlines()[-1]
    assert last.startswith("system packages: cannot write to /tmp: free some space there; not installed: ")
