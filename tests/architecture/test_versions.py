"""Is there one version, told the same way everywhere? A release changes ``opsk/__init__.py`` and what is named here."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from deploy.packages.changelog import faults
from opsk import __version__


def test_the_installed_package_has_the_version_of_the_code() -> None:
    assert version("opsk") == __version__, "the editable install is old: run make setup"


def test_the_command_tells_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split()[-1] == __version__


def test_the_modulefiles_are_of_this_version(root: Path) -> None:
    files = {path.name for path in (root / "modulefiles" / "opsk").iterdir()}
    assert files == {__version__, f"{__version__}.lua"}, "rename the modulefiles"


def test_the_changelog_says_what_it_brings(root: Path) -> None:
    assert faults((root / "CHANGELOG.md").read_text(encoding="utf-8"), __version__) == []
