"""Lists the flags that a program's parser takes, with their defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.values import DATA, File, Unread

_NUMBERS = frozenset({"int", "float"})
_TEXTS = frozenset({"", "str"})
_TRUTHS = frozenset({"str2bool", "strtobool", "boolean", "bool_flag", "str_to_bool", "string2bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag: all its names, its default, and what its value is made: a number, a text, a truth, or anything else.

    ``takes`` is how many words it takes; ``None`` where that is not known. ``place`` is that of an argument without a
    flag, among those of its parser.
    """

    names: tuple[str, ...]
    default: Any
    kind: str
    takes: int | None = 1
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The flags of a program by the names of their values, and the names that it may set again."""

    flags: Mapping[str, tuple[Flag, ...]]
    changed: frozenset[str]


def list_arguments(files: Iterable[File]) -> Arguments:
    """Return the flags of the parsers in a program's files."""
    flags: dict[str, tuple[Flag, ...]] = {}
    changed: set[str] = set()
    for file in files:
        changed |= file.digest.changed
        places = 0
        for call in sorted(file.digest.flags, key=lambda call: call.lineno):
            for name, flag in _read_flag(call, file, places):
                flags[name] = (*flags.get(name, ()), flag)
                places += flag.place is not None
    return Arguments(flags=flags, changed=frozenset(changed))


def _read_flag(call: ast.Call, file: File, place: int) -> Iterator[tuple[str, Flag]]:
    """Yield one flag by the name of its value."""
    words = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    keywords = {word.arg: word.value for word in call.keywords if word.arg}
    long = [word[2:] for word in words if word.startswith("--")]
    given = keywords.get("dest")
    name = given.value if isinstance(given, ast.Constant) else (long or [word.lstrip("-") for word in words] or [""])[0]
    if not isinstance(name, str) or not name:
        return
    action = keywords.get("action")
    kind = _find_kind(keywords)
    default: Any = read_literal(keywords["default"]) if "default" in keywords else None
    if default is DATA:
        default = Unread(keywords["default"], file)
    if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
        kind = str(action.value)
        default = default if "default" in keywords else kind == "store_false"
    is_word = not any(word.startswith("-") for word in words)
    if is_word and "default" not in keywords:
        default = DATA  # its value is one of the words of the command
    names = tuple(word.lstrip("-").replace("-", "_") for word in words)
    yield (
        name.replace("-", "_"),
        Flag(names=names, default=default, kind=kind, takes=_count_words(keywords), place=place if is_word else None),
    )


def _count_words(keywords: Mapping[str, ast.expr]) -> int | None:
    """Return how many words of the command a flag takes; ``None`` where that is not known."""
    if "nargs" in keywords:
        return None
    action = keywords.get("action")
    if action is None:
        return 1
    known = action.value if isinstance(action, ast.Constant) else ""
    return 0 if known in ("store_true", "store_false", "store_const", "count") else 1 if known == "store" else None


def _find_kind(keywords: Mapping[str, ast.expr]) -> str:
    """Return what the value of a flag is made."""
    count, action, made = keywords.get("nargs"), keywords.get("action"), keywords.get("type")
    if (count is not None and not (isinstance(count, ast.Constant) and count.value == "?")) or "const" in keywords:
        return "other"
    if action is not None and not isinstance(action, ast.Constant):
        return "other"
    name = getattr(made, "id", getattr(made, "attr", "?" if made is not None else ""))
    if name in _NUMBERS:
        return str(name)
    return "text" if name in _TEXTS else "truth" if name in _TRUTHS else "other"


def read_literal(node: ast.expr) -> Any:
    """Return a literal, or a list of literals; ``DATA`` for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if node.value is None or isinstance(node.value, str | int | float) else DATA
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int | float) else DATA
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= 64:
        return [read_literal(part) for part in node.elts]
    return DATA
