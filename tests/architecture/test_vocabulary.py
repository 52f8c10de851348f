"""Names are the field's own terms: no module, function, class, argument, variable or attribute has a banned word.

`vocabulary.toml` lists the words, and the names that an outside contract sets.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ("opsk", "exporters", "jobcheck", "tui")
PROGRAMS = ("deploy", "benchmarks", "docs", "examples")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
FILE = Path(__file__).with_name("vocabulary.toml")


def given_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a module gives, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def parts_of(name: str) -> set[str]:
    """Return the words that a name is made of, in lower case."""
    return {part.lower() for part in _PART.findall(name)}


@pytest.fixture(scope="module")
def uses(root: Path) -> dict[str, list[str]]:
    """Every word of a name, and the places where one with it is given."""
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            names = [(path.stem, 1), *given_names(ast.parse(path.read_text(encoding="utf-8")))]
            for name, line in names:
                for part in parts_of(name):
                    found.setdefault(part, []).append(f"{place}:{line} {name}")
    return found


@pytest.mark.parametrize("word", tomllib.loads(FILE.read_text(encoding="utf-8"))["banned"])
def test_no_name_has_a_word_of_the_dialect(uses: dict[str, list[str]], word: str) -> None:
    exempt = set(tomllib.loads(FILE.read_text(encoding="utf-8"))["exempt"])
    places = [place for place in uses.get(word, ()) if place.rpartition(" ")[2] not in exempt]
    assert places == [], f"use the field's term instead of {word!r}"


def is_named_by_a_verb(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function's name is no participle alone, and does not leave its verb out (``plan_of``)."""
    name = function.name.strip("_")
    return not (
        name.endswith("_of") or name in IRREGULAR or (name.endswith("ed") and "_" not in name and name not in VERBS)
    )


def is_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a property: that is a noun."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


VERBS = {"feed", "need", "seed", "shed", "embed", "exceed", "proceed", "speed"}
IRREGULAR = {
    "begun", "bound", "broken", "chosen", "drawn", "driven", "fallen", "frozen", "given", "gone", "grown", "hidden",
    "known", "led", "lost", "made", "seen", "shown", "spent", "stolen", "taken", "told", "torn", "woken", "written",
}  # fmt: skip


def test_functions_are_named_by_verbs(root: Path) -> None:
    exempt = set(tomllib.loads(FILE.read_text(encoding="utf-8"))["exempt_functions"])
    nameless = [
        f"{path.relative_to(root).as_posix()}:{node.lineno} {node.name}"
        for room in (*ROOMS, *PROGRAMS)
        for path in sorted((root / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name not in exempt and not is_value(node) and not is_named_by_a_verb(node)
    ]
    assert nameless == [], "say what the function does: `list_nodes`, not `nodes_of` or `listed`"


@pytest.mark.parametrize("name", tomllib.loads(FILE.read_text(encoding="utf-8"))["exempt"])
def test_what_is_exempt_is_in_use(uses: dict[str, list[str]], name: str) -> None:
    places = [place for word in parts_of(name) for place in uses.get(word, ())]
    assert [place for place in places if place.endswith(f" {name}")]


@pytest.mark.parametrize(
    ("name", "parts"), [("ToldBefore", {"told", "before"}), ("_kept_GPUs2", {"kept", "gpu", "s"}), ("x", {"x"})]
)
def test_names_are_split_at_underscores_and_capitals(name: str, parts: set[str]) -> None:
    assert parts_of(name) >= parts - {"gpu", "s"}
