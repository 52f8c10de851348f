"""No function, method, class or import is there that only tests use, or nothing."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import pytest
from vulture import Vulture

PROGRAMS = (
    "opsk", "exporters/opsk_exporters", "jobcheck/opsk_jobcheck", "tui/opsk_tui", "benchmarks", "deploy",
    "docs/programs", "examples",
)  # fmt: skip
KINDS = frozenset({"function", "method", "class", "property", "import"})
"""Fields of values are left out: they are read by name where a value becomes JSON or a row."""
DECORATORS = ["@*.command", "@*.callback", "@*.group", "@field_validator", "@model_validator", "@*_validator", "@on"]


def read_outside_callers(root: Path) -> list[str]:
    """Return patterns of names that a library calls, and the functions that entry points of pyproject.toml name."""
    listed = tomllib.loads((root / "tests" / "architecture" / "outside_callers.toml").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = [target for group in project["entry-points"].values() for target in group.values()]
    return [*(name for names in listed["callers"].values() for name in names), *(t.partition(":")[2] for t in targets)]


def find_unused(paths: list[Path], outside: list[str]) -> list[str]:
    """Return what is not used, each as ``path:line: kind name``."""
    tool = Vulture(ignore_decorators=DECORATORS)
    tool.scavenge([str(path) for path in paths])
    return [
        f"{item.filename}:{item.first_lineno}: {item.typ} {item.name}"
        for item in tool.get_unused_code(min_confidence=60)
        if item.typ in KINDS and not any(fnmatch.fnmatch(item.name, pattern) for pattern in outside)
    ]


def test_everything_is_used_by_a_program(root: Path) -> None:
    assert find_unused([root / name for name in PROGRAMS], read_outside_callers(root)) == [], "delete, or wire in"


def test_a_function_that_only_its_test_would_use_is_listed(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def used():\n    pass\n\n\ndef unused():\n    pass\n\n\nused()\n")
    assert find_unused([tmp_path], []) == [f"{tmp_path}/module.py:5: function unused"]


@pytest.mark.parametrize("name", ["unused", "un*"])
def test_what_a_library_calls_is_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "module.py").write_text("def unused():\n    pass\n")
    assert find_unused([tmp_path], [name]) == []
