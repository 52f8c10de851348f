"""Reads the line of help of a command from its source, without importing what the command needs."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import click


def read_help(target: str) -> str | None:
    """Return the help of the command ``module:function``, its docstring; ``None`` where that is not all.

    A decorator may give other help or hide the command: such a command has to be imported.
    """
    module, _, name = target.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    tree = ast.parse(Path(spec.origin).read_bytes())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    function = next(functions, None)
    if function is None or any(_decides_help(decorator) for decorator in function.decorator_list):
        return None
    return ast.get_docstring(function)


def summarize(target: str, limit: int) -> str | None:
    """Return the one line that click shows of such a command among others, at most ``limit`` characters."""
    text = read_help(target)
    return None if text is None else click.Command(None, help=text).get_short_help_str(limit)


def _decides_help(decorator: ast.expr) -> bool:
    """Return whether a decorator gives the command other help than its docstring."""
    if not isinstance(decorator, ast.Call):
        return False
    is_command = isinstance(decorator.func, ast.Attribute) and decorator.func.attr in ("command", "group")
    decided = ("help", "short_help", "hidden", "deprecated", None)
    return is_command and any(keyword.arg in decided for keyword in decorator.keywords)
