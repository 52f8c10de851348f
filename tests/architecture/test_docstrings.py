"""Every module says in one plain sentence what it does."""

from __future__ import annotations

import ast
import inspect
import tokenize
from pathlib import Path

ROOMS = ("opsk", "exporters", "jobcheck", "tui", "deploy", "benchmarks", "docs", "examples", "tests/soak")


def read_first_line(path: Path) -> str:
    """Return the first line of a module's docstring; empty where there is none. Only as much is read."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                said = ast.literal_eval(token.string) if token.type == tokenize.STRING else ""
                return inspect.cleandoc(said).partition("\n")[0]
    return ""


def first_lines(root: Path) -> dict[str, str]:
    """Return the first line of each module's docstring by path; empty where there is none."""
    paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    return {path.relative_to(root).as_posix(): read_first_line(path) for path in paths}


def test_a_module_docstring_is_a_sentence_and_no_question(root: Path) -> None:
    wrong = {path: line for path, line in first_lines(root).items() if not line.endswith((".", ":")) or "?" in line}
    assert wrong == {}, "say in one sentence what the module does: a verb in the third person, present tense"
