"""Every module says in one plain sentence what it does."""

from __future__ import annotations

import ast
from pathlib import Path

ROOMS = ("opsk", "exporters", "jobcheck", "tui", "deploy", "benchmarks", "docs", "examples", "tests/soak")


def first_lines(root: Path) -> dict[str, str]:
    """Return the first line of each module's docstring by path; empty where there is none."""
    paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    return {
        path.relative_to(root).as_posix(): (
            ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        ).partition("\n")[0]
        for path in paths
    }


def test_a_module_docstring_is_a_sentence_and_no_question(root: Path) -> None:
    wrong = {path: line for path, line in first_lines(root).items() if not line.endswith((".", ":")) or "?" in line}
    assert wrong == {}, "say in one sentence what the module does: a verb in the third person, present tense"
