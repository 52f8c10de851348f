"""A folder is one room: it has no more modules than a reader takes in at a look."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

MAX_MODULES = 20


def test_no_folder_has_more_modules_than_one_takes_in(root: Path) -> None:
    modules = Counter(
        path.parent.relative_to(root).as_posix()
        for room in ("opsk", "exporters", "jobcheck", "tui", "deploy", "benchmarks", "docs", "examples")
        for path in (root / room).rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {folder: count for folder, count in modules.items() if count > MAX_MODULES}
    assert modules
    assert not crowded, "put those of one subject into a folder of their own"
