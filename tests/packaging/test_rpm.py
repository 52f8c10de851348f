"""Does the ``.rpm`` install, verify and go again, by rpm itself and in an empty root?

In an empty root there is no shell to run its scripts: these are parsed here, and what they do is tried with the
``.deb``, which has the same functions.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from opsk import __version__
from tests.packaging.conftest import Release, program, run

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages as they are meant")


def rpm(*words: str | Path) -> str:
    done = run(program("rpm", "rpm"), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_root
def test_it_comes_works_verifies_and_goes_without_a_trace(release: Release, tmp_path: Path) -> None:
    package, system = release.file("opsk-*.rpm"), tmp_path / "system"
    rpm("--root", system, "--initdb")
    before = outside_database(system)
    rpm("--root", system, "--install", "--nodeps", "--noscripts", package)
    assert run(system / "usr" / "bin" / "opsk", "--version").stdout == f"opsk, version {__version__}\n"
    assert rpm("--root", system, "--verify", "--nodeps", "opsk") == ""
    rpm("--root", system, "--erase", "--nodeps", "--noscripts", "opsk")
    # Folders of the system's (usr/bin, ...) belong to its own packages, which an empty root does not have.
    left = outside_database(system) - before
    assert [name for name in left if not (system / name).is_dir() or "opsk" in name] == []


def outside_database(system: Path) -> set[str]:
    names = {path.relative_to(system).as_posix() for path in system.rglob("*")}
    return {name for name in names if not name.startswith(("var/lib/rpm", "usr/lib/sysimage"))}


def test_it_holds_the_same_files_as_the_deb(release: Release) -> None:
    ours = set(rpm("--query", "--list", "--package", release.file("opsk-*.rpm")).split("\n")) - {""}
    listed = run(program("dpkg-deb", "dpkg"), "--contents", release.file("opsk_*.deb")).stdout.splitlines()
    theirs = {line.split(maxsplit=5)[5].partition(" -> ")[0].lstrip(".").rstrip("/") for line in listed}
    assert ours <= theirs
    # Only folders that other packages own are not in the rpm.
    assert not any("opsk" in name for name in theirs - ours)


def test_it_asks_for_the_python_and_the_libraries_that_it_was_made_for(release: Release) -> None:
    asked = rpm("--query", "--requires", "--package", release.file("opsk-*.rpm"))
    assert any(line.startswith("/usr/bin/python3.") for line in asked.splitlines())
    assert "glibc >= 2." in asked


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_can_read_its_scripts(release: Release, shell: str) -> None:
    package = release.file("opsk-*.rpm")
    for name in ("POSTIN", "PREUN", "POSTUN"):
        script = rpm("--query", "--queryformat", f"%{{{name}}}", "--package", package)
        assert "place()" in script
        assert "@" not in script.replace("$@", "")
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=30, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
