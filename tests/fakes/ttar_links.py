"""Unpacks a text archive (ttar) with its links: devices of a class stand in sysfs as links to where they are."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.ttar import extract_ttar


def extract_with_links(archive: Path, target: Path, below: str) -> None:
    """Write files and links whose path starts with ``below`` under ``target``."""
    extract_ttar(archive, target, below)
    name = ""
    for line in archive.read_text(encoding="utf-8").splitlines():
        if line.startswith("Path: "):
            name = line.removeprefix("Path: ")
        elif line.startswith("SymlinkTo: ") and name.startswith(f"{below}/") and ".." not in name:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.symlink_to(line.removeprefix("SymlinkTo: "))
