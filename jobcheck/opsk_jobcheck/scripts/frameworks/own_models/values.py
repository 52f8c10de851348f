"""Defines what names stand for while a program's text is followed: numbers, modules, and what is not known of both."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.digest import Digest

MAX_OPTIONS = 16


class CannotCountError(Exception):
    """Why a program cannot be followed."""


class FinishedError(Exception):
    """What is left of a program makes no models."""


class Mark(Enum):
    """A value that is not known.

    Of ``DATA`` only the running program knows what it is; it is no module. ``OPEN`` may be a module of any size, and
    ``ABSENT`` is nothing: a name that is not set.
    """

    DATA = "data"
    OPEN = "open"
    ABSENT = "absent"


DATA, OPEN, ABSENT = Mark.DATA, Mark.OPEN, Mark.ABSENT


@dataclass(frozen=True, slots=True)
class Span:
    """A number between ``low`` and ``high``, which is ``None`` where it has no limit."""

    low: int
    high: int | None

    def __add__(self, other: Span) -> Span:
        """Return the sum."""
        return Span(self.low + other.low, _combine(self.high, other.high, sum))

    def __mul__(self, other: Span) -> Span:
        """Return the product."""
        return Span(self.low * other.low, _combine(self.high, other.high, lambda row: row[0] * row[1]))

    def join(self, other: Span) -> Span:
        """Return the span of what is one of both."""
        return Span(min(self.low, other.low), _combine(self.high, other.high, max))


def _combine(first: int | None, second: int | None, combine: Any) -> int | None:
    """Return the combination of two limits; ``None`` where one is missing."""
    return None if first is None or second is None else int(combine((first, second)))


NOTHING, ANY_SIZE = Span(0, 0), Span(1, None)
MAX_SIZE = 1 << 40


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that is one of several; which, only the running program knows."""

    options: tuple[Any, ...]


Shape = tuple[int | None, ...]
"""Sizes of a tensor along its axes, the outer one first; ``None`` for one that is not known."""


@dataclass(slots=True, eq=False)
class Storage:
    """Memory that a tensor and its views share; ``is_state`` is that of a weight or buffer, which is no activation."""

    size_bytes: Span
    is_state: bool = False


@dataclass(slots=True, eq=False)
class Parameter:
    """A weight, with the number of its elements; ``is_frozen`` tells that it is not trained for sure."""

    size: Span
    shape: Shape | None = None
    dtype: str = "float32"
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor, with the number of its elements.

    Parameters
    ----------
    shape
        Sizes along its axes; ``None`` where even their number is not known.
    strides
        Elements from one to the next along each axis; ``None`` where they are not known.
    dtype
        Type of its elements as PyTorch names it (``float32``, ``bfloat16``, ``int64``, ``bool``); empty where it is
        not known.
    has_gradient
        Whether the backward pass computes its gradient.
    storage
        The memory that it uses; views have that of their base. ``None`` outside of a training step.
    """

    size: Span
    shape: Shape | None = None
    strides: tuple[int, ...] | None = None
    dtype: str = "float32"
    has_gradient: bool = False
    storage: Storage | None = None


@dataclass(slots=True, eq=False)
class Module:
    """A module of PyTorch, or any other object of a class of the program.

    ``attributes`` are what its constructor sets, its own weights among them; ``parts`` the modules of a list of
    modules, or what a layer holds beyond weights; ``definition`` is the class of the program that it is of; ``layer``
    the name of a layer of PyTorch that it is, or inherits from, with the arguments that it is made with.
    """

    name: str
    attributes: dict[Any, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)
    definition: ClassValue | None = None
    is_model: bool = True
    layer: tuple[str, Any] | None = None


class Children(list[Any]):
    """The modules of a public model, of which only the last one is known apart."""

    def __init__(self, owner: Module) -> None:
        super().__init__([OPEN])
        self.owner = owner


@dataclass(frozen=True, slots=True)
class External:
    """Something of a package, by its dotted name."""

    name: str


@dataclass(slots=True, eq=False)
class File:
    """A file of the program; ``nodes`` are its definitions at the top, ``imports`` what its names stand for.

    ``whole`` are the modules of which it takes all names (``from model import *``).
    """

    path: str
    digest: Digest
    nodes: dict[str, list[ast.stmt | ast.expr]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    whole: list[str] = field(default_factory=list)
    names: dict[Any, Any] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    is_run: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """An expression of a file whose value is asked for later: the default of a flag."""

    node: ast.expr
    file: File


@dataclass(slots=True, eq=False)
class ClassValue:
    """A class of the program."""

    node: ast.ClassDef
    file: File


@dataclass(slots=True, eq=False)
class FunctionValue:
    """A function of the program, or a method of ``owner``; ``frame`` has the names around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    file: File
    frame: Frame | None = None
    owner: Module | None = None
    kind: ClassValue | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A function with arguments that it already has."""

    function: Any
    positional: Sequence[Any]
    keywords: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that the program opens."""

    path: str


@dataclass(slots=True, eq=False)
class Settings:
    """Settings that are given when the program is started; ``of_file`` are those of a file of settings."""

    path: tuple[str, ...] = ()
    of_file: bool = False
    changed: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Frame:
    """The names of a function that is followed; ``kind`` is the class whose method it is."""

    file: File
    names: dict[Any, Any] = field(default_factory=dict)
    owner: Module | None = None
    kind: ClassValue | None = None
    outer: Frame | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Super:
    """What ``super()`` stands for in a method of ``kind``."""

    kind: ClassValue
    owner: Module


@dataclass(frozen=True, slots=True, eq=False)
class OuterConstructor:
    """The constructor of the bases of a class that are not of the program."""

    of: Super


def is_unknown(value: Any) -> bool:
    """Return whether a value may be a module of which nothing is known."""
    is_opaque = isinstance(value, Module) and value.is_model and value.definition is None and "?" in value.attributes
    return value is OPEN or is_opaque


CALLABLE = (External, ClassValue, FunctionValue, Partial, OuterConstructor)


def merge(first: Any, second: Any) -> Any:
    """Return a value that is one of two."""
    if first is second or (type(first) is type(second) and _is_scalar(first) and first == second):
        return first
    if isinstance(first, list) and isinstance(second, list):
        return merge_rows(first, second)
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        return tuple(merge_rows(first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        names = [*first, *(name for name in second if name not in first)]
        return {name: merge(first.get(name, ABSENT), second.get(name, ABSENT)) for name in names}
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _merge_tensors(first, second)
    return choose([*list_options(first), *list_options(second)])


def _merge_tensors(first: Tensor, second: Tensor) -> Tensor:
    """Return a tensor that is one of two; its memory may be in use already, as that of either of them."""
    shape, storage = first.shape, first.storage
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        shape = None
    elif first.shape != second.shape:
        shape = tuple(one if one == other else None for one, other in zip(first.shape, second.shape, strict=True))
    if storage is not None and second.storage is not None and storage is not second.storage:
        high = storage.size_bytes.join(second.storage.size_bytes).high
        storage = Storage(Span(0, high), is_state=storage.is_state and second.storage.is_state)
    return Tensor(
        size=first.size.join(second.size),
        shape=shape,
        strides=first.strides if first.strides == second.strides and shape == first.shape else None,
        dtype=first.dtype if first.dtype == second.dtype else "",
        has_gradient=first.has_gradient or second.has_gradient,
        storage=storage if storage is not None else second.storage,
    )


def merge_rows(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return a list that is one of two; what only the longer one has may be absent."""
    length = max(len(first), len(second))
    rows = (
        (first[index] if index < len(first) else ABSENT, second[index] if index < len(second) else ABSENT)
        for index in range(length)
    )
    return [merge(*row) for row in rows]


def choose(values: Iterable[Any]) -> Any:
    """Return a value that is one of several."""
    options: list[Any] = []
    for value in values:
        is_new = all(
            value is not other and not (_is_scalar(value) and type(value) is type(other) and value == other)
            for other in options
        )
        if is_new:
            options.append(value)
    if len(options) == 1:
        return options[0]
    if len(options) > MAX_OPTIONS or OPEN in options:
        return OPEN
    if DATA in options and not any(isinstance(value, Module | Parameter | list | dict) for value in options):
        return DATA
    return Choice(tuple(options))


def list_options(value: Any) -> tuple[Any, ...]:
    """Return what a value may be."""
    return value.options if isinstance(value, Choice) else (value,)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | Span | External)


def as_span(value: Any) -> Span:
    """Return a size: channels, features, words."""
    if isinstance(value, Choice):
        spans = [as_span(option) for option in value.options]
        result = spans[0]
        for span in spans[1:]:
            result = result.join(span)
        return result
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SIZE:
        return ANY_SIZE
    return Span(int(value), int(value))


def list_modules(value: Any) -> Iterator[Module | Choice]:
    """Yield the modules in a value, in lists and tuples too; a choice among modules is one."""
    if isinstance(value, Module) or (isinstance(value, Choice) and any(isinstance(x, Module) for x in value.options)):
        yield value
    elif isinstance(value, list | tuple) and len(value) <= MAX_OPTIONS:
        for part in value:
            yield from list_modules(part)
