"""Is every promise of the threat model held by tests that exist, and does it tell of every attack that is tried?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_it_names_exists(root: Path, page: str) -> None:
    named = NAMED.findall(page)
    assert len(named) > 80
    assert len(named) == len(set(named)), "a test is named twice"
    absent = [f"{file}::{name}" for file, name in named if not (root / file).is_file()]
    assert absent == []
    known = {file: names_in(root / file) for file, _ in named}
    assert [f"{file}::{name}" for file, name in named if name not in known[file]] == []


def test_every_word_in_backticks_that_looks_like_a_test_is_one(page: str) -> None:
    assert len(re.findall(r"test_\w+`", page)) == len(NAMED.findall(page))


def test_every_threat_says_what_holds_it_and_what_does_not(page: str) -> None:
    parts = re.split(r"^#{2,3} ", page, flags=re.MULTILINE)[1:]
    threats = [
        part for part in parts if part.split("\n", 1)[1].strip() and not part.startswith(("What is pro", "Trust"))
    ]
    assert len(threats) > 10
    assert [part.split("\n", 1)[0] for part in threats if not NAMED.search(part)] == []
    without = [part.split("\n", 1)[0] for part in threats if "\nNot covered: " not in part]
    assert without == ["Users and rights of the programs", "Path traversal through names"]


def test_every_file_of_attacks_is_told_of(root: Path, page: str) -> None:
    ours = {path.name for path in (root / "tests" / "security").glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in ours if f"tests/security/{name}::" not in page} == set()
