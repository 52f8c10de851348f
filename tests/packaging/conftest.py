"""What is tested here is what a site gets: a release, built once for all tests from the files that git does not ignore.

``make release`` names one that is built already: ``OPSK_DIST`` its folder, ``OPSK_WHEELS`` that of the wheels it used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.archives import unpack

# Read here: what is in the environment later is cleaned away for each test.
DIST = os.environ.get("OPSK_DIST")
WHEELS = os.environ.get("OPSK_WHEELS")
EPOCH = "1767225600"
"""2026-01-01: not the time of any file of the checkout."""


HOME = tempfile.TemporaryDirectory(prefix="test-home-")
"""Of the programs that tests here run: rpm makes its database in it. It goes with the process."""
BUILD_TIMEOUT_S = 900
"""A build takes a minute; on two cores with all other tests beside it, several."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time for a build: the first that asks for the release waits for it."""
    here = Path(__file__).resolve().parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(2 * BUILD_TIMEOUT_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release, and what it was made with."""

    folder: Path
    wheels: Path
    source: Path
    epoch: str | None

    def file(self, pattern: str) -> Path:
        """Return the one file of that name; skip where this machine could not build it."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            program = {".deb": "dpkg-deb", ".rpm": "rpmbuild (Debian package rpm)"}.get(Path(pattern).suffix)
            assert program is not None, f"the release has no {pattern}"
            pytest.skip(f"{program} is not installed: the release has no {pattern}")
        (only,) = found
        return only


def run(*words: str | Path, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in a small environment of its own."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": HOME.name, "LC_ALL": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def program(name: str, package: str) -> str:
    """Return a program, or skip by the name of its package."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} (Debian package {package}) is not installed")
    return found


def snapshot(root: Path, folder: Path) -> Path:
    """Copy what git would know of, as it lies there now; others may be at work in the checkout."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        pytest.skip("this is no git checkout: what belongs to a release is not known")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def build(source: Path, out: Path, wheels: Path, environment: Mapping[str, str], umask: int = 0o022) -> None:
    """Build a release, or skip where the wheels of the lock cannot be fetched."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.packages.build", "--out", out, "--cache", wheels, "--level", "0"],
        cwd=source,
        env={**os.environ, **environment},
        umask=umask,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode and "pip download" in done.stderr:
        pytest.skip(f"wheels of requirements.lock cannot be fetched: {done.stderr.strip().splitlines()[-1][:200]}")
    if done.returncode and "packages run on the system's own Python" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def release(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release; building one takes a minute."""
    if DIST:
        wheels = Path(WHEELS) if WHEELS else root / "build" / "wheels"
        return Release(folder=Path(DIST), wheels=wheels, source=root, epoch=None)
    top = tmp_path_factory.mktemp("release")
    source = snapshot(root, top / "source")
    build(source, top / "dist", top / "wheels", {"SOURCE_DATE_EPOCH": EPOCH})
    return Release(folder=top / "dist", wheels=top / "wheels", source=source, epoch=EPOCH)


@pytest.fixture(scope="session")
def tree(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release, unpacked to where it was not built, in a folder with an inconvenient name."""
    folder = tmp_path_factory.mktemp("shared apps")
    unpack(release.file("opsk-*-python*.tar.gz"), folder)
    (top,) = folder.iterdir()
    return top
