"""Defines what the text of a Python program states about its training: defaults, models that it names, what it calls.

A value that may be another one when the program runs is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

MAX_TEXT_CHARS = 200
UNPACKED = "**"
"""The name of arguments of a call that are in a table which is not known."""
OR = "\x1f"
"""What stands between the alternatives of a condition."""
FREEZES = "requires_grad_(False)"
"""The name of a call, or an assignment, that freezes parameters."""
HAS_BF16 = "is_bf16_supported"
"""The setting that says whether the GPU computes in bf16."""
Scalar = str | int | float | bool | None
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a program: a literal, or the ``name`` of the setting that it is taken from; else it is not known.

    ``words`` are the texts of a list of nothing else, ``options`` the texts of which it is one, ``choice`` the two
    values of ``a if test else b``, under the conditions ``test``. ``variable`` is the one of the environment whose
    default the literal is. ``file`` and ``text`` are where it was found by following the program; its own file
    otherwise.
    """

    literal: Scalar = None
    name: str = ""
    line: int = 0
    is_known: bool = False
    words: Name = ()
    options: Name = ()
    variable: str = ""
    test: Name = ()
    choice: tuple[Value, ...] = ()
    file: str = ""
    text: str = ""

    @property
    def is_dtype(self) -> bool:
        """Whether it is, or may be, a number format of less than 32 bits."""
        return str(self.literal) in ("torch.bfloat16", "torch.float16", "torch.half") or "dtype" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call: the last part of the function's name, its arguments, and the conditions under which it runs.

    A condition is the name of a setting, with a dash before where it must be off, and ``=`` and a value behind where it
    must have that one (``kind=lora``); one that is anything else is ``?``. Of alternatives, with `OR` between them, one
    must hold. ``is_followed`` tells that it is in another
    file, where following the program came to it.
    """

    function: str
    line: int
    owner: str = ""
    first: Value = field(default_factory=Value)
    keywords: Mapping[str, Value] = field(default_factory=dict)
    conditions: Name = ()
    is_followed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A value that is set inside of an object: ``path`` is ``trainer.strategy.x`` of ``recipe.trainer.strategy.x``."""

    path: str
    value: Value
    conditions: Name = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSource:
    """What a program states.

    ``imports`` are dotted names of modules; ``defaults`` the defaults of its parser by the names of flags; ``flags``
    how these are spelled, ``aliases`` their other names (``c`` of ``-c``, ``--config``), and ``switches`` those that
    take no value;
    ``constants`` are set once, at the top of the module, as are the texts in ``lists``; ``attributes`` are those of a
    class, or a table, of settings (``Config.batch_size``, ``CONFIG["batch_size"]``); ``changed`` are the names of
    settings that the program sets again, to another value. ``parts`` are the modules that were joined, by their paths,
    each with the lines before its own. ``why`` is the reason where the text could not be read.
    """

    imports: frozenset[str] = frozenset()
    defaults: Mapping[str, Value] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    constants: Mapping[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, Value] = field(default_factory=dict)
    lists: Mapping[str, Name] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    by_function: Mapping[str, tuple[Call, ...]] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()
    divided: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    why: str = ""

    @property
    def functions(self) -> Iterable[str]:
        """The names of the functions that are called, each once."""
        return self.by_function.keys()

    def find_calls(self, *functions: str) -> Iterator[Call]:
        """Yield the calls of functions of these names, in their order."""
        names = [name for name in functions if name in self.by_function]
        if len(names) < 2:
            return iter(self.by_function[names[0]] if names else ())
        return (call for call in self.calls if call.function in names)

    def get_line(self, line: int) -> str:
        """Return the text of a line."""
        return self.lines[line - 1].strip()[:MAX_TEXT_CHARS] if 0 < line <= len(self.lines) else ""


def join_sources(source: PythonSource, other: PythonSource, path: str = "") -> PythonSource:
    """Return a program together with a module that it imports; a name that both define is not known."""

    def join(first: Mapping[str, Value], second: Mapping[str, Value]) -> Mapping[str, Value]:
        both = {name for name in first.keys() & second.keys() if first[name].literal != second[name].literal}
        return MappingProxyType({name: value for name, value in {**second, **first}.items() if name not in both})

    shift = len(source.lines)
    moved = tuple(_shift_call(call, shift) for call in other.calls)
    return PythonSource(
        imports=source.imports | other.imports,
        defaults=join(source.defaults, _shift(other.defaults, shift)),
        flags=MappingProxyType({**other.flags, **source.flags}),
        aliases=MappingProxyType({**other.aliases, **source.aliases}),
        switches=source.switches | other.switches,
        constants=join(source.constants, _shift(other.constants, shift)),
        attributes=join(source.attributes, _shift(other.attributes, shift)),
        lists=MappingProxyType({**other.lists, **source.lists}),
        changed=MappingProxyType({**other.changed, **source.changed}),
        calls=(*source.calls, *moved),
        by_function=group_calls((*source.calls, *moved)),
        assignments=(*source.assignments, *other.assignments),
        divided=source.divided | other.divided,
        lines=(*source.lines, *other.lines),
        parts={**source.parts, path: shift},
    )


def group_calls(calls: Iterable[Call]) -> Mapping[str, tuple[Call, ...]]:
    """Return calls by the name of their function."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.function, []).append(call)
    return MappingProxyType({name: tuple(rows) for name, rows in groups.items()})


def _shift(values: Mapping[str, Value], lines: int) -> dict[str, Value]:
    """Return values with the lines that they have behind another text."""
    return {name: replace(value, line=value.line + lines) for name, value in values.items()}


def _shift_call(call: Call, lines: int) -> Call:
    """Return a call with the lines that it has behind another text."""
    first = replace(call.first, line=call.first.line + lines)
    return replace(call, line=call.line + lines, first=first, keywords=_shift(call.keywords, lines))
