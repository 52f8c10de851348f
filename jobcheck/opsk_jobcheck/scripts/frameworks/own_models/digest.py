"""Parses the text of a Python file once, and lists what is asked of it again and again."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache

from opsk_jobcheck.scripts.frameworks.python.parsing import parse_program

MAX_CHARS = 1 << 17
MAX_BRACES = 8000
"""Python's parser takes a time that grows with the square of the fields of one f-string."""
MAX_NODES = 60_000
_TRAINS = frozenset({"backward", "zero_grad", "optimizer_step", "no_grad"})
_EPOCH = re.compile(
    r"_?(run_|do_)?(train|training|fit)_?(one_)?(epoch|step|iter\w*|loop|batch|fn)\w*|epoch_train"
    r"|_?(run|do|process)_(an_|one_)?(epoch|batch|step|iter\w*)|_?(epoch|batch)_step"
)
"""Functions that train for a while, by their names."""
_CONTAINERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.AsyncFor, ast.While)
_ASSIGNED = (ast.Assign, ast.AugAssign, ast.AnnAssign)


@dataclass(slots=True)
class Digest:
    """A parsed file.

    ``imports`` are modules with a name that is taken from each; ``flags`` the calls that add a flag to a parser;
    ``changed`` the attributes that are set of anything but ``self``. By the identity of a function or loop, ``calls``
    are the names that are called in it, each with whether it is called as it is; ``trains`` and ``yields`` are those
    that go backward and those that yield.
    """

    tree: ast.Module
    imports: list[tuple[str, str]] = field(default_factory=list)
    flags: list[ast.Call] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    calls: dict[int, set[tuple[str, bool]]] = field(default_factory=dict)
    trains: set[int] = field(default_factory=set)
    yields: set[int] = field(default_factory=set)


@lru_cache(maxsize=64)
def digest(text: str) -> Digest | None:
    """Return a parsed text, which nothing changes; ``None`` where it cannot be parsed, or is too long; never raises."""
    if len(text) > MAX_CHARS or text.count("{") > MAX_BRACES:
        return None
    try:
        tree = parse_program(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    result = Digest(tree)
    return result if _collect(result) else None


def _collect(result: Digest) -> bool:
    """List what a file has; return whether it is not too long."""
    waiting: list[tuple[ast.AST, tuple[int, ...]]] = [(result.tree, ())]
    for _ in range(MAX_NODES):
        if not waiting:
            return True
        node, around = waiting.pop()
        if isinstance(node, _CONTAINERS):
            around = (*around, id(node))
            result.calls[id(node)] = set()
        elif isinstance(node, ast.Call):
            _collect_call(result, node, around)
        elif isinstance(node, _ASSIGNED):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") not in ("self", "cls"):
                    result.changed.add(target.attr)
        elif isinstance(node, ast.Import):
            result.imports += [(name.name, "") for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            result.imports += [(module, name.name) for name in node.names]
        elif isinstance(node, ast.Yield | ast.YieldFrom):
            result.yields.update(around)
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                waiting += [(item, around) for item in part if isinstance(item, ast.AST)]
            elif isinstance(part, ast.AST) and not isinstance(part, ast.Constant | ast.Name | ast.expr_context):
                waiting.append((part, around))
    return False


def _collect_call(result: Digest, node: ast.Call, around: tuple[int, ...]) -> None:
    """List a call."""
    function = node.func
    is_plain = isinstance(function, ast.Name)
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    for place in around:
        result.calls[place].add((name, is_plain))
    if (not is_plain and name in _TRAINS) or _EPOCH.fullmatch(name):
        result.trains.update(around)
    elif name == "add_argument":
        result.flags.append(node)
    elif name == "set_defaults":
        result.changed.update(word.arg or "?" for word in node.keywords)
