"""Defines where the files of the tree go in a system, and what its package does before and after."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from deploy.packages.description import Description
from deploy.packages.tree import same_everywhere, walk

HERE = Path(__file__).resolve().parent
UNIT_FOLDER = "/usr/lib/systemd/system"
SYSUSERS_FOLDER = "/usr/lib/sysusers.d"
TMPFILES_FOLDER = "/usr/lib/tmpfiles.d"


def stage_package(tree: Path, stage: Path, described: Description, epoch: int) -> None:
    """Make a folder that looks like ``/`` with only this package in it.

    Parameters
    ----------
    tree
        The finished tree.
    stage
        Folder to make; it shares the tree's files, so neither may be changed afterwards.
    described
        The package.
    epoch
        Time that all files get [s since 1970].
    """
    home = stage / described.home.lstrip("/")
    for part in ("bin", "lib"):
        shutil.copytree(tree / part, home / part, symlinks=True, copy_function=os.link)
    (home / "pyvenv.cfg").write_bytes((tree / "pyvenv.cfg").read_bytes())
    share = stage / "usr" / "share"
    shutil.copytree(tree / "share", share, symlinks=True, copy_function=os.link)
    for placed in described.files:
        copy_matching(share / "opsk", placed.patterns, stage / placed.folder.lstrip("/"))
    for path, target in described.links.items():
        link = stage / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    same_everywhere(stage, epoch)


def copy_matching(source: Path, patterns: Iterable[str], folder: Path) -> None:
    """Copy the files that match; a pattern without any is a mistake."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        found = sorted(source.glob(pattern))
        if not found:
            raise FileNotFoundError(f"package.toml: nothing matches {pattern}")
        for path in found:
            shutil.copy(path, folder / path.name)


def steps(stage: Path, described: Description) -> str:
    """Return the shell functions of ``steps.sh``, with this package's units and folders put in."""
    text = (HERE / "steps.sh").read_text(encoding="utf-8")
    values = {
        "UNITS": names(stage, UNIT_FOLDER),
        "SYSUSERS": names(stage, SYSUSERS_FOLDER),
        "TMPFILES": names(stage, TMPFILES_FOLDER),
        "SETTINGS": described.settings,
        "RECORDS": described.records,
        "PASSING": described.passing,
    }
    for name, words in values.items():
        text = text.replace(f"@{name}@", " ".join(words))
    return text


def names(stage: Path, folder: str) -> list[str]:
    """Return the names of the files in one folder of the stage."""
    return sorted(path.name for path in (stage / folder.lstrip("/")).iterdir())


def size_bytes(stage: Path) -> int:
    """Return the size of all files together."""
    return sum(path.stat().st_size for path in walk(stage) if path.is_file() and not path.is_symlink())
