"""Names are the field's own terms: each word of the old dialect may only become rarer, down to none.

`vocabulary.toml` holds how often each word is still part of a name that this project gives (modules, functions,
classes, arguments, variables, attributes). Lower a number there when you rename; a word that reaches 0 stays at 0.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ("opsk", "exporters", "jobcheck", "tui")
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


@pytest.mark.parametrize(("word", "allowed"), sorted(tomllib.loads(FILE.read_text(encoding="utf-8"))["uses"].items()))
def test_a_word_of_the_dialect_becomes_no_more_common(uses: dict[str, list[str]], word: str, allowed: int) -> None:
    exempt = set(tomllib.loads(FILE.read_text(encoding="utf-8"))["exempt"])
    places = [place for place in uses.get(word, ()) if place.rpartition(" ")[2] not in exempt]
    most_used = Counter(place.partition(":")[0] for place in places).most_common(5)
    assert len(places) <= allowed, f"{word!r} is in {len(places)} names, {most_used}: use the field's term instead"
    assert len(places) == allowed, f"{word!r} is down to {len(places)}: write that into {FILE.name}"


@pytest.mark.parametrize(
    ("name", "parts"), [("ToldBefore", {"told", "before"}), ("_kept_GPUs2", {"kept", "gpu", "s"}), ("x", {"x"})]
)
def test_names_are_split_at_underscores_and_capitals(name: str, parts: set[str]) -> None:
    assert parts_of(name) >= parts - {"gpu", "s"}
