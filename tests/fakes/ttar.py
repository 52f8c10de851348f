"""Unpacks the text archives (ttar) in which sysfs trees are recorded: paths, line counts, lines."""

from __future__ import annotations

from pathlib import Path


def extract_ttar(archive: Path, target: Path, below: str) -> None:
    """Write the files of ``archive`` whose path starts with ``below`` under ``target``; links are left out."""
    path: Path | None = None
    left = 0
    lines: list[str] = []
    for line in archive.read_text(encoding="utf-8").splitlines():
        if left:
            lines.append(line.removesuffix("EOF") if left == 1 else line)
            left -= 1
            if not left and path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        elif line.startswith("Path: "):
            name = line.removeprefix("Path: ")
            path = target / name if name.startswith(f"{below}/") and ".." not in name else None
        elif line.startswith("Lines: "):
            left, lines = int(line.removeprefix("Lines: ")), []
