"""Does the repository know nothing of the machine that it was written on?"""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tracked(root: Path) -> list[Path]:
    """Return all files that are under version control."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=root, capture_output=True, text=True, timeout=60, check=True)
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def lines_with(tracked: list[Path], wanted: tuple[str, ...]) -> Iterator[str]:
    """Yield every line that holds one of the words."""
    for path in tracked:
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if any(word in line for word in wanted):
                yield f"{path.name}:{number}: {line.strip()[:120]}"


def test_no_file_names_a_path_of_this_machine(root: Path, tracked: list[Path]) -> None:
    here = [str(root), f"{root.parent}/shared"]
    if getpass.getuser() != "root":
        here.append(str(Path.home()))
    assert list(lines_with(tracked, tuple(here))) == []


def test_the_lock_holds_pins_and_no_addresses(root: Path) -> None:
    text = (root / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    names = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert names
    assert all("==" in line for line in names)


def test_component_folders_hold_one_package_and_nothing_loose(root: Path) -> None:
    for folder, package in (("exporters", "opsk_exporters"), ("jobcheck", "opsk_jobcheck"), ("tui", "opsk_tui")):
        loose = [path.name for path in (root / folder).glob("*.py")]
        packages = [path.parent.name for path in (root / folder).glob("*/__init__.py")]
        assert (loose, packages) == ([], [package])
        assert (root / folder / "README.md").is_file()


def test_no_pattern_has_an_optional_group_that_never_gives_back(tracked: list[Path]) -> None:
    """In Python 3.11.2, that of Debian 12, such a group moves on where it should not (mended by 3.11.7)."""
    sources = [path for path in tracked if path.suffix == ".py"]
    assert list(lines_with(sources, (")" + "?+", "]" + "?+"))) == []
