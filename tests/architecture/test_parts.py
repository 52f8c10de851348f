"""Every test is in exactly one of the parts that ``make test`` runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

LEAVES = frozenset({"trixie", "unstable"})
"""Marks by which the tests of a folder are divided between parts."""


def commands(root: Path) -> dict[str, list[str]]:
    """Return the words of pytest of each part, as make would run them."""
    waiting = re.search(r"^WAITING = (.*)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert waiting is not None
    parts = ("part-core", *waiting[1].split())
    shown = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *parts], cwd=root, capture_output=True, text=True, timeout=60,
        check=True, env={"PATH": "/usr/bin:/bin"},
    ).stdout  # fmt: skip
    lines = [shlex.split(line) for line in shown.splitlines() if " -m pytest " in line]
    return {part: words[words.index("pytest") + 1 :] for part, words in zip(parts, lines, strict=True)}


def takes(words: list[str], path: str, mark: str) -> bool:
    """Tell whether a part runs the tests of a file that have this mark ("" for none)."""
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    folders = [word for word in words if word.startswith("tests/")] or ["tests"]
    chosen = words[words.index("-m") + 1] if "-m" in words else "everything"
    is_marked = {"everything": True, "not trixie and not unstable": not mark}.get(chosen, chosen == mark)
    return is_marked and is_named(path, folders) and not is_named(path, ignored)


def is_named(path: str, names: list[str]) -> bool:
    """Return whether a file, or a folder that it is in, is among names."""
    return any(path == name or path.startswith(f"{name}/") for name in names)


def test_every_test_is_in_one_part(root: Path) -> None:
    parts = commands(root)
    for file in sorted((root / "tests").rglob("test_*.py")):
        path = str(file.relative_to(root))
        for mark in ("", *sorted(LEAVES)) if path.startswith("tests/integration/") else ("",):
            found = [part for part, words in parts.items() if takes(words, path, mark)]
            assert len(found) == 1, f"{path} {mark}: {found}"
