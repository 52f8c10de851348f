"""Lists the classes of a program that its models are of, and what these call."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import Choice, ClassValue, File, Module

MAX_NESTED = 64


def list_calls(classes: Iterable[ast.ClassDef], files: Sequence[File]) -> tuple[set[str], set[str]]:
    """Return the names of what classes call, with the functions of files outside of classes, and without these."""
    inner = {id(part) for node in classes for part in node.body}
    rows = (node for file in files for row in file.nodes.values() for node in row)
    outer = {id(node) for node in rows if not isinstance(node, ast.ClassDef)}
    both: tuple[set[str], set[str]] = set(), set()
    for file in files:
        for place, calls in file.digest.calls.items():
            names = {name for name, _ in calls} if place in inner or place in outer else set()
            both[0].update(names)
            both[1].update(names if place in inner else ())
    return both


def list_classes(models: Iterable[Any], files: Iterable[File]) -> list[ast.ClassDef]:
    """Return the classes of a program that models, and their parts, are of, with the bases of these."""
    rows = (node for file in files for row in file.nodes.values() for node in row)
    nodes = {node.name: node for node in rows if isinstance(node, ast.ClassDef)}
    names: set[str] = set()
    waiting = [kind.node.name for kind in _iterate_classes(models, set())]
    while waiting:
        name = waiting.pop()
        if name in names or name not in nodes:
            continue
        names.add(name)
        waiting += [getattr(base, "attr", getattr(base, "id", "")) for base in nodes[name].bases]
    return [nodes[name] for name in sorted(names)]


def _iterate_classes(values: Iterable[Any], seen: set[int], depth: int = 0) -> Iterator[ClassValue]:
    """Yield the classes of modules and of their parts."""
    for value in values:
        if isinstance(value, Choice):
            yield from _iterate_classes(value.options, seen, depth + 1)
        elif isinstance(value, Module) and id(value) not in seen and depth < MAX_NESTED:
            seen.add(id(value))
            if value.definition is not None:
                yield value.definition
            yield from _iterate_classes((*value.attributes.values(), *value.parts), seen, depth + 1)
