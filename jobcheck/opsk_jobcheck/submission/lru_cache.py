"""Implements a bounded cache that evicts the least recently used value first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _Key:
    """A key that is hashed once: a workload has a hundred parts, each of which Python would hash again."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._value == other._value


@dataclass(slots=True)
class LruCache(Generic[Value]):
    """Values by key; the least recently used one goes first. Not for several threads."""

    max_size: int
    _values: dict[_Key, Value] = field(default_factory=dict)

    def get(
        self, key: Hashable, compute: Callable[[], Value], *, is_stored: Callable[[Value], bool] = lambda _: True
    ) -> Value:
        """Return the value of a key, computed where there is none.

        An exception of ``compute`` is not stored, nor is a value that ``is_stored`` refuses.
        """
        hashed = _Key(key)
        if hashed not in self._values:
            value = compute()
            if not is_stored(value):
                return value
        else:
            value = self._values.pop(hashed)
        self._values[hashed] = value
        if len(self._values) > self.max_size:
            del self._values[next(iter(self._values))]
        return value

    def __contains__(self, key: Hashable) -> bool:
        """Return whether there is a value for a key."""
        return _Key(key) in self._values

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self._values)
