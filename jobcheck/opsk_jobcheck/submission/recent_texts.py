"""What people submit again is mostly what they submitted before: answers about short texts are kept, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

from opsk.units import KIB

MOST_KEPT, LONGEST_CHARS = 256, 8 * KIB
"""Texts that are longer than any that people type are read and forgotten."""

Others = TypeVarTuple("Others")
Answer = TypeVar("Answer")


def kept_if_short(read: Callable[[str, *Others], Answer]) -> Callable[[str, *Others], Answer]:
    """Keep what a function of a text, and of few other texts, has returned for short ones; nobody may change it."""
    kept = lru_cache(maxsize=MOST_KEPT)(read)

    @wraps(read)
    def look(text: str, *others: *Others) -> Answer:
        return kept(text, *others) if len(text) <= LONGEST_CHARS else read(text, *others)

    return look
