"""Caches the results of functions of short texts, since most submissions repeat earlier ones; the cache is bounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

from opsk.units import KIB

MAX_CACHED, MAX_CHARS = 256, 8 * KIB
"""Results of longer texts than people type are not cached."""

Others = TypeVarTuple("Others")
Answer = TypeVar("Answer")


def cache_short_texts(read: Callable[[str, *Others], Answer]) -> Callable[[str, *Others], Answer]:
    """Cache the results of a function of a text, and of other texts, for short texts; results must not be modified."""
    cached = lru_cache(maxsize=MAX_CACHED)(read)

    @wraps(read)
    def wrapper(text: str, *others: *Others) -> Answer:
        return cached(text, *others) if len(text) <= MAX_CHARS else read(text, *others)

    return wrapper
