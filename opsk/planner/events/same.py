"""What was worked out of the very same objects is not worked out again: of 16,000 GPUs few change between looks.

Frozen values are the same while they are the same objects, and comparing those costs nothing. The result is that of
the function in any case; only the last one is kept, with its arguments, so that no other takes their place in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Worked = TypeVar("Worked")


def of_the_same(work: Callable[Given, Worked]) -> Callable[Given, Worked]:
    """Return a function that works nothing out anew where it is given what it was given the last time.

    For frozen arguments, given by position. Threads may work one out twice, and never get that of other arguments.
    """
    last: tuple[tuple[object, ...], Worked] | None = None

    @wraps(work)
    def kept(*args: Given.args, **kwargs: Given.kwargs) -> Worked:
        nonlocal last
        known = last
        if known is not None and not kwargs and len(known[0]) == len(args) and all(map(is_, known[0], args)):
            return known[1]
        made = work(*args, **kwargs)
        if not kwargs:
            last = args, made
        return made

    return kept
