"""Follows functions of Python itself, and methods of lists, tables and texts."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.expressions import MAX_TEXT, Expressions
from opsk_jobcheck.scripts.frameworks.own_models.statements import MAX_ITEMS, iterate
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    ANY_SIZE,
    DATA,
    OPEN,
    Children,
    Choice,
    ClassValue,
    External,
    Frame,
    Module,
    OpenFile,
    Settings,
    Span,
    as_span,
    choose,
)

MATH: Mapping[str, Callable[[float], float]] = {
    **{"sqrt": math.sqrt, "log2": math.log2, "log": math.log, "log10": math.log10, "exp": math.exp},
    **{"ceil": math.ceil, "floor": math.floor},
}
_PLAIN: Mapping[str, Callable[..., Any]] = {
    **{"int": int, "float": float, "str": str, "bool": bool, "abs": abs, "round": round, "len": len, "max": max},
    **{"min": min, "sum": sum, "list": list, "tuple": tuple, "zip": zip, "enumerate": enumerate, "sorted": sorted},
    **{"reversed": reversed, "range": range, "any": any, "all": all},
}
_OF_MODULES = frozenset(dir(object)) | {
    "module",
    "training",
    "forward",
    "parameters",
    "weight",
    "bias",
    "device",
    "dtype",
}
"""Attributes that modules have of themselves."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    **{"int": (int,), "float": (float,), "str": (str,), "bool": (bool,), "list": (list,), "tuple": (tuple,)},
    **{"dict": (dict,)},
}


class Builtins(Expressions):
    """Follows functions of Python itself."""

    def call_builtin(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a function of Python."""
        if name == "getattr" and len(positional) >= 2 and isinstance(positional[1], str):
            value = self.get(positional[0], positional[1], frame)
            return value if value is not DATA or len(positional) < 3 else choose([DATA, positional[2]])
        if name == "eval" and positional and isinstance(positional[0], str) and positional[0].isidentifier():
            return self.evaluate(ast.Name(id=positional[0], ctx=ast.Load()), frame)
        if name == "setattr" and len(positional) == 3:
            key = positional[1]
            if isinstance(key, str):
                self.assign_attribute(positional[0], key, positional[2])
            elif isinstance(positional[0], Module):
                self.write(positional[0].attributes, "?", OPEN)
            elif isinstance(positional[0], Settings):
                self.doubt(positional[0])
            return None
        if name == "hasattr" and len(positional) == 2:
            return _has_attribute(positional[0], positional[1])
        if name in ("exec", "globals", "locals"):  # nanoGPT's programs set their settings so
            for table in (frame.names, frame.file.names):
                for key in [key for key, value in table.items() if isinstance(value, str | int | float | list | tuple)]:
                    if key != "__name__":
                        self.write(table, key, DATA)
            return DATA
        if name == "open":
            return OpenFile(positional[0]) if positional and isinstance(positional[0], str) else DATA
        if name == "vars" and positional:
            return positional[0].attributes if isinstance(positional[0], Module) else positional[0]
        if name == "isinstance" and len(positional) == 2:
            return _is_instance(positional[0], positional[1])
        if name == "map" and len(positional) == 2:
            items = iterate(positional[1])
            if items is None:
                return OPEN if isinstance(positional[0], ClassValue) else DATA
            return [self.call(positional[0], [item], {}, node, frame) for item in items]
        if name == "dict":
            base = dict(positional[0]) if positional and isinstance(positional[0], dict) else {}
            rows = positional[0] if positional and isinstance(positional[0], list) else []
            if all(isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], str | int) for row in rows):
                return base | dict(rows) | keywords
            return {"?": OPEN}
        if name == "list" and positional and isinstance(positional[0], Module):
            return iterate(positional[0])
        return call_plain(name, positional)

    def call_of_list(self, owner: list[Any], name: str, positional: Sequence[Any]) -> Any:
        """Return the result of a method of a list."""
        if name == "append" and positional:
            self.write_row(owner, [*owner, positional[0]])
        elif name == "extend" and positional:
            items = iterate(positional[0])
            self.write_row(owner, [*owner, *(items if items is not None else [OPEN])])
        elif name == "insert" and len(positional) == 2 and isinstance(positional[0], int):
            row = list(owner)
            row.insert(positional[0], positional[1])
            self.write_row(owner, row)
        elif name == "pop":
            place = positional[0] if positional else -1
            if isinstance(place, int) and -len(owner) <= place < len(owner):
                value = owner[place]
                self.write_row(owner, [x for index, x in enumerate(owner) if index != place % len(owner)])
                return value
            self.write_row(owner, [OPEN])
            return OPEN
        elif name == "copy":
            return list(owner)
        elif name == "reverse":
            self.write_row(owner, owner[::-1])
        elif name not in ("index", "count"):
            self.write_row(owner, [OPEN])
        else:
            return DATA
        return None

    def call_of_table(
        self, owner: dict[Any, Any], name: str, positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Return the result of a method of a dictionary."""
        if name in ("get", "pop", "setdefault") and positional and isinstance(positional[0], str | int):
            default = positional[1] if len(positional) > 1 else None
            return owner.get(positional[0], owner.get("?", default))
        if name in ("get", "pop"):
            return choose(owner.values()) if owner else DATA
        if name in ("items", "keys", "values"):
            if "?" in owner:
                return DATA if OPEN not in owner.values() else OPEN
            return [tuple(pair) if isinstance(pair, tuple) else pair for pair in getattr(owner, name)()]
        if name == "update":
            given = positional[0] if positional else keywords
            for key, value in given.items() if isinstance(given, dict) else (("?", DATA),):
                self.write(owner, key, value)
            return None
        return dict(owner) if name == "copy" else DATA


def call_plain(name: str, positional: Sequence[Any]) -> Any:
    """Return the result of a function of Python; ``DATA`` where an argument is not known."""
    function = _PLAIN.get(name)
    if function is None:
        return DATA
    if name in ("list", "tuple") and positional and isinstance(positional[0], Children):
        return positional[0]
    if name in ("list", "tuple", "zip", "enumerate", "reversed"):
        rows = [iterate(value) for value in positional if not isinstance(value, int) or name != "enumerate"]
        if None in rows:
            return OPEN if any(value is OPEN for value in positional) else DATA
        result = function(*(row for row in rows if row is not None))
        return result if isinstance(result, tuple) else [x if not isinstance(x, tuple) else tuple(x) for x in result]
    is_known = all(_is_known(value) for value in positional)
    if name == "len" and positional and isinstance(positional[0], Module):
        return len(positional[0].parts) if OPEN not in positional[0].parts else DATA
    if not is_known or (positional and isinstance(positional[0], str) and len(positional[0]) > MAX_TEXT):
        return DATA
    try:
        result = function(*positional)
    except (TypeError, ValueError, ArithmeticError):
        return DATA
    if isinstance(result, range) and len(result) > MAX_ITEMS:
        return DATA
    return result


def _is_known(value: Any) -> bool:
    """Return whether a value is a number, a text, or a list whose length is known."""
    if isinstance(value, list | tuple):
        return all(part is not OPEN and not isinstance(part, Choice) for part in value)
    return value is None or isinstance(value, str | int | float | range | dict)


def compute(name: str, value: Any) -> Any:
    """Return the result of a function of numbers."""
    if not isinstance(value, int | float):
        return DATA
    try:
        return MATH[name](value)
    except (ValueError, ArithmeticError):
        return DATA


def multiply_sizes(sizes: Sequence[Any], keywords: Mapping[str, Any]) -> Span:
    """Return the elements of a tensor, whose sizes are given one by one or as a row."""
    rows = [*sizes, *(keywords[name] for name in ("size", "shape") if name in keywords)]
    flat = [side for row in rows for side in (row if isinstance(row, list | tuple) else (row,))]
    result = Span(1, 1)
    for side in flat:
        result *= ANY_SIZE if side is OPEN else as_span(side)
    return result


def make_record(name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Module:
    """Return a table whose items are attributes, those of the tables inside of it too."""
    given = positional[0] if positional and isinstance(positional[0], dict) else {}
    attributes: dict[Any, Any] = {**given, **keywords}
    if positional and not isinstance(positional[0], dict):
        attributes["?"] = OPEN
    rows = {
        key: make_record(name, [value], {}) if isinstance(value, dict) else value for key, value in attributes.items()
    }
    return Module(name, rows, is_model=False)


def merge_tables(tables: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    """Return tables as one; of what several have, the last one's counts."""
    result: dict[Any, Any] = {}
    for table in tables:
        for key, value in table.items():
            before = result.get(key)
            both = isinstance(before, dict) and isinstance(value, dict)
            result[key] = merge_tables([before, value]) if both else value  # type: ignore[list-item]
    return result


def _is_instance(value: Any, kind: Any) -> Any:
    """Return whether a value is of a kind; ``DATA`` where that is not known."""
    kinds = kind if isinstance(kind, list | tuple) else (kind,)
    names = [part.name if isinstance(part, External) else "?" for part in kinds]
    if not all(name in _TYPES for name in names) or not _is_known(value):
        return DATA
    types = tuple(row for name in names for row in _TYPES[name])
    return isinstance(value, types)


def _has_attribute(value: Any, name: Any) -> Any:
    """Return whether a module has an attribute that its constructor sets; ``DATA`` where that is not known."""
    if (
        not isinstance(value, Module)
        or value.definition is None
        or "?" in value.attributes
        or not isinstance(name, str)
    ):
        return DATA
    if name not in value.attributes:
        bases = [getattr(base, "attr", getattr(base, "id", "")) for base in value.definition.node.bases]
        is_own = bases == ["Module"] and name not in _OF_MODULES
        return False if is_own and all(part.name != name for part in _list_methods(value)) else DATA
    known = value.attributes[name]
    return DATA if known is ABSENT or (isinstance(known, Choice) and ABSENT in known.options) else True


def _list_methods(value: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods that the class of a module itself defines."""
    body = value.definition.node.body if value.definition is not None else []
    return [part for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]


def _call_text(method: Callable[..., Any], positional: Sequence[Any]) -> Any:
    """Return the result of a method of a text; ``DATA`` where it has none."""
    try:
        return method(*positional)
    except (TypeError, ValueError):
        return DATA


def call_of_text(owner: str, name: str, positional: Sequence[Any]) -> Any:
    """Return the result of a method of a text."""
    if len(owner) > MAX_TEXT or not all(isinstance(value, str | int) for value in positional):
        return DATA
    if name in ("lower", "upper", "strip", "title", "capitalize") and not positional:
        return getattr(owner, name)()
    if name in ("startswith", "endswith") and len(positional) == 1 and isinstance(positional[0], str):
        return getattr(owner, name)(positional[0])
    if name in (
        "split",
        "rsplit",
        "replace",
        "removeprefix",
        "removesuffix",
        "partition",
        "rpartition",
        "lstrip",
        "rstrip",
    ):
        return _call_text(getattr(owner, name), positional)
    return DATA
