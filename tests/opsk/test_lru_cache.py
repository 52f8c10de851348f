"""The cache keeps the most recently used values, up to its size."""

from __future__ import annotations

from functools import partial

import pytest

from opsk.lru_cache import LruCache


def worked_out(*keys: str) -> list[str]:
    """Ask two places for values of these keys, and return those that had to be worked out."""
    recent: LruCache[str] = LruCache(2)
    found: list[str] = []

    def work_out(key: str) -> str:
        found.append(key)
        return key.upper()

    for key in keys:
        assert recent.get(key, partial(work_out, key)) == key.upper()
    return found


def test_the_same_key_is_worked_out_once() -> None:
    assert worked_out("a", "a", "b", "a") == ["a", "b"]


def test_the_one_that_was_not_asked_for_longest_goes_first() -> None:
    assert worked_out("a", "b", "a", "c", "a", "b") == ["a", "b", "c", "b"]


def test_a_failure_is_not_kept() -> None:
    recent: LruCache[int] = LruCache(2)
    with pytest.raises(ZeroDivisionError):
        recent.get("a", lambda: 1 // 0)
    assert recent.get("a", lambda: 3) == 3
