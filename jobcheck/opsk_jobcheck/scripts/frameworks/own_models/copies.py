"""Copies modules that a program makes again and again with the same arguments: the blocks of a network."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.layers import Arguments
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    Choice,
    ClassValue,
    External,
    File,
    FunctionValue,
    Mark,
    Module,
    Parameter,
    Settings,
    Span,
    Tensor,
)

MAX_PARTS = 4000
"""Values of one module that are copied."""
MAX_NESTED = 48
_RATE = re.compile(r"\w*(drop|dpr|prob|rate|eps|init_value|layerscale|layer_scale|dilation_rate)\w*")
"""Arguments that change no weight: blocks of one network differ in them."""
_PLAIN = (str, int, float, bytes, type(None), Span, External, ClassValue, File, Mark, Settings, Arguments)


class CannotCopyError(Exception):
    """A module holds what is not copied."""


def describe_arguments(positional: Sequence[Any], keywords: Mapping[str, Any], names: Sequence[str]) -> Hashable | None:
    """Return what tells the arguments of a constructor from others; ``None`` where that may change.

    Parameters
    ----------
    names
        The parameters of the constructor, in their order.
    """
    rows = [(names[place] if place < len(names) else "", value) for place, value in enumerate(positional)]
    parts = [(name, _describe(value, name)) for name, value in (*rows, *sorted(keywords.items()))]
    return None if any(part is None for _, part in parts) else tuple(parts)


def _describe(value: Any, name: str, depth: int = 0) -> Hashable | None:
    """Return what tells a value from others; ``None`` for one that may change."""
    if isinstance(value, float) and _RATE.fullmatch(name) and 0 <= value < 1:
        return ("rate", value > 0)
    if value is None or isinstance(value, str | int | float | External | Mark | Span):
        return (type(value).__name__, value)
    if isinstance(value, ClassValue):
        return ("class", id(value.node))
    if isinstance(value, FunctionValue):
        return ("function", id(value.node)) if value.owner is None and value.frame is None else None
    if depth < 3 and isinstance(value, list | tuple) and len(value) <= MAX_NESTED:
        parts = [_describe(part, name, depth + 1) for part in value]
        return None if None in parts else (type(value).__name__, *parts)
    if isinstance(value, Settings):
        return ("settings", value.path, value.of_file, len(value.changed))
    if isinstance(value, Module) and not value.is_model:  # settings in an object
        plain = {key: part for key, part in value.attributes.items() if isinstance(part, str | int | float | Mark)}
        return ("object", value, len(value.attributes), tuple(plain.items()))
    return None


def copy_module(module: Module, shared: Sequence[Any]) -> tuple[Module, list[Any]]:
    """Return a copy of a module with weights of its own, and all that was made for it.

    Parameters
    ----------
    shared
        What both hold: the arguments that it was made with.

    Raises
    ------
    CannotCopyError
        When it holds what is not copied.
    """
    copies: dict[int, Any] = {id(value): value for value in shared if isinstance(value, Module | list | dict)}
    made: list[Any] = []
    result = _copy(module, copies, made, 0)
    if not isinstance(result, Module):
        raise CannotCopyError
    return result, made


def _copy(value: Any, copies: dict[int, Any], made: list[Any], depth: int) -> Any:
    """Return a copy of a value."""
    if isinstance(value, _PLAIN):
        return value
    if id(value) in copies:
        return copies[id(value)]
    if depth > MAX_NESTED or len(made) > MAX_PARTS:
        raise CannotCopyError
    if isinstance(value, Module):
        return _copy_parts(value, copies, made, depth)
    if isinstance(value, Parameter):
        result: Any = Parameter(value.size, value.shape, value.dtype, is_frozen=value.is_frozen)
    elif isinstance(value, list) and type(value) is list:
        result = [_copy(part, copies, made, depth + 1) for part in value]
    elif isinstance(value, tuple):
        result = tuple(_copy(part, copies, made, depth + 1) for part in value)
    elif isinstance(value, dict):
        result = {key: _copy(part, copies, made, depth + 1) for key, part in value.items()}
    elif isinstance(value, Choice):
        result = Choice(tuple(_copy(part, copies, made, depth + 1) for part in value.options))
    elif isinstance(value, Tensor) and value.storage is None:
        return value
    elif isinstance(value, FunctionValue) and value.frame is None:
        owner = _copy(value.owner, copies, made, depth + 1)
        result = FunctionValue(value.node, value.file, None, owner, value.kind)
    else:
        raise CannotCopyError
    copies[id(value)] = result
    made.append(result)
    return result


def _copy_parts(module: Module, copies: dict[int, Any], made: list[Any], depth: int) -> Module:
    """Return a copy of a module with copies of its parts, which may hold it."""
    result = Module(module.name, definition=module.definition, is_model=module.is_model, layer=module.layer)
    copies[id(module)] = result
    made += [result, result.attributes, result.parts]
    for key, part in module.attributes.items():
        result.attributes[key] = _copy(part, copies, made, depth + 1)
    result.parts += [_copy(part, copies, made, depth + 1) for part in module.parts]
    return result
