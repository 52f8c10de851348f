"""Gives a command several options at once, whose values it gets as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_group(parameter: str, value_class: type[Any], options: Sequence[Decorator]) -> Decorator:
    """Return a decorator that adds options to a command and hands over their values as one object.

    Parameters
    ----------
    parameter
        Name of the command's parameter that gets the object.
    value_class
        A dataclass whose fields have the names of the options; fields without an option keep their defaults.
    options
        Click's decorators, in the order of the help page.
    """
    names = [item.name for item in fields(value_class)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_value(*arguments: Any, **given: Any) -> Any:
            value = value_class(**{name: given.pop(name) for name in names if name in given})
            return command(*arguments, **{parameter: value}, **given)

        wrapped: Callable[..., Any] = with_value
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate
